/* Where the memory of buffers comes from: the context's pool, or its allocator. */
#ifndef SPW_MEMORY_REGION_POOL_H
#define SPW_MEMORY_REGION_POOL_H

#include <stdbool.h>

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
/* Give the whole pages in [from, to) of a live region's bytes back to the system, if it
 * is one of the pool's and this is the process that made it. They stay charged.
 * Returns: how many bytes went. Thread: any. */
size_t spw__region_discard(const spw_context *context, const spw__region *region,
                           size_t from, size_t to);
/* What of a region others have before it is released: the numbers of its units, from
 * its begin on, as a set of bits. */
typedef uint64_t spw__region_units;

/* A unit is whole huge pages, so many that 64 are all of a region, and lies within its
 * size. Returns: its bytes; 0 if nothing of the region can be vacated. */
size_t spw__region_unit_bytes(const spw__region *region);
/* Others may have these units from now on: they are charged under charge no more, and
 * nobody looks at them again. Returns: how many bytes; 0 in a process that did not make
 * the region. Thread: any. */
size_t spw__region_vacate(spw_context *context, const spw__region *region,
                          spw__region_units units, spw_charge charge);
/* As spw__region_release, of one of which units were vacated and other bytes discarded,
 * uncharged in all. Where any were discarded none of it is kept: it is cold. */
void spw__region_release_part(spw_context *context, const spw__region *region,
                              spw__region_units vacated, size_t uncharged,
                              spw_charge charge);

#endif
