/* Tasks as their owner has them: sent away, and called home. */
#include "context/log.h"
#include "reactor/reactor_state.h"

/* Wait for a descriptor, for a task that is sent away by that (NULL: for nothing yet),
 * if there are threads. With the lock held. Returns: 0, also when there are none, or
 * the negative errno of what could not be had; and in ret_is_done whether it was. */
static int send_away(spw_reactor *reactor, spw__watch *watch, spw__task *task,
                     bool *ret_is_done)
{
    int answer = spw__reactor_start_threads(reactor);
    *ret_is_done = false;
    if (reactor->thread_count == 0)
        return answer;
    bool is_now = task != NULL && task->wants == SPW__STEP_NOW;
    if (task != NULL && !is_now)
        task->state = SPW__TASK_ARMED;
    int watched =
        is_now && watch->reactor != NULL ? 0 : spw__watch_want(reactor, watch);
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
    if (!spw__reactor_is_ours(reactor))
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
    if (!spw__reactor_is_ours(reactor))
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
    if (!spw__reactor_is_ours(reactor))
        return;
    spw__reactor_lock(reactor);
    reactor->unparks++;
    spw__line_unpark(reactor);
    spw__reactor_unlock(reactor);
}
