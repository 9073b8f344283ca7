/* The pool: two lists of jobs, and threads that wait for either.
 * Invariant: a job is in a list from add until it is run, or is run by add itself.
 * While there is a thread, somebody is awake whenever a job waits: each add wakes one,
 * and who ends a job looks for the next before it sleeps. */
#include "threads/worker_pool.h"

#include <pthread.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/log.h"
#include "platform/process.h"
#include "platform/thread.h"

/* A job has its buffers elsewhere. LZ4 takes 16 KiB of the stack, zstd not more. */
static const size_t STACK_BYTES = 256 * 1024;
/* Among jobs that wait for each other's turn, every so many is a patient one. */
enum { PATIENT_TURN = 4 };

typedef struct job_list {
    spw__job *first, *last;
} job_list;

struct spw__worker_pool {
    /* Fixed at creation. */
    spw_context *context; /* one reference */
    uint32_t fork_count;
    unsigned threads_wanted;
    /* Guards all below, and is held for a few instructions or to start threads; never
     * in a job. */
    pthread_mutex_t lock;
    pthread_cond_t job_waits; /* or is_stopping */
    job_list waiting[SPW__URGENCY_COUNT];
    unsigned turn; /* urgent ones in a row while a patient one waited */
    unsigned thread_count;
    bool is_stopping;
    bool has_complained;
    bool is_run_by_adder; /* somebody in add runs what waits, for there is no thread */
    pthread_t threads[SPW__WORKERS_MAX];
};

static void lock_pool(spw__worker_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
}

static void unlock_pool(spw__worker_pool *pool)
{
    (void)pthread_mutex_unlock(&pool->lock);
}

static bool is_of_this_process(const spw__worker_pool *pool)
{
    return pool->fork_count == spw__process_fork_count();
}

spw_status spw__worker_pool_create(spw_context *context, unsigned threads,
                                   spw__worker_pool **ret_pool, spw_error *error)
{
    if (threads > SPW__WORKERS_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "at most %d threads work on disks, not %u",
                              SPW__WORKERS_MAX, threads);
    spw__worker_pool *pool =
        spw__allocate(context, sizeof *pool, _Alignof(spw__worker_pool));
    if (pool == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a pool of threads");
    *pool = (spw__worker_pool){.context = spw_context_ref(context),
                               .fork_count = spw__process_fork_count(),
                               .threads_wanted = threads};
    (void)pthread_mutex_init(&pool->lock, NULL); /* these need no memory on Linux */
    (void)pthread_cond_init(&pool->job_waits, NULL);
    *ret_pool = pool;
    return SPW_STATUS_OK;
}

/* Jobs. With the lock held. */

static void append(spw__worker_pool *pool, spw__job *job, spw__urgency urgency)
{
    job_list *list = &pool->waiting[urgency];
    job->next = NULL;
    if (list->first == NULL)
        list->first = job;
    else
        list->last->next = job;
    list->last = job;
}

/* Whose turn it is. */
static job_list *next_list(spw__worker_pool *pool)
{
    job_list *urgent = &pool->waiting[SPW__JOB_URGENT];
    job_list *patient = &pool->waiting[SPW__JOB_PATIENT];
    if (patient->first == NULL)
        return urgent;
    if (urgent->first != NULL && ++pool->turn < PATIENT_TURN)
        return urgent;
    pool->turn = 0;
    return patient;
}

/* Returns: NULL when none waits. */
static spw__job *take(spw__worker_pool *pool)
{
    job_list *list = next_list(pool);
    spw__job *job = list->first;
    if (job != NULL)
        list->first = job->next;
    return job;
}

/* Run one. Returns: false when none waits. */
static bool run_one(spw__worker_pool *pool)
{
    spw__job *job = take(pool);
    if (job == NULL)
        return false;
    unlock_pool(pool);
    job->run(job);
    lock_pool(pool);
    return true;
}

/* Threads. */

static void *work(void *argument)
{
    spw__worker_pool *pool = argument;
    lock_pool(pool);
    for (;;) {
        if (run_one(pool))
            continue;
        if (pool->is_stopping)
            break;
        (void)pthread_cond_wait(&pool->job_waits, &pool->lock);
    }
    unlock_pool(pool);
    return NULL;
}

/* Start those that do not run yet. Where one runs, the others are not tried again; as
 * long as none does, each job tries. With the lock held. Returns: 0, or an errno. */
static int start_threads(spw__worker_pool *pool)
{
    while (pool->thread_count < pool->threads_wanted) {
        int answer = spw__thread_start(&pool->threads[pool->thread_count], STACK_BYTES,
                                       "spillway-disk", work, pool);
        if (answer != 0) {
            if (pool->thread_count > 0)
                pool->threads_wanted = pool->thread_count;
            return answer;
        }
        pool->thread_count++;
    }
    return 0;
}

/* Run what waits on this thread, but for what a job adds meanwhile: whoever began this
 * runs that, so that a job which adds itself again does not nest. With the lock held.
 */
static void run_here(spw__worker_pool *pool)
{
    if (pool->is_run_by_adder)
        return;
    pool->is_run_by_adder = true;
    while (pool->thread_count == 0 && run_one(pool))
        ;
    pool->is_run_by_adder = false;
}

void spw__worker_pool_add(spw__worker_pool *pool, spw__job *job, spw__urgency urgency)
{
    if (!is_of_this_process(pool)) {
        job->run(job); /* the lock may be held by a thread that is not there */
        return;
    }
    lock_pool(pool);
    append(pool, job, urgency);
    int answer = start_threads(pool);
    bool is_news = answer != 0 && !pool->has_complained;
    if (is_news)
        pool->has_complained = true;
    if (pool->thread_count > 0)
        (void)pthread_cond_signal(&pool->job_waits);
    else if (pool->threads_wanted > 0)
        run_here(pool);
    unlock_pool(pool);
    if (is_news) /* without the lock: the log hook is the user's */
        spw__log(pool->context, SPW_LOG_WARNING,
                 "disks are read and written by fewer threads than wanted, or by the "
                 "thread that asks for it: one could not be started (errno %d)",
                 answer);
}

bool spw__worker_pool_run_one(spw__worker_pool *pool)
{
    if (!is_of_this_process(pool))
        return false;
    lock_pool(pool);
    bool was_one = run_one(pool);
    unlock_pool(pool);
    return was_one;
}

void spw__worker_pool_free(spw__worker_pool *pool)
{
    if (pool == NULL)
        return;
    spw_context *context = pool->context;
    /* In a forked child there are no threads to wait for, what waits is the parent's,
     * and the lock may be held by a thread that is not there. */
    if (is_of_this_process(pool)) {
        lock_pool(pool);
        pool->is_stopping = true;
        (void)pthread_cond_broadcast(&pool->job_waits);
        unlock_pool(pool);
        for (unsigned i = 0; i < pool->thread_count; i++)
            (void)pthread_join(pool->threads[i], NULL);
        while (spw__worker_pool_run_one(pool))
            ; /* of a pool without threads */
        (void)pthread_cond_destroy(&pool->job_waits);
        (void)pthread_mutex_destroy(&pool->lock);
    }
    spw__release(context, pool, sizeof *pool, _Alignof(spw__worker_pool));
    spw_context_unref(context);
}
