/* The reactor's threads. All of them wait at one poller, which gives each event to one
 * of them: whichever is free takes what is ready, and what has had its turn goes to the
 * end of the line. */

#include "context/allocate.h"
#include "context/error.h"
#include "platform/process.h"
#include "platform/thread.h"
#include "reactor/reactor_state.h"

static const uint64_t STOP_TAG = UINT64_MAX;
/* A step needs a few KiB, and what it calls in the C library not much more. */
static const size_t STACK_BYTES = 256 * 1024;
/* Two, so that one can send while the other receives; more than four would only wait
 * for memory together. */
static const unsigned LEAST_THREADS = 2, MOST_THREADS = 4;

static unsigned threads_by_cores(void)
{
    unsigned cores = spw__process_core_count();
    if (cores < LEAST_THREADS)
        return LEAST_THREADS;
    return cores < MOST_THREADS ? cores : MOST_THREADS;
}

/* Returns: 0, or a negative errno. */
static int open_descriptors(spw_reactor *reactor)
{
    reactor->poller = spw__poller_open();
    if (reactor->poller < 0)
        return reactor->poller;
    reactor->stop_sign = spw__sign_open();
    if (reactor->stop_sign < 0)
        return reactor->stop_sign;
    int answer = spw__poller_add_sign(reactor->poller, reactor->stop_sign, STOP_TAG);
    if (answer < 0)
        return answer;
    return spw__line_open(reactor);
}

spw_status spw_reactor_create(spw_context *context, unsigned threads,
                              spw_reactor **ret_reactor, spw_error *error)
{
    if (threads > SPW_REACTOR_THREADS_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a reactor has at most %d threads, not %u",
                              SPW_REACTOR_THREADS_MAX, threads);
    spw_reactor *reactor =
        spw__allocate(context, sizeof *reactor, _Alignof(spw_reactor));
    if (reactor == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a reactor");
    *reactor = (spw_reactor){.context = spw_context_ref(context),
                             .fork_count = spw__process_fork_count(),
                             .threads_wanted = threads ? threads : threads_by_cores(),
                             .poller = -1,
                             .stop_sign = -1,
                             .line_sign = -1,
                             .free_slot = SPW__NO_SLOT};
    (void)pthread_mutex_init(&reactor->lock, NULL); /* these need no memory on Linux */
    (void)pthread_cond_init(&reactor->step_ended, NULL);
    int answer = open_descriptors(reactor);
    if (answer < 0) {
        spw_reactor_free(reactor);
        return spw__error_set(error, SPW_STATUS_IO, -answer,
                              "cannot open a descriptor for the reactor (raise this "
                              "process's limit of open files, ulimit -n)");
    }
    *ret_reactor = reactor;
    return SPW_STATUS_OK;
}

void spw_reactor_free(spw_reactor *reactor)
{
    if (reactor == NULL)
        return;
    spw_context *context = reactor->context;
    /* In a forked child there are no threads to wait for, and the lock may be held by
     * one that is not there. */
    if (spw__reactor_is_ours(reactor)) {
        spw__reactor_lock(reactor);
        reactor->is_stopping = true;
        spw__reactor_unlock(reactor);
        if (reactor->thread_count > 0)
            spw__sign_raise(reactor->stop_sign);
        for (unsigned i = 0; i < reactor->thread_count; i++)
            (void)pthread_join(reactor->threads[i], NULL);
        (void)pthread_cond_destroy(&reactor->step_ended);
        (void)pthread_mutex_destroy(&reactor->lock);
    }
    if (reactor->poller >= 0)
        spw__poller_close(reactor->poller);
    if (reactor->stop_sign >= 0)
        spw__poller_close(reactor->stop_sign);
    if (reactor->line_sign >= 0)
        spw__poller_close(reactor->line_sign);
    spw__release(context, reactor->slots, reactor->slot_capacity * sizeof(watch_slot),
                 sizeof(void *));
    spw__release(context, reactor, sizeof *reactor, _Alignof(spw_reactor));
    spw_context_unref(context);
}

/* What follows is called with the lock held, but for the step. */

static bool is_due(const spw__task *task, unsigned ready)
{
    return task->state == SPW__TASK_ARMED && (task->wants & ready) != 0;
}

/* Returns: a task that can run now, or NULL. */
static spw__task *pick(spw__watch *watch, unsigned ready)
{
    if (is_due(&watch->reading, ready))
        return &watch->reading;
    return is_due(&watch->writing, ready) ? &watch->writing : NULL;
}

/* What is to be run because of an event; the watch's other task can be run by another
 * thread meanwhile. Returns: a task, or NULL. */
static spw__task *take(spw_reactor *reactor, const spw__poller_event *event)
{
    if (event->tag == SPW__LINE_TAG)
        return spw__line_take(reactor);
    spw__watch *watch = spw__watch_of(reactor, event->tag);
    if (watch == NULL)
        return NULL;
    spw__task *task = pick(watch, event->ready);
    if (task != NULL)
        task->state = SPW__TASK_RUNNING;
    spw__watch_wait_again(reactor, watch);
    return task;
}

/* Run the step of a task that an event is for. */
static void serve(spw_reactor *reactor, const spw__poller_event *event)
{
    spw__task *task = take(reactor, event);
    if (task == NULL)
        return;
    uint64_t unparks = reactor->unparks;
    spw__reactor_unlock(reactor);
    spw__step_answer answer = task->step(task);
    spw__reactor_lock(reactor);
    if (answer == SPW__STEP_DONE) {
        spw__task_finish(task);
    } else if (answer == SPW__STEP_NOBODY || spw__task_is_recalled(task)) {
        /* An owner that waits would find it running again if there were another event
         * before it gets the lock. */
        task->state = SPW__TASK_HOME;
    } else if (answer == SPW__STEP_NOW) {
        spw__line_return(reactor, task);
    } else if (answer == SPW__STEP_PARK) {
        spw__line_park(reactor, task, unparks);
    } else {
        task->state = SPW__TASK_ARMED;
        task->wants = (unsigned)answer;
        spw__watch_wait_again(reactor, task->watch);
    }
    if (spw__task_is_recalled(task))
        (void)pthread_cond_broadcast(&reactor->step_ended);
}

static void *run(void *argument)
{
    spw_reactor *reactor = argument;
    spw__poller_event event;
    spw__reactor_lock(reactor);
    while (!reactor->is_stopping) {
        int timeout_ms = spw__line_timeout_ms(reactor);
        spw__reactor_unlock(reactor);
        int answer = spw__poller_wait(reactor->poller, timeout_ms, &event);
        spw__reactor_lock(reactor);
        if (answer < 0)
            break;
        if (answer > 0 && !reactor->is_stopping)
            serve(reactor, &event);
        if (spw__line_timeout_ms(reactor) == 0)
            spw__line_unpark(reactor);
    }
    spw__reactor_unlock(reactor);
    return NULL;
}

int spw__reactor_start_threads(spw_reactor *reactor)
{
    while (reactor->thread_count < reactor->threads_wanted) {
        int answer = spw__thread_start(&reactor->threads[reactor->thread_count],
                                       STACK_BYTES, "spillway-io", run, reactor);
        if (answer != 0) {
            reactor->threads_wanted = reactor->thread_count;
            return -answer;
        }
        reactor->thread_count++;
    }
    return 0;
}
