/* Lists of entries, through links that stand in them: an entry can be in one list of
 * each kind of link. Thread: with the store's lock held. */
#ifndef SPW_STORE_ENTRY_LIST_H
#define SPW_STORE_ENTRY_LIST_H

#include "spillway/store.h"

typedef enum spw__link_kind {
    SPW__LINK_ALL = 0,  /* every entry of the store */
    SPW__LINK_TURN = 1, /* what may leave memory, by when it was used; or is to leave */
    SPW__LINK_COUNT = 2
} spw__link_kind;

typedef struct spw__link {
    spw_entry *previous, *next;
} spw__link;

typedef struct spw__entry_list {
    spw_entry *first, *last;
} spw__entry_list;

/* At the end. */
void spw__entry_list_add(spw__entry_list *list, spw__link_kind kind, spw_entry *entry);
void spw__entry_list_remove(spw__entry_list *list, spw__link_kind kind,
                            spw_entry *entry);

#endif
