/* How a region comes back to the pool: as a whole, or in parts while the rest is live.
 */
#include "memory/region_pool.h"

#include <stdint.h>

#include "context/allocate.h"
#include "memory/region_pool_state.h"
#include "platform/clock.h"
#include "platform/memory_map.h"
#include "spillway/buffer.h"

enum { UNITS_MAX = 64 };

/* Units -----------------------------------------------------------------------------
 */

size_t spw__region_unit_bytes(const spw__region *region)
{
    if (region->source != SPW__REGION_MAPPED)
        return 0;
    size_t unit = SPW__HUGE_PAGE_BYTES;
    while ((region->capacity - 1) / unit >= UNITS_MAX)
        unit *= 2;
    return unit;
}

static size_t units_bytes(const spw__region *region, spw__region_units units)
{
    return (size_t)__builtin_popcountll(units) * spw__region_unit_bytes(region);
}

/* The next run of a region's memory of which the units are in a set, or are not, from
 * *at on, which is behind it afterwards. Returns: its size; 0: there is none. */
static size_t next_run(const spw__region *region, spw__region_units units, bool is_in,
                       size_t *at, char **ret_start)
{
    size_t unit = spw__region_unit_bytes(region), begin = *at;
    while (begin < region->capacity && (units >> (begin / unit) & 1) != is_in)
        begin += unit;
    size_t end = begin;
    while (end < region->capacity && (units >> (end / unit) & 1) == is_in)
        end += unit;
    *at = end;
    *ret_start = (char *)region->data + begin;
    if (begin >= region->capacity)
        return 0;
    return (end < region->capacity ? end : region->capacity) - begin;
}

/* Ranges ----------------------------------------------------------------------------
 */

/* What is charged as pooled is cached, or given back where the cache has no room. */
static void keep_range(spw__region_pool *pool, char *start, size_t size,
                       uint64_t now_ms)
{
    const spw__range range = {start, size, now_ms};
    spw__pool_lock(pool);
    bool is_kept = spw__range_cache_put(&pool->large, &range);
    if (!is_kept)
        pool->held_bytes -= size;
    spw__pool_unlock(pool);
    if (is_kept)
        return;
    spw__memory_unmap(start, size);
    spw_budget_release(pool->context->budget, SPW_CHARGE_POOLED, size);
}

static void keep_rest(spw__region_pool *pool, const spw__region *region,
                      spw__region_units vacated)
{
    char *start;
    size_t size, at = 0;
    while ((size = next_run(region, vacated, false, &at, &start)) > 0)
        keep_range(pool, start, size, spw__clock_ms());
}

static void unmap_rest(const spw__region *region, spw__region_units vacated)
{
    char *start;
    size_t size, at = 0;
    while ((size = next_run(region, vacated, false, &at, &start)) > 0)
        spw__memory_unmap(start, size);
}

/* What is left of a region of which pages are gone. */
static void drop_rest(spw__region_pool *pool, const spw__region *region,
                      spw__region_units vacated)
{
    unmap_rest(region, vacated);
    spw__pool_lock(pool);
    pool->held_bytes -= region->capacity - units_bytes(region, vacated);
    spw__pool_unlock(pool);
}

/* Items of slabs --------------------------------------------------------------------
 */

static void keep_item(spw__region_pool *pool, const spw__region *region)
{
    uint64_t now_ms = spw__clock_ms();
    spw__pool_lock(pool);
    spw__slab_put(region->slab, region->data, (uint32_t)now_ms);
    pool->warm_bytes += region->capacity;
    if (region->slab->warm == 1)
        spw__slab_lists_sort(&pool->slabs, region->slab);
    spw__pool_unlock(pool);
}

/* An item of which pages are gone; what is left of it goes too. */
static void chill(spw__region_pool *pool, const spw__region *region)
{
    spw__slab *slab = region->slab;
    uint32_t i =
        (uint32_t)((size_t)((char *)region->data - slab->memory) / slab->item_bytes);
    const spw__slab_run run = {i, i + 1, 0};
    spw__slab_discard_run(slab, &run);
    spw__pool_lock(pool);
    pool->held_bytes -= region->capacity;
    spw__slab_put_run(slab, &run);
    bool is_gone = slab->live == 0 && slab->warm == 0;
    if (is_gone)
        spw__slab_lists_remove(&pool->slabs, slab);
    else
        spw__slab_lists_sort(&pool->slabs, slab);
    spw__pool_unlock(pool);
    if (is_gone)
        spw__slab_free(slab, pool->context);
}

/* Releasing ------------------------------------------------------------------------ */

void spw__region_release(spw_context *context, const spw__region *region,
                         spw_charge charge)
{
    spw__region_release_part(context, region, 0, 0, charge);
}

/* A region that still has all its pages, but for what was vacated. */
static void release_warm(spw__region_pool *pool, const spw__region *region,
                         spw__region_units vacated, size_t charged, spw_charge charge)
{
    spw_budget_move(pool->context->budget, charge, SPW_CHARGE_POOLED, charged);
    if (region->source == SPW__REGION_SLAB)
        keep_item(pool, region);
    else
        keep_rest(pool, region, vacated);
    spw__pool_watch(pool, region->capacity);
}

static void release_cold(spw__region_pool *pool, const spw__region *region,
                         spw__region_units vacated, size_t charged, spw_charge charge)
{
    if (region->source == SPW__REGION_SLAB)
        chill(pool, region);
    else
        drop_rest(pool, region, vacated);
    spw_budget_release(pool->context->budget, charge, charged);
    spw_budget_release(pool->context->budget, SPW_CHARGE_POOLED,
                       region->capacity - region->size);
}

/* A child lets go of what it has a copy of. Items of slabs stay mapped in it. */
static void release_inherited(spw_context *context, const spw__region *region,
                              spw__region_units vacated, size_t charged,
                              spw_charge charge)
{
    if (region->source == SPW__REGION_MAPPED)
        unmap_rest(region, vacated);
    spw_budget_release(context->budget, charge, charged);
    spw_budget_release(context->budget, SPW_CHARGE_POOLED,
                       region->capacity - region->size);
}

void spw__region_release_part(spw_context *context, const spw__region *region,
                              spw__region_units vacated, size_t uncharged,
                              spw_charge charge)
{
    size_t charged = region->size - uncharged;
    if (region->source == SPW__REGION_ALLOCATED) {
        spw__release(context, region->data, region->capacity, SPW_BUFFER_ALIGNMENT);
        spw_budget_release(context->budget, charge, charged);
        return;
    }
    spw__region_pool *pool = spw__pool_of(context);
    if (pool == NULL)
        release_inherited(context, region, vacated, charged, charge);
    else if (uncharged > units_bytes(region, vacated))
        release_cold(pool, region, vacated, charged, charge);
    else
        release_warm(pool, region, vacated, charged, charge);
}

/* Parts of a live region ------------------------------------------------------------
 */

size_t spw__region_vacate(spw_context *context, const spw__region *region,
                          spw__region_units units, spw_charge charge)
{
    spw__region_pool *pool = spw__pool_of(context);
    if (pool == NULL)
        return 0;
    char *start;
    size_t size, at = 0, bytes = units_bytes(region, units);
    spw_budget_move(context->budget, charge, SPW_CHARGE_POOLED, bytes);
    while ((size = next_run(region, units, true, &at, &start)) > 0)
        keep_range(pool, start, size, spw__clock_ms());
    return bytes;
}

size_t spw__region_discard(const spw_context *context, const spw__region *region,
                           size_t from, size_t to)
{
    size_t page = spw__memory_page_bytes();
    if (region->source == SPW__REGION_ALLOCATED || spw__pool_of(context) == NULL ||
        from >= to || to > region->size)
        return 0;
    uintptr_t start = ((uintptr_t)region->data + from + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)region->data + to) & ~(page - 1);
    if (start >= end)
        return 0;
    spw__memory_discard((char *)region->data + (start - (uintptr_t)region->data),
                        end - start);
    return end - start;
}
