/* The cache of free ranges. Its limit keeps plain arrays fast, and lets a range be put
 * in where no memory can be had: on the way out of a buffer. */
#include "memory/range_cache.h"

#include <string.h>

#include "platform/memory_map.h"

static const size_t HUGE = SPW__HUGE_PAGE_BYTES;

static void insert(spw__range_cache *cache, size_t at, const spw__range *range)
{
    memmove(&cache->ranges[at + 1], &cache->ranges[at],
            (cache->count - at) * sizeof *range);
    cache->ranges[at] = *range;
    cache->count++;
}

static void erase(spw__range_cache *cache, size_t at)
{
    cache->count--;
    memmove(&cache->ranges[at], &cache->ranges[at + 1],
            (cache->count - at) * sizeof cache->ranges[at]);
}

/* The first range that begins at or after an address. */
static size_t find(const spw__range_cache *cache, const char *start)
{
    size_t low = 0, high = cache->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (cache->ranges[middle].start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool touch(const spw__range *left, const spw__range *right)
{
    return left->start + left->size == right->start;
}

static void join(spw__range *left, const spw__range *right)
{
    left->size += right->size;
    if (right->idle_since_ms < left->idle_since_ms)
        left->idle_since_ms = right->idle_since_ms;
}

bool spw__range_cache_put(spw__range_cache *cache, const spw__range *range)
{
    size_t at = find(cache, range->start);
    bool joins_left = at > 0 && touch(&cache->ranges[at - 1], range);
    bool joins_right = at < cache->count && touch(range, &cache->ranges[at]);
    if (!joins_left && !joins_right && cache->count == SPW__RANGES_MAX)
        return false;
    if (joins_left) {
        join(&cache->ranges[at - 1], range);
        if (joins_right) {
            join(&cache->ranges[at - 1], &cache->ranges[at]);
            erase(cache, at);
        }
    } else if (joins_right) {
        spw__range joined = *range;
        join(&joined, &cache->ranges[at]);
        cache->ranges[at] = joined;
    } else {
        insert(cache, at, range);
    }
    cache->bytes += range->size;
    return true;
}

/* How much of a range a need of size takes: all of it but for a surplus, or whole huge
 * pages, so that what is left begins on one. 0 when either would waste too much. */
static size_t share(const spw__range *range, size_t size)
{
    if (range->size < size || (uintptr_t)range->start % HUGE != 0)
        return 0;
    if (spw__fits(range->size, size)) {
        size_t page = spw__memory_page_bytes();
        size_t needed = (size + page - 1) & ~(page - 1);
        return range->size - needed < SPW__SURPLUS_FROM_BYTES ? range->size : needed;
    }
    size_t whole_pages = (size + HUGE - 1) & ~(HUGE - 1);
    return spw__fits(whole_pages, size) ? whole_pages : 0;
}

bool spw__range_cache_take(spw__range_cache *cache, size_t size, spw__range *ret_range)
{
    size_t best = cache->count;
    for (size_t i = 0; i < cache->count; i++) {
        bool is_smaller =
            best == cache->count || cache->ranges[i].size < cache->ranges[best].size;
        if (is_smaller && share(&cache->ranges[i], size) > 0)
            best = i;
    }
    if (best == cache->count)
        return false;
    spw__range *range = &cache->ranges[best];
    size_t taken = share(range, size);
    *ret_range = (spw__range){range->start, taken, range->idle_since_ms};
    cache->bytes -= taken;
    if (taken == range->size) {
        erase(cache, best);
    } else {
        range->start += taken;
        range->size -= taken;
    }
    return true;
}

/* The oldest range of size bytes or more; behind the last when there is none. */
static size_t oldest(const spw__range_cache *cache, size_t size)
{
    size_t found = cache->count;
    for (size_t i = 0; i < cache->count; i++)
        if (cache->ranges[i].size >= size &&
            (found == cache->count ||
             cache->ranges[i].idle_since_ms < cache->ranges[found].idle_since_ms))
            found = i;
    return found;
}

bool spw__range_cache_take_oldest(spw__range_cache *cache, spw__range *ret_range)
{
    size_t at = oldest(cache, 0);
    if (at == cache->count)
        return false;
    *ret_range = cache->ranges[at];
    cache->bytes -= ret_range->size;
    erase(cache, at);
    return true;
}

char *spw__range_cache_take_end(spw__range_cache *cache, size_t size)
{
    size_t at = oldest(cache, size);
    if (at == cache->count)
        return NULL;
    spw__range *range = &cache->ranges[at];
    range->size -= size;
    cache->bytes -= size;
    char *start = range->start + range->size;
    if (range->size == 0)
        erase(cache, at);
    return start;
}

uint64_t spw__range_cache_oldest_ms(const spw__range_cache *cache)
{
    return cache->count > 0 ? cache->ranges[oldest(cache, 0)].idle_since_ms
                            : UINT64_MAX;
}
