/* Lists of entries. Invariant: a list's first has no previous, its last no next, and
 * both are NULL together. */
#include "store/entry_list.h"

#include "store/store_state.h"

void spw__entry_list_add(spw__entry_list *list, spw__link_kind kind, spw_entry *entry)
{
    entry->links[kind] = (spw__link){.previous = list->last};
    if (list->last != NULL)
        list->last->links[kind].next = entry;
    else
        list->first = entry;
    list->last = entry;
}

void spw__entry_list_remove(spw__entry_list *list, spw__link_kind kind,
                            spw_entry *entry)
{
    spw__link *link = &entry->links[kind];
    if (link->previous != NULL)
        link->previous->links[kind].next = link->next;
    else
        list->first = link->next;
    if (link->next != NULL)
        link->next->links[kind].previous = link->previous;
    else
        list->last = link->previous;
    *link = (spw__link){0};
}
