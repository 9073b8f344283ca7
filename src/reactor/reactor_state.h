/* The inside of the reactor, shared by reactor.c (threads and tasks) and completions.c
 * (the way home). */
#ifndef SPW_REACTOR_REACTOR_STATE_H
#define SPW_REACTOR_REACTOR_STATE_H

#include <pthread.h>

#include "reactor/task.h"

/* What an event's tag finds. A slot's generation changes when its watch is forgotten,
 * so that an event which a thread has fetched just before finds nothing. */
typedef struct watch_slot {
    spw__watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
} watch_slot;

/* Invariants: a task that is not HOME belongs to a watch that is in a slot; a watch's
 * descriptor is armed in the poller for what its ARMED tasks want, or for more. The
 * lock is held for a few instructions and the system calls that arm a descriptor or
 * raise a sign, never during a step. */
struct spw_reactor {
    spw_context *context; /* one reference */
    uint32_t fork_count;  /* of the process that made it */
    unsigned threads_wanted;
    int poller, stop_sign;
    pthread_mutex_t lock;
    pthread_cond_t step_ended; /* of a task that is being recalled */
    /* All below: guarded by lock. */
    bool is_stopping;
    bool has_complained; /* that something stays with its owner */
    unsigned thread_count;
    pthread_t threads[SPW_REACTOR_THREADS_MAX];
    watch_slot *slots;
    size_t slot_capacity;
    uint32_t slots_used; /* those that ever had a watch */
    uint32_t free_slot;  /* the first of a list; NO_SLOT: none */
};

/* Invariant: the sign is raised exactly while a task is on the list. */
struct spw_completions {
    spw_reactor *reactor;
    int sign;
    spw__task *first, *last; /* guarded by the reactor's lock */
};

static inline void spw__reactor_lock(spw_reactor *reactor)
{
    (void)pthread_mutex_lock(&reactor->lock); /* cannot fail: it is plain, and ours */
}

static inline void spw__reactor_unlock(spw_reactor *reactor)
{
    (void)pthread_mutex_unlock(&reactor->lock);
}

/* Put a task that is done on its list, or take it off. With the lock held. */
void spw__completions_add(spw__task *task);
void spw__completions_remove(spw__task *task);

#endif
