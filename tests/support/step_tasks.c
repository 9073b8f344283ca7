#include "step_tasks.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "testing.h"

/* Far more than any step takes: reached only when a wake-up is lost. */
enum { LOST_AFTER_MS = 20000 };

static spw__step_answer read_step(spw__task *task)
{
    step_task *self = task->subject;
    char byte;
    self->steps++;
    sem_post(&self->begun);
    while (self->waits && !spw__task_is_recalled(task))
        if (sem_trywait(&self->let_go) == 0)
            break;
    if (read(self->near, &byte, 1) == 1)
        self->reads_left--;
    return self->reads_left > 0 ? SPW__STEP_READ : SPW__STEP_DONE;
}

static spw__step_answer write_step(spw__task *task)
{
    step_task *self = task->subject;
    self->steps++;
    sem_post(&self->begun);
    while (self->waits && !spw__task_is_recalled(task))
        if (sem_trywait(&self->let_go) == 0)
            break;
    return SPW__STEP_DONE;
}

void step_task_open(step_task *task)
{
    int pair[2];
    *task = (step_task){.reads_left = 1};
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    task->near = pair[0];
    task->far = pair[1];
    task->watch.reading = (spw__task){.step = read_step, .subject = task};
    task->watch.writing = (spw__task){.step = write_step, .subject = task};
    sem_init(&task->begun, 0, 0);
    sem_init(&task->let_go, 0, 0);
}

void step_task_close(step_task *task)
{
    close(task->near);
    close(task->far);
    sem_destroy(&task->begun);
    sem_destroy(&task->let_go);
}

bool step_task_arm(step_task *task, spw_completions *completions)
{
    return spw__task_arm(completions, &task->watch, task->near, &task->watch.reading,
                         SPW__STEP_READ);
}

bool step_task_arm_writing(step_task *task, spw_completions *completions)
{
    return spw__task_arm(completions, &task->watch, task->near, &task->watch.writing,
                         SPW__STEP_WRITE);
}

void step_task_wake(const step_task *task)
{
    assert_int_equal(write(task->far, "x", 1), 1);
}

static bool is_readable(const spw_completions *completions, int timeout_ms)
{
    struct pollfd watched = {spw_completions_descriptor(completions), POLLIN, 0};
    return poll(&watched, 1, timeout_ms) == 1;
}

bool completions_are_ready(const spw_completions *completions)
{
    return is_readable(completions, 0);
}

spw__task *completions_wait(spw_completions *completions)
{
    if (!is_readable(completions, LOST_AFTER_MS))
        fail_msg("nothing came back: a wake-up was lost");
    spw__task *task = spw__completions_next(completions);
    assert_non_null(task);
    return task;
}

static bool is_of_reactor(const char *thread)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", thread);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false; /* it has ended since it was listed */
    bool is_named = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    return is_named && strcmp(name, "spillway-io\n") == 0;
}

unsigned reactor_threads(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (is_of_reactor(entry->d_name))
            count++;
    closedir(folder);
    return count;
}

void reactor_threads_wait_for_none(void)
{
    while (reactor_threads() > 0)
        sched_yield();
}

void two_tasks_open(torture *t, unsigned threads, two_tasks *f)
{
    assert_ok(spw_reactor_create(t->context, threads, &f->reactor, NULL));
    assert_ok(spw_completions_create(f->reactor, &f->completions, NULL));
    step_task_open(&f->one);
    step_task_open(&f->other);
}

void two_tasks_close(two_tasks *f)
{
    spw__watch_forget(&f->one.watch);
    spw__watch_forget(&f->other.watch);
    step_task_close(&f->one);
    step_task_close(&f->other);
    spw_completions_free(f->completions);
    spw_reactor_free(f->reactor);
}
