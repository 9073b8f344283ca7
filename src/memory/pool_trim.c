/* How memory leaves the pool: because it has been idle, or because somebody is short of
 * it. It is first taken out of the pool like any region, so that the system call can be
 * made without the lock. */
#include "spillway/pool.h"

#include "memory/region_pool_state.h"
#include "platform/clock.h"
#include "platform/memory_map.h"
#include "platform/process.h"

/* The limit of resident memory is looked at once in so many bytes: reading it takes as
 * long as copying 100 KiB. */
static const uint64_t WATCH_EVERY_BYTES = (uint64_t)32 << 20;

typedef struct trim_pass {
    uint64_t keep_bytes, older_than_ms, now_ms;
    uint64_t oldest_ms; /* the age of the oldest that is not due yet */
    spw__slab *gone;    /* slabs taken out of the pool, by next */
} trim_pass;

static void uncharge(const spw__region_pool *pool, uint64_t bytes)
{
    spw_budget_release(pool->context->budget, SPW_CHARGE_POOLED, bytes);
}

static bool is_enough(const spw__region_pool *pool, const trim_pass *pass)
{
    return spw__pool_cached(pool) <= pass->keep_bytes;
}

static void note_age(trim_pass *pass, uint64_t age_ms)
{
    if (age_ms > pass->oldest_ms)
        pass->oldest_ms = age_ms;
}

void spw__pool_unmap(spw__region_pool *pool, char *start, size_t size)
{
    spw__memory_unmap(start, size);
    spw__pool_lock(pool);
    pool->held_bytes -= size;
    spw__pool_unlock(pool);
    uncharge(pool, size);
}

/* Entered and left with the lock held. */
static void trim_ranges(spw__region_pool *pool, trim_pass *pass)
{
    while (pool->large.count > 0 && !is_enough(pool, pass)) {
        uint64_t since_ms = spw__range_cache_oldest_ms(&pool->large);
        uint64_t age_ms = pass->now_ms > since_ms ? pass->now_ms - since_ms : 0;
        if (age_ms < pass->older_than_ms) {
            note_age(pass, age_ms);
            return;
        }
        spw__range range;
        (void)spw__range_cache_take_oldest(&pool->large, &range); /* there is one */
        spw__pool_unlock(pool);
        spw__pool_unmap(pool, range.start, range.size);
        spw__pool_lock(pool);
    }
}

/* Give back the memory of a run of items, or, if it is the whole slab, take the slab
 * out of the pool. Entered and left with the lock held. Returns: whether the slab is
 * still there. */
static bool trim_run(spw__region_pool *pool, spw__slab *slab, const spw__slab_run *run,
                     trim_pass *pass)
{
    uint64_t bytes = run->warm * (uint64_t)slab->item_bytes;
    pool->warm_bytes -= bytes;
    pool->held_bytes -= bytes;
    if (run->end - run->first == slab->count) {
        spw__slab_lists_remove(&pool->slabs, slab);
        slab->next = pass->gone;
        pass->gone = slab;
        return false;
    }
    spw__slab_take_run(slab, run);
    spw__slab_lists_sort(&pool->slabs, slab);
    spw__pool_unlock(pool);
    spw__slab_discard_run(slab, run);
    uncharge(pool, bytes);
    spw__pool_lock(pool);
    spw__slab_put_run(slab, run);
    spw__slab_lists_sort(&pool->slabs, slab);
    return true;
}

/* Entered and left with the lock held. A slab cannot go meanwhile: while the lock is
 * let go of, the run that was taken counts as live. */
static void trim_slabs(spw__region_pool *pool, trim_pass *pass)
{
    uint32_t older_than_ms =
        pass->older_than_ms < UINT32_MAX ? (uint32_t)pass->older_than_ms : UINT32_MAX;
    spw__slab *next;
    for (spw__slab *slab = pool->slabs.all; slab != NULL; slab = next) {
        spw__slab_run run = {0, 0, 0};
        uint32_t oldest_ms = 0;
        bool is_there = true;
        next = slab->all_next;
        while (is_there && slab->warm > 0 && !is_enough(pool, pass) &&
               spw__slab_next_run(slab, run.end, (uint32_t)pass->now_ms, older_than_ms,
                                  &oldest_ms, &run)) {
            is_there = trim_run(pool, slab, &run, pass);
            if (is_there)
                next = slab->all_next;
        }
        note_age(pass, oldest_ms);
    }
}

static void free_gone(spw__region_pool *pool, trim_pass *pass)
{
    while (pass->gone != NULL) {
        spw__slab *slab = pass->gone;
        pass->gone = slab->next;
        uint64_t bytes = slab->warm * (uint64_t)slab->item_bytes;
        spw__slab_free(slab, pool->context);
        uncharge(pool, bytes);
    }
}

/* Returns: after how long there is more to do, SPW_TRIM_NEVER when the pool is empty.
 */
static uint64_t trim(spw__region_pool *pool, uint64_t keep_bytes,
                     uint64_t older_than_ms)
{
    trim_pass pass = {
        .keep_bytes = keep_bytes,
        .older_than_ms = older_than_ms,
        .now_ms = spw__clock_ms(),
    };
    spw__pool_lock(pool);
    trim_ranges(pool, &pass);
    trim_slabs(pool, &pass);
    bool is_empty = pool->held_bytes == 0;
    bool has_enough = is_enough(pool, &pass);
    spw__pool_unlock(pool);
    free_gone(pool, &pass);
    if (is_empty)
        return SPW_TRIM_NEVER;
    /* What a buffer leaves in this moment is due after as long as it may be idle. */
    return has_enough ? older_than_ms : older_than_ms - pass.oldest_ms;
}

void spw__pool_give_back(spw__region_pool *pool)
{
    (void)trim(pool, 0, 0);
}

static bool is_over_limit(const spw__region_pool *pool)
{
    uint64_t limit = atomic_load_explicit(&pool->context->resident_limit_bytes,
                                          memory_order_relaxed);
    return limit > 0 && spw__process_resident_bytes() > limit;
}

static void obey_limits(spw__region_pool *pool)
{
    uint64_t most =
        atomic_load_explicit(&pool->context->cached_limit_bytes, memory_order_relaxed);
    if (is_over_limit(pool))
        spw__pool_give_back(pool);
    else if (most > 0)
        (void)trim(pool, most, 0);
}

void spw__pool_watch(spw__region_pool *pool, uint64_t bytes)
{
    uint64_t before =
        atomic_fetch_add_explicit(&pool->moved_bytes, bytes, memory_order_relaxed);
    if (before / WATCH_EVERY_BYTES == (before + bytes) / WATCH_EVERY_BYTES)
        return;
    obey_limits(pool);
}

void spw_context_trim(spw_context *context, uint64_t keep_bytes, uint64_t older_than_ms,
                      uint64_t *ret_next_due_ms)
{
    uint64_t next_due_ms = SPW_TRIM_NEVER;
    spw__region_pool *pool = spw__pool_of(context);
    if (pool != NULL) {
        obey_limits(pool);
        next_due_ms = trim(pool, keep_bytes, older_than_ms);
    }
    if (ret_next_due_ms != NULL)
        *ret_next_due_ms = next_due_ms;
}

void spw_context_limit_resident(spw_context *context, uint64_t resident_bytes,
                                uint64_t cached_bytes)
{
    atomic_store_explicit(&context->resident_limit_bytes, resident_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&context->cached_limit_bytes, cached_bytes,
                          memory_order_relaxed);
}
