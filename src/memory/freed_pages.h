/* Pages that leave buffers before these go, side by side in one range: many holes of
 * some KiB become memory that the pool can give to a buffer. */
#ifndef SPW_MEMORY_FREED_PAGES_H
#define SPW_MEMORY_FREED_PAGES_H

#include <stdbool.h>

#include "spillway/context.h"

/* Used by one thread at a time. */
typedef struct spw__freed_pages {
    spw_context *context; /* not a reference */
    char *start; /* addresses for room bytes, of which the first used are memory */
    size_t room, used;
} spw__freed_pages;

/* Room for so many bytes, or for none where there is no pool or no addresses: what has
 * none goes to the system. Takes no memory. */
void spw__freed_pages_open(spw_context *context, size_t room,
                           spw__freed_pages *ret_pages);
/* Move whole pages of a live region of the pool's, charged under charge, which are at
 * its old addresses no more: these read as zero. They are charged as pooled from then
 * on. Returns: false when there is no room, or they are too few to be moved. */
bool spw__freed_pages_take(spw__freed_pages *pages, char *from, size_t size,
                           spw_charge charge);
/* What was taken is in the pool. */
void spw__freed_pages_close(spw__freed_pages *pages);

#endif
