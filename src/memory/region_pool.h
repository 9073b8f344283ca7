/* Where the memory of buffers comes from: the context's pool, or its allocator. */
#ifndef SPW_MEMORY_REGION_POOL_H
#define SPW_MEMORY_REGION_POOL_H

#include "memory/slab.h"
#include "spillway/context.h"

typedef enum spw__region_source {
    SPW__REGION_ALLOCATED, /* by the context's allocator */
    SPW__REGION_SLAB,
    SPW__REGION_MAPPED
} spw__region_source;

/* Memory that one buffer has to itself. */
typedef struct spw__region {
    void *data;      /* on SPW_BUFFER_ALIGNMENT */
    size_t size;     /* asked for; may be 0 */
    size_t capacity; /* there; the rest of it nobody sees */
    spw__region_source source;
    spw__slab *slab; /* of SPW__REGION_SLAB */
} spw__region;

/* Memory of size bytes, charged under charge, with what an earlier buffer left in it.
 * Returns: a region to be released once. Thread: any. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED. */
spw_status spw__region_acquire(spw_context *context, size_t size, spw_charge charge,
                               spw__region *ret_region, spw_error *error);
/* Takes: region, charged under charge. Never fails and allocates nothing. Thread: any.
 */
void spw__region_release(spw_context *context, const spw__region *region,
                         spw_charge charge);
/* The whole pages in [from, to) of a live region's bytes, which may go before it does,
 * if it is one of the pool's and this is the process that made it. Returns: where they
 * begin; NULL when there are none. Thread: any. */
char *spw__region_find_pages(const spw_context *context, const spw__region *region,
                             size_t from, size_t to, size_t *ret_size);
/* As spw__region_release, of one of which so many bytes have gone and are charged under
 * charge no more. Where any were, none of it is kept: it is cold. */
void spw__region_release_part(spw_context *context, const spw__region *region,
                              size_t discarded, spw_charge charge);

#endif
