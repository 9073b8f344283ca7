/* Lists of slabs. Invariant: a slab is listed under its size exactly while it has free
 * items, in so far as it has been sorted since they changed. */
#include "memory/slab_lists.h"

#include <stddef.h>

static void unlist(spw__slab_lists *lists, spw__slab *slab)
{
    if (!slab->is_listed)
        return;
    spw__slab_class *class = &lists->classes[slab->size_class];
    if (slab->previous != NULL)
        slab->previous->next = slab->next;
    else if (class->warm == slab)
        class->warm = slab->next;
    else
        class->cold = slab->next;
    if (slab->next != NULL)
        slab->next->previous = slab->previous;
    slab->is_listed = false;
}

void spw__slab_lists_add(spw__slab_lists *lists, spw__slab *slab)
{
    slab->all_previous = NULL;
    slab->all_next = lists->all;
    if (lists->all != NULL)
        lists->all->all_previous = slab;
    lists->all = slab;
}

void spw__slab_lists_sort(spw__slab_lists *lists, spw__slab *slab)
{
    unlist(lists, slab);
    if (spw__slab_is_full(slab))
        return;
    spw__slab_class *class = &lists->classes[slab->size_class];
    spw__slab **head = slab->warm > 0 ? &class->warm : &class->cold;
    slab->previous = NULL;
    slab->next = *head;
    if (*head != NULL)
        (*head)->previous = slab;
    *head = slab;
    slab->is_listed = true;
}

void spw__slab_lists_remove(spw__slab_lists *lists, spw__slab *slab)
{
    unlist(lists, slab);
    if (slab->all_previous != NULL)
        slab->all_previous->all_next = slab->all_next;
    else
        lists->all = slab->all_next;
    if (slab->all_next != NULL)
        slab->all_next->all_previous = slab->all_previous;
}
