/* The pool's inside, for region_pool.c and pool_trim.c. */
#ifndef SPW_MEMORY_REGION_POOL_STATE_H
#define SPW_MEMORY_REGION_POOL_STATE_H

#include <pthread.h>

#include "context/figures.h"
#include "context/reclaim.h"
#include "memory/range_cache.h"
#include "memory/slab_lists.h"

/* Invariants: cached = large.bytes + warm_bytes <= held; SPW_CHARGE_POOLED is cached
 * and what the live regions round up to. No system call is made with the lock held. */
typedef struct spw__region_pool {
    spw__context_part part;       /* first: the context knows the pool by it */
    spw_context *context;         /* owns the pool */
    spw__reclaimer reclaimer;     /* known to the budget while the pool lives */
    uint32_t fork_count;          /* of the process that made the pool */
    _Atomic uint64_t moved_bytes; /* through the pool, ever; see spw__pool_watch */
    pthread_mutex_t lock;
    /* All below: guarded by lock. */
    spw__range_cache large;
    spw__slab_lists slabs;
    uint64_t warm_bytes; /* free items of slabs that have memory */
    uint64_t held_bytes; /* cached, and the capacity of live regions */
} spw__region_pool;

static inline void spw__pool_lock(spw__region_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock); /* cannot fail: it is plain, and ours */
}

static inline void spw__pool_unlock(spw__region_pool *pool)
{
    (void)pthread_mutex_unlock(&pool->lock);
}

/* With the lock held. */
static inline uint64_t spw__pool_cached(const spw__region_pool *pool)
{
    return pool->large.bytes + pool->warm_bytes;
}

/* The context's pool; NULL when there is none yet, or it belongs to a parent. */
spw__region_pool *spw__pool_of(const spw_context *context);

/* Give back all that is cached, without the lock held. */
void spw__pool_give_back(spw__region_pool *pool);
/* Move what is cached and is as large as a new mapping, or all there is, to the mapping
 * from its begin on: first ranges, the oldest first, then free items of slabs, the
 * largest first. What cannot be moved is given back all the same. Returns: how many
 * bytes of the mapping are charged under charge by that, whole pages. Without the lock
 * held. */
size_t spw__pool_move_into(spw__region_pool *pool, char *mapping, size_t size,
                           spw_charge charge);
/* Take so many bytes, whole pages, out of the cache, for spw__pool_move; they are
 * charged under charge, and counted as held no more. Returns: NULL when they are too
 * few to be moved, or no range has as many. Without the lock held. */
char *spw__pool_take_movable(spw__region_pool *pool, size_t size, spw_charge charge);
/* Move them to where whole pages are mapped. Without the lock held. */
void spw__pool_move(spw__region_pool *pool, char *from, size_t size, char *to);
/* An item that was taken comes back without memory, and gone bytes of it are counted as
 * held no more. Without the lock held. */
void spw__pool_put_cold(spw__region_pool *pool, spw__slab *slab, const char *item,
                        size_t gone);
/* What is charged as pooled and counted as held goes back to the system. Without the
 * lock held. */
void spw__pool_unmap(spw__region_pool *pool, char *start, size_t size);
/* A range that is charged as pooled and counted as held is cached, or given back where
 * the cache has no room. Without the lock held. */
void spw__pool_keep(spw__region_pool *pool, char *start, size_t size);
/* bytes were added to what the process has in use, or put into the cache: if the
 * process is over the limit of its resident memory, give back. Without the lock held.
 */
void spw__pool_watch(spw__region_pool *pool, uint64_t bytes);

#endif
