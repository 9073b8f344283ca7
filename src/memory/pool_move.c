/* How what is cached and of no use as it lies serves a new mapping: its pages move
 * under the new addresses. A page that moves is neither cleared nor faulted in again,
 * which is most of what memory costs; two mebibytes take a system call of microseconds.
 */
#include "memory/region_pool_state.h"
#include "platform/memory_map.h"

static const size_t HUGE = SPW__HUGE_PAGE_BYTES;

/* Each move leaves a mapping of its own, of which Linux lets a process have 65,530, and
 * a pool at most one for each huge page that it holds. Above this none are moved. */
static const uint64_t MOVES_BELOW_BYTES = (uint64_t)32 << 30;

static size_t whole_pages(size_t size)
{
    return size & ~(HUGE - 1);
}

static bool take_oldest(spw__region_pool *pool, spw__range *ret_range, bool *ret_moves)
{
    spw__pool_lock(pool);
    bool is_there = spw__range_cache_take_oldest(&pool->large, ret_range);
    *ret_moves = pool->held_bytes < MOVES_BELOW_BYTES;
    spw__pool_unlock(pool);
    return is_there;
}

/* What is behind bytes of a range stays in the cache. */
static void put_surplus(spw__region_pool *pool, spw__range *range, size_t bytes)
{
    const spw__range surplus = {range->start + bytes, range->size - bytes,
                                range->idle_since_ms};
    range->size = bytes;
    spw__pool_lock(pool);
    bool is_kept = spw__range_cache_put(&pool->large, &surplus);
    spw__pool_unlock(pool);
    if (!is_kept)
        range->size += surplus.size;
}

static void unmap(spw__region_pool *pool, char *start, size_t size)
{
    spw__memory_unmap(start, size);
    spw__pool_lock(pool);
    pool->held_bytes -= size;
    spw__pool_unlock(pool);
    spw_budget_release(pool->context->budget, SPW_CHARGE_POOLED, size);
}

/* One page after another: a range may be several mappings, which cannot move together.
 * A page that does not move is given back, and is a fresh one in its new place. */
static void move(char *from, size_t size, char *to)
{
    for (size_t at = 0; at < size; at += HUGE)
        if (spw__memory_move(from + at, HUGE, to + at) != 0)
            spw__memory_unmap(from + at, HUGE);
}

size_t spw__pool_move_into(spw__region_pool *pool, char *mapping, size_t size,
                           spw_charge charge)
{
    size_t moved = 0, used = 0;
    spw__range range;
    bool moves;
    while (used < size && take_oldest(pool, &range, &moves)) {
        size_t wanted = whole_pages(size - used + HUGE - 1);
        if (range.size > wanted)
            put_surplus(pool, &range, wanted);
        used += range.size;
        size_t room = size - moved;
        size_t bytes = moves ? whole_pages(range.size < room ? range.size : room) : 0;
        move(range.start, bytes, mapping + moved);
        spw_budget_move(pool->context->budget, SPW_CHARGE_POOLED, charge, bytes);
        moved += bytes;
        if (range.size > bytes)
            unmap(pool, range.start + bytes, range.size - bytes);
    }
    return moved;
}
