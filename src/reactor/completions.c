/* The way home. Completions: tasks that are done, in that order, until their owner
 * takes them. */
#include "context/allocate.h"
#include "context/error.h"
#include "reactor/reactor_state.h"

spw_status spw_completions_create(spw_reactor *reactor,
                                  spw_completions **ret_completions, spw_error *error)
{
    int sign = spw__sign_open();
    if (sign < 0)
        return spw__error_set(error, SPW_STATUS_IO, -sign,
                              "cannot open a descriptor for completions (raise this "
                              "process's limit of open files, ulimit -n)");
    spw_completions *completions =
        spw__allocate(reactor->context, sizeof *completions, _Alignof(spw_completions));
    if (completions == NULL) {
        spw__poller_close(sign);
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for completions");
    }
    *completions = (spw_completions){.reactor = reactor, .sign = sign};
    *ret_completions = completions;
    return SPW_STATUS_OK;
}

void spw_completions_free(spw_completions *completions)
{
    if (completions == NULL)
        return;
    spw__poller_close(completions->sign);
    spw__release(completions->reactor->context, completions, sizeof *completions,
                 _Alignof(spw_completions));
}

int spw_completions_descriptor(const spw_completions *completions)
{
    return completions->sign;
}

void spw__completions_add(spw__task *task)
{
    spw_completions *completions = task->completions;
    spw__task_list_add(&completions->tasks, task);
    if (completions->tasks.first == task)
        spw__sign_raise(completions->sign);
}

void spw__completions_remove(spw__task *task)
{
    spw_completions *completions = task->completions;
    spw__task_list_remove(&completions->tasks, task);
    if (completions->tasks.first == NULL)
        spw__sign_clear(completions->sign);
}

void spw__task_finish(spw__task *task)
{
    task->state = SPW__TASK_DONE;
    if (task->completions != NULL)
        spw__completions_add(task);
    else if (task->sign >= 0)
        spw__sign_raise(task->sign);
}

spw__task *spw__completions_next(spw_completions *completions)
{
    spw_reactor *reactor = completions->reactor;
    spw__reactor_lock(reactor);
    spw__task *task = completions->tasks.first;
    if (task != NULL) {
        spw__completions_remove(task);
        task->state = SPW__TASK_HOME;
    }
    spw__reactor_unlock(reactor);
    return task;
}
