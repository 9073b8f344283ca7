/* Threads for work that blocks: disk I/O, and what is computed beside it. Jobs of one
 * class begin in the order in which they were added; URGENT ones, for which somebody
 * waits, go first, but for every fourth turn, so that the others are never starved. */
#ifndef SPW_THREADS_WORKER_POOL_H
#define SPW_THREADS_WORKER_POOL_H

#include <stdbool.h>

#include "spillway/context.h"

typedef struct spw__worker_pool spw__worker_pool;

typedef enum spw__urgency {
    SPW__JOB_URGENT = 0,
    SPW__JOB_PATIENT = 1,
    SPW__URGENCY_COUNT = 2
} spw__urgency;

/* Stands inside what it works for. The pool does not touch it once run is called, which
 * may free it or add it again. */
typedef struct spw__job {
    struct spw__job *next;
    void (*run)(struct spw__job *job);
} spw__job;

enum { SPW__WORKERS_MAX = 64 };

/* Make a pool of threads, which start with the first job, all signals blocked in them.
 * 0 threads: jobs wait until spw__worker_pool_run_one is called.
 * Returns: a pool to be freed by spw__worker_pool_free. Thread: any. Errors: NO_MEMORY,
 * INVALID_ARGUMENT (too many threads). */
spw_status spw__worker_pool_create(spw_context *context, unsigned threads,
                                   spw__worker_pool **ret_pool, spw_error *error);
/* Run what still waits, then end the threads.
 * Takes: pool (NULL allowed). Thread: none of its own. */
void spw__worker_pool_free(spw__worker_pool *pool);

/* Have a job run. If no thread can be started and none is there, or in a forked child,
 * which has none of its parent's, it runs right here.
 * Borrows: job, until its run is called. Thread: any, also a job's. */
void spw__worker_pool_add(spw__worker_pool *pool, spw__job *job, spw__urgency urgency);
/* Run the job whose turn it is on this thread. Returns: false when none waits. Thread:
 * any, with no lock held that a job takes. */
bool spw__worker_pool_run_one(spw__worker_pool *pool);

#endif
