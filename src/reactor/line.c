/* The line: tasks that wait for nothing but a thread. Its sign is raised for good, and
 * to arm it calls one thread, as a descriptor that has become ready does; so threads
 * wait in one place, and what is in line has no other place among what is ready than
 * those. */
#include "reactor/reactor_state.h"

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
    task->next = NULL;
    task->previous = reactor->line_last;
    if (task->previous != NULL)
        task->previous->next = task;
    else
        reactor->line_first = task;
    reactor->line_last = task;
    return 0;
}

void spw__line_remove(spw_reactor *reactor, spw__task *task)
{
    if (task->previous != NULL)
        task->previous->next = task->next;
    else
        reactor->line_first = task->next;
    if (task->next != NULL)
        task->next->previous = task->previous;
    else
        reactor->line_last = task->previous;
}

int spw__line_take(spw_reactor *reactor, spw__task **ret_task)
{
    spw__task *task = reactor->line_first;
    *ret_task = task;
    if (task == NULL)
        return 0; /* it was recalled */
    spw__line_remove(reactor, task);
    /* Calls for several, before a thread came, are one event. */
    return reactor->line_first != NULL ? call_thread(reactor) : 0;
}
