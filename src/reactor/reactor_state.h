/* The inside of the reactor, shared by its files: task.c (what an owner does with its
 * tasks), watch.c (descriptors that the poller knows), reactor.c (threads, and what
 * they run), line.c (tasks that wait for nothing but a thread) and completions.c (the
 * way home). */
#ifndef SPW_REACTOR_REACTOR_STATE_H
#define SPW_REACTOR_REACTOR_STATE_H

#include <pthread.h>

#include "platform/process.h"
#include "reactor/task.h"

#define SPW__NO_SLOT UINT32_MAX

/* What an event's tag finds. A slot's generation changes when its watch is forgotten,
 * so that an event which a thread has fetched just before finds nothing. */
typedef struct watch_slot {
    spw__watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
} watch_slot;

/* Linked through next and previous. */
typedef struct spw__task_list {
    spw__task *first, *last;
} spw__task_list;

/* Invariants: a task that is not HOME belongs to a watch that is in a slot; a watch's
 * descriptor is armed in the poller for what its ARMED tasks want, or for more; tasks
 * that are IN_LINE are on the line, and while there is one, line_sign is armed. The
 * lock is held for a few instructions and the system calls that arm a descriptor or
 * raise a sign, never during a step. */
struct spw_reactor {
    spw_context *context; /* one reference */
    uint32_t fork_count;  /* of the process that made it */
    unsigned threads_wanted;
    int poller, stop_sign;
    int line_sign; /* raised for good: to arm it is to call one thread */
    pthread_mutex_t lock;
    pthread_cond_t step_ended; /* of a task that is being recalled */
    /* All below: guarded by lock. */
    bool is_stopping;
    bool has_complained; /* that something stays with its owner */
    spw__task_list line, parked;
    uint64_t parked_until_ms; /* by the clock; while something is parked */
    uint64_t unparks;         /* that there have been */
    unsigned thread_count;
    pthread_t threads[SPW_REACTOR_THREADS_MAX];
    watch_slot *slots;
    size_t slot_capacity;
    uint32_t slots_used; /* those that ever had a watch */
    uint32_t free_slot;  /* the first of a list; SPW__NO_SLOT: none */
};

/* Invariant: the sign is raised exactly while a task is on the list. */
struct spw_completions {
    spw_reactor *reactor;
    int sign;
    spw__task_list tasks; /* guarded by the reactor's lock */
};

/* Not a parent process's. */
static inline bool spw__reactor_is_ours(const spw_reactor *reactor)
{
    return reactor->fork_count == spw__process_fork_count();
}

static inline void spw__reactor_lock(spw_reactor *reactor)
{
    (void)pthread_mutex_lock(&reactor->lock); /* cannot fail: it is plain, and ours */
}

static inline void spw__reactor_unlock(spw_reactor *reactor)
{
    (void)pthread_mutex_unlock(&reactor->lock);
}

static inline void spw__task_list_add(spw__task_list *list, spw__task *task)
{
    task->next = NULL;
    task->previous = list->last;
    if (list->last != NULL)
        list->last->next = task;
    else
        list->first = task;
    list->last = task;
}

static inline void spw__task_list_remove(spw__task_list *list, spw__task *task)
{
    if (task->previous != NULL)
        task->previous->next = task->next;
    else
        list->first = task->next;
    if (task->next != NULL)
        task->next->previous = task->previous;
    else
        list->last = task->previous;
}

/* All below: with the lock held. */
/* Start the threads that do not run yet. What cannot be started is not tried again.
 * Returns: 0, or a negative errno. */
int spw__reactor_start_threads(spw_reactor *reactor);

/* The watch that an event's tag is of; NULL: it has been forgotten. */
spw__watch *spw__watch_of(const spw_reactor *reactor, uint64_t tag);
/* Wait for what the ARMED tasks of a watch want, which may be nothing; the poller knows
 * it from then on. Returns: 0, or a negative errno. */
int spw__watch_want(spw_reactor *reactor, spw__watch *watch);
/* The same after an event, which has disarmed the descriptor. A task that could not be
 * waited for goes home, where its owner goes on without us. */
void spw__watch_wait_again(spw_reactor *reactor, spw__watch *watch);

/* A task is done: it comes back in the way that it is armed. */
void spw__task_finish(spw__task *task);
/* Put a task that is done among its completions, or take it off. */
void spw__completions_add(spw__task *task);
void spw__completions_remove(spw__task *task);

/* What an event of the line is tagged with. */
#define SPW__LINE_TAG (UINT64_MAX - 1)

/* Of a reactor that has its poller. Returns: 0, or a negative errno. */
int spw__line_open(spw_reactor *reactor);
/* Put a task at the end of the line, and call a thread for it. Returns: 0, or a
 * negative errno, and then it is as before. */
int spw__line_add(spw_reactor *reactor, spw__task *task);
/* The same for one that is away already: it comes home where no thread can be called.
 */
void spw__line_return(spw_reactor *reactor, spw__task *task);
/* Take a task off that is in line, or parked. */
void spw__line_remove(spw_reactor *reactor, spw__task *task);
/* What a thread that was called is to run, off the line; NULL: nothing any more. Where
 * no thread can be called for those behind it, they come home. */
spw__task *spw__line_take(spw_reactor *reactor);
/* Let a task wait that has been told so when unparks were as many. */
void spw__line_park(spw_reactor *reactor, spw__task *task, uint64_t unparks);
/* Put all in line that are parked; those for which no thread can be called come home.
 */
void spw__line_unpark(spw_reactor *reactor);
/* How long a thread may wait until some are due: 0, they are; -1, for ever. */
int spw__line_timeout_ms(const spw_reactor *reactor);

#endif
