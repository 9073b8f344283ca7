/* The line: tasks that wait for nothing but a thread. Its sign is raised for good, and
 * to arm it calls one thread, as a descriptor that has become ready does; so threads
 * wait in one place, and what is in line has no other place among what is ready than
 * those. Behind it, who is parked: it comes back into the line by an unpark, or by the
 * time. */
#include "platform/clock.h"
#include "reactor/reactor_state.h"

/* Who is parked looks again after so long by itself. */
static const uint64_t PARKED_MS = 500;

int spw__line_open(spw_reactor *reactor)
{
    reactor->line_sign = spw__sign_open();
    if (reactor->line_sign < 0)
        return reactor->line_sign;
    spw__sign_raise(reactor->line_sign);
    return spw__poller_add(reactor->poller, reactor->line_sign, 0, SPW__LINE_TAG);
}

/* Returns: 0, or a negative errno. */
static int call_thread(const spw_reactor *reactor)
{
    return spw__poller_rearm(reactor->poller, reactor->line_sign, SPW__READY_READ,
                             SPW__LINE_TAG);
}

int spw__line_add(spw_reactor *reactor, spw__task *task)
{
    int answer = call_thread(reactor);
    if (answer < 0)
        return answer;
    task->state = SPW__TASK_IN_LINE;
    spw__task_list_add(&reactor->line, task);
    return 0;
}

void spw__line_return(spw_reactor *reactor, spw__task *task)
{
    if (spw__line_add(reactor, task) < 0)
        spw__task_finish(task);
}

void spw__line_remove(spw_reactor *reactor, spw__task *task)
{
    spw__task_list_remove(
        task->state == SPW__TASK_PARKED ? &reactor->parked : &reactor->line, task);
}

static void send_home(spw_reactor *reactor)
{
    spw__task *task;
    while ((task = reactor->line.first) != NULL) {
        spw__task_list_remove(&reactor->line, task);
        spw__task_finish(task);
    }
}

spw__task *spw__line_take(spw_reactor *reactor)
{
    spw__task *task = reactor->line.first;
    if (task == NULL)
        return NULL; /* it was recalled */
    spw__task_list_remove(&reactor->line, task);
    task->state = SPW__TASK_RUNNING;
    /* Calls for several, before a thread came, are one event. */
    if (reactor->line.first != NULL && call_thread(reactor) < 0)
        send_home(reactor);
    return task;
}

void spw__line_park(spw_reactor *reactor, spw__task *task, uint64_t unparks)
{
    if (reactor->unparks != unparks) {
        /* What it waits for may have come to pass meanwhile. */
        spw__line_return(reactor, task);
        return;
    }
    if (reactor->parked.first == NULL)
        reactor->parked_until_ms = spw__clock_ms() + PARKED_MS;
    task->state = SPW__TASK_PARKED;
    spw__task_list_add(&reactor->parked, task);
}

void spw__line_unpark(spw_reactor *reactor)
{
    spw__task *task;
    while ((task = reactor->parked.first) != NULL) {
        spw__task_list_remove(&reactor->parked, task);
        spw__line_return(reactor, task);
    }
}

int spw__line_timeout_ms(const spw_reactor *reactor)
{
    if (reactor->parked.first == NULL)
        return -1;
    uint64_t now = spw__clock_ms();
    return now >= reactor->parked_until_ms ? 0 : (int)(reactor->parked_until_ms - now);
}
