/* The pool: what a buffer leaves is kept for the next one.
 * A region's charge moves between the buffer's account and SPW_CHARGE_POOLED, so that a
 * recycled one is never refused, and it moves before the region can be taken by another
 * thread. Nothing is unmapped here but what does not fit into the cache: pool_trim.c,
 * pool_move.c. */
#include "memory/region_pool.h"

#include <errno.h>
#include <stdint.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/region_pool_state.h"
#include "platform/clock.h"
#include "platform/memory_advice.h"
#include "platform/memory_map.h"
#include "platform/process.h"
#include "spillway/buffer.h"

/* Lifecycle ------------------------------------------------------------------------ */

static bool is_inherited(const spw__region_pool *pool)
{
    return pool->fork_count != spw__process_fork_count();
}

static spw__region_pool *any_pool_of(const spw_context *context)
{
    /* The part is the pool's first member. */
    return (spw__region_pool *)atomic_load_explicit(&context->region_pool,
                                                    memory_order_acquire);
}

spw__region_pool *spw__pool_of(const spw_context *context)
{
    spw__region_pool *pool = any_pool_of(context);
    return pool != NULL && !is_inherited(pool) ? pool : NULL;
}

static void give_back(void *user)
{
    spw__region_pool *pool = user;
    if (!is_inherited(pool))
        spw__pool_give_back(pool);
}

/* The last reference to the context is gone, so no region lives and no other thread
 * knows the pool. What a child inherited stays as it is, in the budget's list too: its
 * parent's threads may have been in the middle of a change. */
static void free_pool(spw__context_part *part)
{
    spw__region_pool *pool = (spw__region_pool *)part;
    spw_context *context = pool->context;
    if (is_inherited(pool))
        return;
    spw__budget_remove_reclaimer(context->budget, &pool->reclaimer);
    spw__pool_give_back(pool);
    (void)pthread_mutex_destroy(&pool->lock);
    spw__release(context, pool, sizeof *pool, _Alignof(spw__region_pool));
}

static spw_status make_pool(spw_context *context, spw__region_pool **ret_pool,
                            spw_error *error)
{
    spw__region_pool *pool =
        spw__allocate(context, sizeof *pool, _Alignof(spw__region_pool));
    if (pool == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for the pool of regions");
    *pool = (spw__region_pool){
        .part = {free_pool},
        .context = context,
        .reclaimer = {give_back, pool, NULL},
        .fork_count = spw__process_fork_count(),
    };
    (void)pthread_mutex_init(&pool->lock, NULL);
    spw__budget_add_reclaimer(context->budget, &pool->reclaimer);
    spw__context_part *made_by_another = NULL;
    if (!atomic_compare_exchange_strong(&context->region_pool, &made_by_another,
                                        &pool->part)) {
        free_pool(&pool->part);
        pool = (spw__region_pool *)made_by_another;
    }
    *ret_pool = pool;
    return SPW_STATUS_OK;
}

/* The pool that serves size bytes, made when it is first needed.
 * Returns: NULL when the allocator serves them. */
static spw_status pool_for(spw_context *context, size_t size,
                           spw__region_pool **ret_pool, spw_error *error)
{
    *ret_pool = NULL;
    if (!context->uses_pool || size < SPW__SLAB_FROM_BYTES)
        return SPW_STATUS_OK;
    if (any_pool_of(context) == NULL)
        return make_pool(context, ret_pool, error);
    *ret_pool = spw__pool_of(context);
    return SPW_STATUS_OK;
}

/* Acquiring ------------------------------------------------------------------------ */

static spw_status no_memory(size_t size, int os_errno, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_NO_MEMORY, os_errno,
                          "no memory for a buffer of %zu bytes", size);
}

static spw_status allocate(spw_context *context, size_t size, spw_charge charge,
                           spw__region *ret_region, spw_error *error)
{
    spw_status status = spw_budget_charge(context->budget, charge, size, error);
    if (status != SPW_STATUS_OK)
        return status;
    /* An empty buffer has an address too: exporters may not hand out NULL. */
    size_t capacity = size > 0 ? size : 1;
    void *data = spw__allocate(context, capacity, SPW_BUFFER_ALIGNMENT);
    if (data == NULL) {
        spw_budget_release(context->budget, charge, size);
        return no_memory(size, 0, error);
    }
    spw__memory_advise_huge(data, size);
    *ret_region = (spw__region){
        .data = data,
        .size = size,
        .capacity = capacity,
        .source = SPW__REGION_ALLOCATED,
    };
    return SPW_STATUS_OK;
}

/* A region of that size without an address. */
static spw__region plan(size_t size)
{
    spw__region region = {.size = size, .source = SPW__REGION_MAPPED};
    size_t page = spw__memory_page_bytes();
    if (size < SPW__SLAB_BELOW_BYTES) {
        region.source = SPW__REGION_SLAB;
        region.capacity = spw__slab_class_bytes(spw__slab_class_of(size));
    } else {
        region.capacity = (size + page - 1) & ~(page - 1);
    }
    return region;
}

/* With the lock held. */
static void take_item(spw__region_pool *pool, spw__slab *slab, spw__region *region)
{
    bool is_warm;
    region->slab = slab;
    region->data = spw__slab_take(slab, &is_warm);
    if (is_warm)
        pool->warm_bytes -= region->capacity;
    else
        pool->held_bytes += region->capacity;
    /* Only now and then does a slab change lists: when an item was its last. */
    if (slab->warm == 0)
        spw__slab_lists_sort(&pool->slabs, slab);
}

/* Find a region among what is cached. */
static bool recycle(spw__region_pool *pool, spw__region *region)
{
    spw__pool_lock(pool);
    if (region->source == SPW__REGION_SLAB) {
        spw__slab *slab = pool->slabs.classes[spw__slab_class_of(region->size)].warm;
        if (slab != NULL)
            take_item(pool, slab, region);
    } else {
        spw__range range;
        if (spw__range_cache_take(&pool->large, region->size, &range)) {
            region->data = range.start;
            region->capacity = range.size;
        }
    }
    spw__pool_unlock(pool);
    return region->data != NULL;
}

/* Map size bytes; if that fails, once again without all that is cached.
 * Returns: 0, or a negative errno. */
static int map_at_any_price(spw__region_pool *pool, size_t size, spw__page_kind pages,
                            void **ret_data)
{
    int answer = spw__memory_map(size, pages, ret_data);
    if (answer != 0) {
        spw__pool_give_back(pool);
        answer = spw__memory_map(size, pages, ret_data);
    }
    return answer;
}

static int make_slab(spw__region_pool *pool, unsigned size_class, spw__slab **ret_slab)
{
    void *memory;
    int answer = map_at_any_price(pool, SPW__SLAB_BYTES, SPW__PAGES_SMALL, &memory);
    if (answer != 0)
        return answer;
    *ret_slab = spw__slab_create(pool->context, size_class, memory);
    if (*ret_slab != NULL)
        return 0;
    spw__memory_unmap(memory, SPW__SLAB_BYTES);
    return -ENOMEM;
}

/* Take a cold item, of a new slab if need be. Returns: 0, or a negative errno. */
static int take_cold(spw__region_pool *pool, spw__region *region)
{
    unsigned size_class = spw__slab_class_of(region->size);
    spw__pool_lock(pool);
    spw__slab *slab = pool->slabs.classes[size_class].cold;
    if (slab != NULL)
        take_item(pool, slab, region);
    spw__pool_unlock(pool);
    if (slab != NULL)
        return 0;
    int answer = make_slab(pool, size_class, &slab);
    if (answer != 0)
        return answer;
    spw__pool_lock(pool);
    spw__slab_lists_add(&pool->slabs, slab);
    take_item(pool, slab, region);
    spw__pool_unlock(pool);
    return 0;
}

/* Map a region, and have under it what pages are cached, so that the pool never holds
 * more than what lived at one time. All of it is charged when it is there.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED. */
static spw_status map_large(spw__region_pool *pool, spw_charge charge,
                            spw__region *region, spw_error *error)
{
    spw_budget *budget = pool->context->budget;
    int answer =
        map_at_any_price(pool, region->capacity, SPW__PAGES_HUGE, &region->data);
    if (answer != 0)
        return no_memory(region->size, -answer, error);
    size_t moved = spw__pool_move_into(pool, region->data, region->capacity, charge);
    size_t fresh = region->capacity - moved;
    spw_status status = spw_budget_charge(budget, charge, fresh, error);
    if (status != SPW_STATUS_OK) {
        spw__memory_unmap(region->data, region->capacity);
        spw_budget_release(budget, charge, moved);
    }
    spw__pool_lock(pool);
    if (status == SPW_STATUS_OK)
        pool->held_bytes += fresh;
    else
        pool->held_bytes -= moved;
    spw__pool_unlock(pool);
    return status;
}

/* Take an item that has no memory; if some is cached, it moves there.
 * Errors: as map_large. */
static spw_status add_item(spw__region_pool *pool, spw_charge charge,
                           spw__region *region, spw_error *error)
{
    spw_budget *budget = pool->context->budget;
    spw_status status = SPW_STATUS_OK;
    char *movable = spw__pool_take_movable(pool, region->capacity, charge);
    if (movable == NULL)
        status = spw_budget_charge(budget, charge, region->capacity, error);
    if (status != SPW_STATUS_OK)
        return status;
    int answer = take_cold(pool, region);
    if (answer == 0) {
        if (movable != NULL)
            spw__pool_move(pool, movable, region->capacity, region->data);
        return SPW_STATUS_OK;
    }
    if (movable != NULL)
        spw__memory_unmap(movable, region->capacity);
    spw_budget_release(budget, charge, region->capacity);
    return no_memory(region->size, -answer, error);
}

/* Find memory for a region that nothing cached serves as it lies. */
static spw_status add(spw__region_pool *pool, spw_charge charge, spw__region *region,
                      spw_error *error)
{
    spw_status status = region->source == SPW__REGION_MAPPED
                            ? map_large(pool, charge, region, error)
                            : add_item(pool, charge, region, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_budget_move(pool->context->budget, charge, SPW_CHARGE_POOLED,
                    region->capacity - region->size);
    spw__pool_watch(pool, region->capacity);
    return SPW_STATUS_OK;
}

spw_status spw__region_acquire(spw_context *context, size_t size, spw_charge charge,
                               spw__region *ret_region, spw_error *error)
{
    if (size > SIZE_MAX / 2)
        return no_memory(size, 0, error);
    spw__region_pool *pool;
    spw_status status = pool_for(context, size, &pool, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (pool == NULL)
        return allocate(context, size, charge, ret_region, error);
    spw__region region = plan(size);
    if (recycle(pool, &region)) {
        spw_budget_move(context->budget, SPW_CHARGE_POOLED, charge, size);
        spw__count(context, SPW__FIGURE_REGIONS_RECYCLED, 1);
    } else {
        status = add(pool, charge, &region, error);
        if (status != SPW_STATUS_OK)
            return status;
        spw__count(context, SPW__FIGURE_REGIONS_ADDED, 1);
    }
    *ret_region = region;
    return SPW_STATUS_OK;
}

/* Releasing ------------------------------------------------------------------------ */

/* A child lets go of what it has a copy of. Items of slabs stay mapped in it. */
static void release_inherited(spw_context *context, const spw__region *region,
                              size_t discarded, spw_charge charge)
{
    if (region->source == SPW__REGION_MAPPED)
        spw__memory_unmap(region->data, region->capacity);
    spw_budget_release(context->budget, charge, region->size - discarded);
    spw_budget_release(context->budget, SPW_CHARGE_POOLED,
                       region->capacity - region->size);
}

void spw__pool_keep(spw__region_pool *pool, char *start, size_t size)
{
    const spw__range range = {start, size, spw__clock_ms()};
    spw__pool_lock(pool);
    bool is_kept = spw__range_cache_put(&pool->large, &range);
    spw__pool_unlock(pool);
    if (is_kept)
        spw__pool_watch(pool, size);
    else
        spw__pool_unmap(pool, start, size);
}

static void keep_item(spw__region_pool *pool, const spw__region *region)
{
    uint64_t now_ms = spw__clock_ms();
    spw__pool_lock(pool);
    spw__slab_put(region->slab, region->data, (uint32_t)now_ms);
    pool->warm_bytes += region->capacity;
    if (region->slab->warm == 1)
        spw__slab_lists_sort(&pool->slabs, region->slab);
    spw__pool_unlock(pool);
    spw__pool_watch(pool, region->capacity);
}

void spw__region_release(spw_context *context, const spw__region *region,
                         spw_charge charge)
{
    if (region->source == SPW__REGION_ALLOCATED) {
        spw__release(context, region->data, region->capacity, SPW_BUFFER_ALIGNMENT);
        spw_budget_release(context->budget, charge, region->size);
        return;
    }
    spw__region_pool *pool = spw__pool_of(context);
    if (pool == NULL) {
        release_inherited(context, region, 0, charge);
        return;
    }
    spw_budget_move(context->budget, charge, SPW_CHARGE_POOLED, region->size);
    if (region->source == SPW__REGION_SLAB)
        keep_item(pool, region);
    else
        spw__pool_keep(pool, region->data, region->capacity);
}

char *spw__region_find_pages(const spw_context *context, const spw__region *region,
                             size_t from, size_t to, size_t *ret_size)
{
    size_t page = spw__memory_page_bytes();
    if (region->source == SPW__REGION_ALLOCATED || spw__pool_of(context) == NULL ||
        from >= to || to > region->size)
        return NULL;
    uintptr_t start = ((uintptr_t)region->data + from + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)region->data + to) & ~(page - 1);
    if (start >= end)
        return NULL;
    *ret_size = end - start;
    return (char *)region->data + (start - (uintptr_t)region->data);
}

void spw__pool_put_cold(spw__region_pool *pool, spw__slab *slab, const char *item,
                        size_t gone)
{
    uint32_t i = (uint32_t)((size_t)(item - slab->memory) / slab->item_bytes);
    const spw__slab_run run = {i, i + 1, 0};
    spw__slab_discard_run(slab, &run);
    spw__pool_lock(pool);
    pool->held_bytes -= gone;
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

void spw__region_release_part(spw_context *context, const spw__region *region,
                              size_t discarded, spw_charge charge)
{
    spw__region_pool *pool = spw__pool_of(context);
    if (discarded == 0) {
        spw__region_release(context, region, charge);
        return;
    }
    if (pool == NULL) {
        release_inherited(context, region, discarded, charge);
        return;
    }
    if (region->source == SPW__REGION_SLAB) {
        spw__pool_put_cold(pool, region->slab, region->data, region->capacity);
    } else {
        spw__memory_unmap(region->data, region->capacity);
        spw__pool_lock(pool);
        pool->held_bytes -= region->capacity;
        spw__pool_unlock(pool);
    }
    spw_budget_release(context->budget, charge, region->size - discarded);
    spw_budget_release(context->budget, SPW_CHARGE_POOLED,
                       region->capacity - region->size);
}
