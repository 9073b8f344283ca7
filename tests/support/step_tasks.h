/* Tasks of tests for a reactor: what they do in their steps, the test decides and can
 * wait for. */
#ifndef SPW_TESTS_STEP_TASKS_H
#define SPW_TESTS_STEP_TASKS_H

#include <semaphore.h>

#include "reactor/task.h"
#include "spillway/reactor.h"
#include "torture.h"

/* One descriptor of a pair of sockets, watched, and what its reading task does. */
typedef struct step_task {
    spw__watch watch;
    int near, far;          /* near is watched */
    _Atomic unsigned steps; /* that have run */
    unsigned reads_left;    /* bytes to read before it is done; one a step */
    _Atomic bool waits;     /* a step ends only when it is recalled or let go */
    sem_t begun, let_go;    /* a step has begun; the test lets it end */
} step_task;

void step_task_open(step_task *task);
/* Only while both tasks of its watch are home and it is forgotten. */
void step_task_close(step_task *task);
/* Send its reading (or writing) task away. */
bool step_task_arm(step_task *task, spw_completions *completions);
bool step_task_arm_writing(step_task *task, spw_completions *completions);
/* Make it readable by one byte. */
void step_task_wake(const step_task *task);

/* A reactor with two of them. */
typedef struct two_tasks {
    spw_reactor *reactor;
    spw_completions *completions;
    step_task one, other;
} two_tasks;

void two_tasks_open(torture *t, unsigned threads, two_tasks *f);
void two_tasks_close(two_tasks *f);

/* Whether something waits among the completions. */
bool completions_are_ready(const spw_completions *completions);
/* Wait for the next task that is done. Fails the test when there never is one. */
spw__task *completions_wait(spw_completions *completions);

/* Threads of reactors in this process, by the system's count. */
unsigned reactor_threads(void);
/* Wait until the system has taken down the last of them, which is after it is joined.
 */
void reactor_threads_wait_for_none(void);

#endif
