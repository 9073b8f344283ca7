/* The reactor's threads. All of them wait at one poller, which gives each event to one
 * of them: whichever is free takes what is ready, and what has had its turn goes to the
 * end of the line. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/log.h"
#include "platform/process.h"
#include "reactor/reactor_state.h"

static const uint32_t NO_SLOT = UINT32_MAX;
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
                             .free_slot = NO_SLOT};
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

static bool is_of_this_process(const spw_reactor *reactor)
{
    return reactor->fork_count == spw__process_fork_count();
}

void spw_reactor_free(spw_reactor *reactor)
{
    if (reactor == NULL)
        return;
    spw_context *context = reactor->context;
    /* In a forked child there are no threads to wait for, and the lock may be held by
     * one that is not there. */
    if (is_of_this_process(reactor)) {
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

/* Slots. With the lock held. */

static uint64_t tag_of(const spw_reactor *reactor, uint32_t slot)
{
    return (uint64_t)reactor->slots[slot].generation << 32 | slot;
}

static spw__watch *watch_of(const spw_reactor *reactor, uint64_t tag)
{
    uint32_t slot = (uint32_t)tag;
    if (slot >= reactor->slots_used || tag != tag_of(reactor, slot))
        return NULL;
    return reactor->slots[slot].watch;
}

static bool take_slot(spw_reactor *reactor, spw__watch *watch)
{
    uint32_t slot = reactor->free_slot;
    if (slot != NO_SLOT) {
        reactor->free_slot = reactor->slots[slot].next_free;
    } else {
        if (spw__grow(reactor->context, &reactor->slots, &reactor->slot_capacity,
                      (size_t)reactor->slots_used + 1, sizeof(watch_slot),
                      NULL) != SPW_STATUS_OK)
            return false;
        slot = reactor->slots_used++;
        reactor->slots[slot].generation = 0;
    }
    reactor->slots[slot].watch = watch;
    watch->slot = slot;
    return true;
}

static void give_up_slot(spw_reactor *reactor, uint32_t slot)
{
    reactor->slots[slot].watch = NULL;
    reactor->slots[slot].generation++;
    reactor->slots[slot].next_free = reactor->free_slot;
    reactor->free_slot = slot;
}

/* Tasks. With the lock held, but for the step. */

static unsigned wanted(const spw__watch *watch)
{
    unsigned ready = 0;
    if (watch->reading.state == SPW__TASK_ARMED)
        ready |= watch->reading.wants;
    if (watch->writing.state == SPW__TASK_ARMED)
        ready |= watch->writing.wants;
    return ready;
}

static int rearm(const spw_reactor *reactor, const spw__watch *watch)
{
    return spw__poller_rearm(reactor->poller, watch->descriptor, wanted(watch),
                             tag_of(reactor, watch->slot));
}

void spw__task_finish(spw__task *task)
{
    task->state = SPW__TASK_DONE;
    if (task->completions != NULL)
        spw__completions_add(task);
    else if (task->sign >= 0)
        spw__sign_raise(task->sign);
}

/* Wait for what is wanted after an event, which has disarmed the descriptor. A task
 * that could not be waited for goes home, where its owner goes on without us. */
static void wait_again(const spw_reactor *reactor, spw__watch *watch)
{
    if (wanted(watch) == 0 || rearm(reactor, watch) >= 0)
        return;
    if (watch->reading.state == SPW__TASK_ARMED)
        spw__task_finish(&watch->reading);
    if (watch->writing.state == SPW__TASK_ARMED)
        spw__task_finish(&watch->writing);
}

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

static void send_line_home(spw_reactor *reactor)
{
    while (reactor->line.first != NULL) {
        spw__task *task = reactor->line.first;
        spw__line_remove(reactor, task);
        spw__task_finish(task);
    }
}

/* What is to be run because of an event; the watch's other task can be run by another
 * thread meanwhile. Returns: a task, or NULL. */
static spw__task *take(spw_reactor *reactor, const spw__poller_event *event)
{
    spw__task *task;
    if (event->tag == SPW__LINE_TAG) {
        if (spw__line_take(reactor, &task) < 0)
            send_line_home(reactor);
        if (task != NULL)
            task->state = SPW__TASK_RUNNING;
        return task;
    }
    spw__watch *watch = watch_of(reactor, event->tag);
    if (watch == NULL)
        return NULL;
    task = pick(watch, event->ready);
    if (task != NULL)
        task->state = SPW__TASK_RUNNING;
    wait_again(reactor, watch);
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
        wait_again(reactor, task->watch);
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

/* Returns: 0, or an errno. */
static int start_thread(pthread_t *ret_thread, spw_reactor *reactor)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int answer = pthread_attr_init(&attributes);
    if (answer != 0)
        return answer;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES); /* else the default */
    /* Signals are for threads that know what to do with them. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    answer = pthread_create(ret_thread, &attributes, run, reactor);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (answer == 0)
        (void)pthread_setname_np(*ret_thread, "spillway-io"); /* for who looks at top */
    return answer;
}

/* Start those that do not run yet. What cannot be started is not tried again.
 * Returns: 0, or a negative errno. */
static int start_threads(spw_reactor *reactor)
{
    while (reactor->thread_count < reactor->threads_wanted) {
        int answer = start_thread(&reactor->threads[reactor->thread_count], reactor);
        if (answer != 0) {
            reactor->threads_wanted = reactor->thread_count;
            return -answer;
        }
        reactor->thread_count++;
    }
    return 0;
}

/* Returns: 0, or a negative errno. */
static int watch_for(spw_reactor *reactor, spw__watch *watch)
{
    if (watch->reactor != NULL)
        return rearm(reactor, watch);
    if (!take_slot(reactor, watch))
        return -ENOMEM;
    int answer = spw__poller_add(reactor->poller, watch->descriptor, wanted(watch),
                                 tag_of(reactor, watch->slot));
    if (answer < 0)
        give_up_slot(reactor, watch->slot);
    else
        watch->reactor = reactor;
    return answer;
}

/* Wait for a descriptor, for a task that is sent away by that (NULL: for nothing yet),
 * if there are threads. With the lock held. Returns: 0, also when there are none, or
 * the negative errno of what could not be had; and in ret_is_done whether it was. */
static int send_away(spw_reactor *reactor, spw__watch *watch, spw__task *task,
                     bool *ret_is_done)
{
    int answer = start_threads(reactor);
    *ret_is_done = false;
    if (reactor->thread_count == 0)
        return answer;
    bool is_now = task != NULL && task->wants == SPW__STEP_NOW;
    if (task != NULL && !is_now)
        task->state = SPW__TASK_ARMED;
    int watched = is_now && watch->reactor != NULL ? 0 : watch_for(reactor, watch);
    if (is_now && watched >= 0)
        watched = spw__line_add(reactor, task);
    *ret_is_done = watched >= 0;
    if (task != NULL && watched < 0)
        task->state = SPW__TASK_HOME;
    return watched < 0 ? watched : answer;
}

/* Without the lock: the log hook is the user's. */
static void complain(const spw_reactor *reactor, int answer)
{
    spw__log(
        reactor->context, SPW_LOG_WARNING,
        "large bodies are moved by fewer threads than wanted, or by the thread of "
        "their loop, which does nothing else meanwhile: what it takes could not be "
        "had (errno %d)",
        -answer);
}

/* As arm; task NULL: prepare for it. Where the task comes back is written into it
 * already. */
static bool arm(spw_reactor *reactor, spw__watch *watch, int descriptor,
                spw__task *task, unsigned wants)
{
    if (!is_of_this_process(reactor))
        return false;
    spw__reactor_lock(reactor);
    watch->descriptor = descriptor;
    if (task != NULL) {
        task->watch = watch;
        task->wants = wants;
    }
    bool is_done;
    int answer = send_away(reactor, watch, task, &is_done);
    bool is_news = answer < 0 && !reactor->has_complained;
    if (is_news)
        reactor->has_complained = true; /* once, for it would be so for every body */
    spw__reactor_unlock(reactor);
    if (is_news)
        complain(reactor, answer);
    return is_done;
}

bool spw__task_arm(spw_completions *completions, spw__watch *watch, int descriptor,
                   spw__task *task, unsigned wants)
{
    task->completions = completions;
    return arm(completions->reactor, watch, descriptor, task, wants);
}

bool spw__task_arm_apart(spw_completions *completions, spw__watch *watch,
                         int descriptor, spw__task *task, unsigned wants, int sign)
{
    task->completions = NULL;
    task->sign = sign;
    return arm(completions->reactor, watch, descriptor, task, wants);
}

bool spw__watch_prepare(spw_completions *completions, spw__watch *watch, int descriptor)
{
    return arm(completions->reactor, watch, descriptor, NULL, 0);
}

bool spw__task_recall(spw__watch *watch, spw__task *task)
{
    spw_reactor *reactor = watch->reactor;
    if (!is_of_this_process(reactor))
        return false;
    spw__reactor_lock(reactor);
    atomic_store_explicit(&task->is_recalled, true, memory_order_relaxed);
    while (task->state == SPW__TASK_RUNNING)
        (void)pthread_cond_wait(&reactor->step_ended, &reactor->lock);
    atomic_store_explicit(&task->is_recalled, false, memory_order_relaxed);
    if (task->state == SPW__TASK_DONE && task->completions != NULL)
        spw__completions_remove(task);
    if (task->state == SPW__TASK_IN_LINE || task->state == SPW__TASK_PARKED)
        spw__line_remove(reactor, task);
    task->state = SPW__TASK_HOME;
    spw__reactor_unlock(reactor);
    return true;
}

void spw__reactor_unpark(spw_completions *completions)
{
    spw_reactor *reactor = completions->reactor;
    if (!is_of_this_process(reactor))
        return;
    spw__reactor_lock(reactor);
    reactor->unparks++;
    spw__line_unpark(reactor);
    spw__reactor_unlock(reactor);
}

void spw__watch_forget(spw__watch *watch)
{
    spw_reactor *reactor = watch->reactor;
    if (reactor == NULL)
        return;
    watch->reactor = NULL;
    if (!is_of_this_process(reactor))
        return;
    spw__reactor_lock(reactor);
    spw__poller_remove(reactor->poller, watch->descriptor);
    give_up_slot(reactor, watch->slot);
    spw__reactor_unlock(reactor);
}
