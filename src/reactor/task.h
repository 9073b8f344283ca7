/* Threads that wait for descriptors and work on what is ready.
 *
 * A watch stands for one descriptor with up to two tasks: one that reads, one that
 * writes. A task is either with its owner, who may touch what it works on, or away,
 * when only a thread may. It goes away by arm, and comes back in one of two ways: its
 * step says that it is done, and the owner finds it among the completions; or the owner
 * recalls it. A task that is armed apart comes back by recall alone, and waits for that
 * once it is done. Nothing else is shared, so nothing else is locked.
 *
 * Threading contract: prepare, arm, recall, forget and next are called by the owner; a
 * step runs on a thread of the reactor, one step of a task at a time. A step calls
 * nothing of this file but spw__task_is_recalled and unpark; and, for another task of
 * which it is the owner as long as it runs, arm and recall. */
#ifndef SPW_REACTOR_TASK_H
#define SPW_REACTOR_TASK_H

#include <stdatomic.h>

#include "platform/poller.h"
#include "spillway/reactor.h"

typedef struct spw__task spw__task;
typedef struct spw__watch spw__watch;

/* What a step wants next. */
typedef enum spw__step_answer {
    SPW__STEP_DONE = 0, /* to come back */
    SPW__STEP_READ = SPW__READY_READ,
    SPW__STEP_WRITE = SPW__READY_WRITE,
    SPW__STEP_NOBODY = 4, /* to be home, with nobody to tell */
    SPW__STEP_NOW = 8,    /* to run again as soon as a thread is free */
    SPW__STEP_PARK = 16   /* to run again after an unpark, or a while without */
} spw__step_answer;

typedef enum spw__task_state {
    SPW__TASK_HOME,    /* with its owner */
    SPW__TASK_ARMED,   /* waiting for the descriptor */
    SPW__TASK_IN_LINE, /* waiting for nothing but a thread */
    SPW__TASK_PARKED,  /* waiting for something that may have come to pass */
    SPW__TASK_RUNNING, /* in its step */
    SPW__TASK_DONE     /* among the completions, or apart */
} spw__task_state;

struct spw__task {
    /* Set by the owner before the first arm. */
    spw__step_answer (*step)(spw__task *task);
    void *subject;
    _Atomic bool is_recalled;
    /* All below: guarded by the reactor's lock. */
    spw__task_state state;
    spw__watch *watch;            /* it was last sent away by */
    unsigned wants;               /* SPW__READY_..., while ARMED */
    spw_completions *completions; /* where it comes back; NULL: it is armed apart */
    int sign;                     /* apart: raised when it is done; -1: none */
    spw__task *next, *previous;   /* there, or on the line */
};

/* All zero before the first arm. */
struct spw__watch {
    spw_reactor *reactor; /* NULL: the poller does not know it */
    int descriptor;
    uint32_t slot;
    spw__task reading, writing;
};

/* Send a task of a watch away, to run its step as soon as the descriptor is ready for
 * wants, or, if that is SPW__STEP_NOW, as soon as a thread is free, whatever becomes of
 * the descriptor. From its return on the task may be running or done.
 * Returns: false when it stays with its owner: there is no memory, no thread or no
 * watch to be had, or the reactor is a parent process's. */
bool spw__task_arm(spw_completions *completions, spw__watch *watch, int descriptor,
                   spw__task *task, unsigned wants);
/* The same for a task that comes back by recall alone. When it is done, sign is raised
 * (-1: none is), which only the owner clears. Completions only tell the reactor. */
bool spw__task_arm_apart(spw_completions *completions, spw__watch *watch,
                         int descriptor, spw__task *task, unsigned wants, int sign);
/* Have the reactor know the descriptor of a watch, and its threads run, so that an arm
 * is not refused later on for want of either. Only while both tasks are home.
 * Returns: false as arm does. */
bool spw__watch_prepare(spw_completions *completions, spw__watch *watch,
                        int descriptor);
/* Have an away task back. Waits for the end of a step under way, which comes soon, for
 * steps look at is_recalled.
 * Returns: false when it is lost: the process was forked while it was away, and what it
 * works on may be in the middle of a change. */
bool spw__task_recall(spw__watch *watch, spw__task *task);
static inline bool spw__task_is_recalled(spw__task *task)
{
    return atomic_load_explicit(&task->is_recalled, memory_order_relaxed);
}
/* Have every task that is parked run again, also one that is about to say so. Thread:
 * any; also from a step. */
void spw__reactor_unpark(spw_completions *completions);
/* No event of the descriptor is wanted any more; before it is closed, and only while
 * both tasks are home. */
void spw__watch_forget(spw__watch *watch);

/* The next task that is done, home again; NULL when there is none. */
spw__task *spw__completions_next(spw_completions *completions);

#endif
