/* How free pages serve a need that is elsewhere: they move under its addresses. A page
 * that moves is neither cleared nor faulted in again, which is most of what memory
 * costs; a move is a system call of microseconds. */
#include "memory/freed_pages.h"
#include "memory/region_pool_state.h"
#include "platform/memory_map.h"

static const size_t HUGE = SPW__HUGE_PAGE_BYTES;

/* What is to be moved is so much, or finding and moving it costs more than faults. */
static const size_t MOVES_FROM_BYTES = (size_t)64 << 10;
/* Smaller items serve their own size: a mapping would need too many of them. */
static const size_t ITEMS_FROM_BYTES = (size_t)256 << 10;
/* Each move leaves a mapping, of which Linux lets a process have 65,530: none is
 * smaller than this part of what the pool holds. */
static const uint64_t MAPPINGS_MAX = 16384;
/* Nor than this, which faults in as fast as it moves. */
static const size_t LEAST_MAPPING_BYTES = (size_t)16 << 10;

/* The least that is moved. With the lock held. */
static size_t least_bytes(const spw__region_pool *pool)
{
    uint64_t part = pool->held_bytes / MAPPINGS_MAX;
    return part > LEAST_MAPPING_BYTES ? (size_t)part : LEAST_MAPPING_BYTES;
}

/* Where pages are larger than most systems', not every item of a slab is of whole ones.
 * With the lock held. */
static bool is_movable(const spw__region_pool *pool, size_t size)
{
    return size >= MOVES_FROM_BYTES && size >= least_bytes(pool) &&
           size % spw__memory_page_bytes() == 0;
}

/* How pages leave their old addresses. */
typedef struct way_out {
    int (*move)(void *from, size_t size, void *to);
    void (*give_back)(void *from, size_t size); /* if they are not moved */
} way_out;

static const way_out UNMAPPED = {spw__memory_move, spw__memory_unmap};
static const way_out STILL_MAPPED = {spw__memory_move_pages, spw__memory_discard};

/* Mapping by mapping. What is too small, having been cut at an end of an earlier move,
 * or does not move, is given back, and is fresh in its new place: or else mappings
 * would be cut smaller by each move, and grow in number. */
static void move(const spw__region_pool *pool, const way_out *way, size_t least,
                 char *from, size_t size, char *to)
{
    uint64_t moved = 0;
    for (size_t at = 0, part; at < size; at += part) {
        part = spw__memory_mapping_part(from + at, size - at);
        if (part >= least && way->move(from + at, part, to + at) == 0)
            moved += part;
        else
            way->give_back(from + at, part);
    }
    spw__count(pool->context, SPW__FIGURE_POOL_BYTES_MOVED, moved);
}

/* From the cache under a new mapping ----------------------------------------------- */

static size_t whole_pages(size_t size)
{
    return size & ~(HUGE - 1);
}

static bool take_oldest(spw__region_pool *pool, spw__range *ret_range,
                        size_t *ret_least)
{
    spw__pool_lock(pool);
    bool is_there = spw__range_cache_take_oldest(&pool->large, ret_range);
    *ret_least = least_bytes(pool);
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

/* Returns: how many bytes were moved; *used is raised by what left the cache. */
static size_t move_ranges(spw__region_pool *pool, char *mapping, size_t size,
                          spw_charge charge, size_t *used)
{
    size_t moved = 0, least;
    spw__range range;
    while (*used < size && take_oldest(pool, &range, &least)) {
        size_t wanted = size - *used;
        if (range.size > whole_pages(wanted + HUGE - 1))
            put_surplus(pool, &range, whole_pages(wanted + HUGE - 1));
        *used += range.size;
        size_t bytes = range.size < wanted ? range.size : wanted;
        if (bytes < least)
            bytes = 0;
        move(pool, &UNMAPPED, least, range.start, bytes, mapping + moved);
        spw_budget_move(pool->context->budget, SPW_CHARGE_POOLED, charge, bytes);
        moved += bytes;
        if (range.size > bytes)
            spw__pool_unmap(pool, range.start + bytes, range.size - bytes);
    }
    return moved;
}

/* A free item that has memory, of the largest there are, if it is worth moving.
 * Returns: its address, in *ret_slab whose it is; NULL when there is none. */
static char *take_warm_item(spw__region_pool *pool, spw__slab **ret_slab,
                            size_t *ret_least)
{
    char *item = NULL;
    spw__pool_lock(pool);
    *ret_least = least_bytes(pool);
    for (unsigned c = SPW__SLAB_CLASS_COUNT; c-- > 0 && item == NULL;) {
        spw__slab *slab = pool->slabs.classes[c].warm;
        size_t bytes = spw__slab_class_bytes(c);
        bool is_warm;
        if (bytes < ITEMS_FROM_BYTES)
            break;
        if (slab == NULL || !is_movable(pool, bytes))
            continue;
        item = spw__slab_take(slab, &is_warm);
        pool->warm_bytes -= slab->item_bytes;
        if (slab->warm == 0)
            spw__slab_lists_sort(&pool->slabs, slab);
        *ret_slab = slab;
    }
    spw__pool_unlock(pool);
    return item;
}

/* Returns: how many bytes were moved. */
static size_t move_items(spw__region_pool *pool, char *mapping, size_t size,
                         spw_charge charge)
{
    size_t moved = 0, least;
    spw__slab *slab;
    char *item;
    while (moved < size && (item = take_warm_item(pool, &slab, &least)) != NULL) {
        size_t room = size - moved, whole = slab->item_bytes;
        size_t bytes = whole < room ? whole : room;
        move(pool, &STILL_MAPPED, least, item, bytes, mapping + moved);
        spw__pool_put_cold(pool, slab, item, whole - bytes);
        spw_budget_move(pool->context->budget, SPW_CHARGE_POOLED, charge, bytes);
        spw_budget_release(pool->context->budget, SPW_CHARGE_POOLED, whole - bytes);
        moved += bytes;
    }
    return moved;
}

size_t spw__pool_move_into(spw__region_pool *pool, char *mapping, size_t size,
                           spw_charge charge)
{
    size_t used = 0;
    size_t moved = move_ranges(pool, mapping, size, charge, &used);
    if (used < size)
        moved += move_items(pool, mapping + moved, size - used, charge);
    return moved;
}

/* From the cache to an item of a slab ---------------------------------------------- */

char *spw__pool_take_movable(spw__region_pool *pool, size_t size, spw_charge charge)
{
    char *start = NULL;
    spw__pool_lock(pool);
    if (is_movable(pool, size))
        start = spw__range_cache_take_end(&pool->large, size);
    if (start != NULL)
        pool->held_bytes -= size;
    spw__pool_unlock(pool);
    if (start != NULL)
        spw_budget_move(pool->context->budget, SPW_CHARGE_POOLED, charge, size);
    return start;
}

void spw__pool_move(spw__region_pool *pool, char *from, size_t size, char *to)
{
    spw__pool_lock(pool);
    size_t least = least_bytes(pool);
    spw__pool_unlock(pool);
    move(pool, &UNMAPPED, least, from, size, to);
}

/* From live regions to the cache --------------------------------------------------- */

void spw__freed_pages_open(spw_context *context, size_t room,
                           spw__freed_pages *ret_pages)
{
    void *start = NULL;
    size_t page = spw__memory_page_bytes();
    room = (room + page - 1) & ~(page - 1);
    if (room < MOVES_FROM_BYTES || spw__pool_of(context) == NULL ||
        spw__memory_map(room, SPW__PAGES_HUGE, &start) != 0)
        room = 0;
    *ret_pages = (spw__freed_pages){.context = context, .start = start, .room = room};
}

bool spw__freed_pages_take(spw__freed_pages *pages, char *from, size_t size,
                           spw_charge charge)
{
    spw__region_pool *pool = spw__pool_of(pages->context);
    if (pool == NULL || size > pages->room - pages->used)
        return false;
    spw__pool_lock(pool);
    size_t least = least_bytes(pool);
    bool moves = is_movable(pool, size);
    /* The region that they leave is taken for whole, when it goes. */
    if (moves)
        pool->held_bytes += size;
    spw__pool_unlock(pool);
    if (!moves)
        return false;
    move(pool, &STILL_MAPPED, least, from, size, pages->start + pages->used);
    spw_budget_move(pages->context->budget, charge, SPW_CHARGE_POOLED, size);
    pages->used += size;
    return true;
}

void spw__freed_pages_close(spw__freed_pages *pages)
{
    if (pages->used < pages->room)
        spw__memory_unmap(pages->start + pages->used, pages->room - pages->used);
    spw__region_pool *pool = spw__pool_of(pages->context);
    if (pages->used > 0)
        spw__pool_keep(pool, pages->start, pages->used);
    *pages = (spw__freed_pages){.context = pages->context};
}
