/* Free ranges of memory, oldest and best fitting to be found: ranges that touch are
 * joined, and a larger one is cut for a smaller need. One that does not begin on a huge
 * page, as what is cut off at the end may, is there to be moved or joined. A table and
 * nothing else: no lock, no system call, no allocation. */
#ifndef SPW_MEMORY_RANGE_CACHE_H
#define SPW_MEMORY_RANGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw__range {
    char *start; /* on a page */
    size_t size; /* whole pages */
    uint64_t idle_since_ms;
} spw__range;

/* Ranges that touch count once, so that few caches come near; a search passes over all
 * of them, which costs less than a microsecond. */
enum { SPW__RANGES_MAX = 512 };

/* Starts all zero. */
typedef struct spw__range_cache {
    size_t count;
    size_t bytes;                       /* of all together */
    spw__range ranges[SPW__RANGES_MAX]; /* by address; no two touch */
} spw__range_cache;

/* What is left over of a range stays in the cache from here on. */
#define SPW__SURPLUS_FROM_BYTES ((size_t)64 << 10)

/* Whether given bytes may serve a need of size: an eighth may be wasted. */
static inline bool spw__fits(size_t given, size_t size)
{
    return given >= size && given - size <= size / 8;
}

/* Put a range in. One that joins another is as old as the older of them: what is idle
 * must not stay for what comes and goes beside it.
 * Returns: false when the table is full, and nothing has changed. */
bool spw__range_cache_put(spw__range_cache *cache, const spw__range *range);
/* Take the smallest range that serves a need of size (> 0) and begins on a huge page.
 * Returns: false when there is none. */
bool spw__range_cache_take(spw__range_cache *cache, size_t size, spw__range *ret_range);
/* Take the range that is idle for longest. Returns: false when there is none. */
bool spw__range_cache_take_oldest(spw__range_cache *cache, spw__range *ret_range);
/* Take size bytes, whole pages (> 0), from the end of the oldest range that has as
 * many. They begin on a page. Returns: NULL when there is none. */
char *spw__range_cache_take_end(spw__range_cache *cache, size_t size);
/* Since when the oldest is idle; UINT64_MAX when there is none. */
uint64_t spw__range_cache_oldest_ms(const spw__range_cache *cache);

#endif
