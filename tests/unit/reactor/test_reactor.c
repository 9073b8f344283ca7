/* Tasks go away, run when their descriptor is ready, and come home, whatever fails. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "reactor/reactor_state.h"
#include "step_tasks.h"

/* ---- threads ---- */

static void threads_start_when_needed_and_end_with_it(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 3, &f);
    assert_int_equal(reactor_threads(), 0);
    assert_true(step_task_arm(&f.one, f.completions));
    assert_int_equal(reactor_threads(), 3);
    assert_true(step_task_arm(&f.other, f.completions));
    assert_int_equal(reactor_threads(), 3);
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    assert_true(spw__task_recall(&f.other.watch, &f.other.watch.reading));
    two_tasks_close(&f);
    reactor_threads_wait_for_none();
}

static void by_default_there_are_two_to_four(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 0, &f);
    assert_true(step_task_arm(&f.one, f.completions));
    assert_in_range(reactor_threads(), 2, 4);
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    two_tasks_close(&f);
}

static void too_many_threads_are_refused(void **state)
{
    torture *t = *state;
    spw_reactor *reactor = NULL;
    assert_status(spw_reactor_create(t->context, SPW_REACTOR_THREADS_MAX + 1, &reactor,
                                     &t->error),
                  INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "64"));
    assert_null(reactor);
    spw_reactor_free(NULL);
}

static void without_a_thread_a_task_stays_home(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    io_fault_arm_call("start_thread", 1, 0);
    assert_false(step_task_arm(&f.one, f.completions));
    assert_int_equal(f.one.watch.reading.state, SPW__TASK_HOME);
    assert_int_equal(t->log_lines, 1);
    assert_non_null(strstr(t->last_log_line, "errno 11"));
    assert_false(step_task_arm(&f.other, f.completions));
    assert_int_equal(t->log_lines, 1); /* it is said once */
    assert_int_equal(io_fault_calls_of("start_thread"), 1);
    two_tasks_close(&f);
}

static void a_prepared_watch_needs_nothing_more(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    assert_true(spw__watch_prepare(f.completions, &f.one.watch, f.one.near));
    assert_int_equal(f.one.watch.reading.state, SPW__TASK_HOME);
    /* An event of it is for nobody yet, and comes again when it is armed. */
    step_task_wake(&f.one);
    t->allocator.fail_at = t->allocator.calls + 1;
    io_fault_arm_call("poller_add", 1, 0);
    assert_true(step_task_arm(&f.one, f.completions));
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    assert_int_equal(io_fault_calls_of("start_thread"), 0);
    t->allocator.fail_at = 0;
    two_tasks_close(&f);
}

static void what_cannot_be_prepared(void **state)
{
    static const char *const CALLS[] = {"start_thread", "poller_add"};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(CALLS); i++) {
        two_tasks f;
        two_tasks_open(t, 1, &f);
        io_fault_arm_call(CALLS[i], 1, 0);
        assert_false(spw__watch_prepare(f.completions, &f.one.watch, f.one.near));
        assert_null(f.one.watch.reactor);
        spw__watch_forget(&f.one.watch); /* nothing */
        two_tasks_close(&f);
    }
}

static void with_fewer_threads_than_wanted_it_goes_on(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 3, &f);
    io_fault_arm_call("start_thread", 2, 0);
    assert_true(step_task_arm(&f.one, f.completions));
    assert_int_equal(t->log_lines, 1);
    assert_true(step_task_arm(&f.other, f.completions));
    assert_int_equal(io_fault_calls_of("start_thread"), 2);
    step_task_wake(&f.one);
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    step_task_wake(&f.other);
    assert_ptr_equal(completions_wait(f.completions), &f.other.watch.reading);
    two_tasks_close(&f);
}

static void no_descriptor_no_reactor(void **state)
{
    static const char *const CALLS[] = {"poller_open", "sign_open", "poller_add_sign"};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(CALLS); i++) {
        spw_reactor *reactor = NULL;
        spw_error error;
        io_fault_arm_call(CALLS[i], 1, EMFILE);
        assert_status(spw_reactor_create(t->context, 1, &reactor, &error), IO);
        assert_int_equal(error.os_errno, EMFILE);
        assert_non_null(strstr(error.message, "ulimit"));
        assert_null(reactor);
        assert_int_equal(io_fault_open_descriptors(), 0);
    }
}

/* ---- away and home ---- */

static void a_step_runs_when_the_descriptor_is_ready(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    f.one.reads_left = 3;
    assert_true(step_task_arm(&f.one, f.completions));
    for (unsigned i = 1; i <= 3; i++) {
        assert_false(completions_are_ready(f.completions));
        step_task_wake(&f.one);
        sem_wait(&f.one.begun); /* each byte is one event, and one step */
    }
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    assert_int_equal(f.one.steps, 3);
    two_tasks_close(&f);
}

static void both_tasks_of_a_watch_run_at_once(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    f.one.waits = true;
    step_task_wake(&f.one);
    assert_true(step_task_arm(&f.one, f.completions));
    assert_true(step_task_arm_writing(&f.one, f.completions));
    sem_wait(&f.one.begun);
    sem_wait(&f.one.begun); /* neither has ended */
    assert_false(completions_are_ready(f.completions));
    sem_post(&f.one.let_go);
    sem_post(&f.one.let_go);
    assert_non_null(completions_wait(f.completions));
    assert_non_null(completions_wait(f.completions));
    two_tasks_close(&f);
}

static void the_other_task_waits_on_while_one_is_recalled(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    assert_true(step_task_arm(&f.one, f.completions));
    f.one.waits = true;
    assert_true(step_task_arm_writing(&f.one, f.completions));
    sem_wait(&f.one.begun);
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.writing));
    f.one.waits = false;
    assert_int_equal(f.one.watch.writing.state, SPW__TASK_HOME);
    assert_false(completions_are_ready(f.completions));
    step_task_wake(&f.one);
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    two_tasks_close(&f);
}

static void recall_while_it_waits_for_the_descriptor(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    for (int i = 0; i < 3; i++) { /* it can go away again */
        assert_true(step_task_arm(&f.one, f.completions));
        assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
        assert_int_equal(f.one.watch.reading.state, SPW__TASK_HOME);
    }
    step_task_wake(&f.one);
    /* Whoever has had that event found nothing to do: a second task is served. */
    assert_true(step_task_arm(&f.other, f.completions));
    step_task_wake(&f.other);
    assert_ptr_equal(completions_wait(f.completions), &f.other.watch.reading);
    assert_int_equal(f.one.steps, 0);
    assert_false(completions_are_ready(f.completions));
    two_tasks_close(&f);
}

static void recall_waits_for_the_end_of_a_step(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    f.one.waits = true;
    f.one.reads_left = 2; /* once it would have gone on, once been done */
    for (int i = 0; i < 2; i++) {
        step_task_wake(&f.one);
        assert_true(step_task_arm(&f.one, f.completions));
        sem_wait(&f.one.begun);
        assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
        assert_int_equal(f.one.watch.reading.state, SPW__TASK_HOME);
        assert_int_equal(f.one.reads_left, 1 - i); /* it has been to the end */
        assert_false(spw__task_is_recalled(&f.one.watch.reading));
        assert_false(completions_are_ready(f.completions));
    }
    two_tasks_close(&f);
}

static void recall_of_a_task_that_is_done(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    step_task_wake(&f.one);
    assert_true(step_task_arm(&f.one, f.completions));
    while (!completions_are_ready(f.completions))
        ; /* it will be: other tests say so */
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    assert_false(completions_are_ready(f.completions));
    assert_null(spw__completions_next(f.completions));
    two_tasks_close(&f);
}

static bool arm_apart(two_tasks *f, int sign)
{
    return spw__task_arm_apart(f->completions, &f->one.watch, f->one.near,
                               &f->one.watch.reading, SPW__STEP_READ, sign);
}

static bool is_raised(int sign)
{
    struct pollfd watched = {sign, POLLIN, 0};
    return poll(&watched, 1, 0) == 1;
}

static void a_task_apart_comes_back_by_recall_alone(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    step_task_wake(&f.one);
    assert_true(arm_apart(&f, -1));
    assert_int_equal(sem_wait(&f.one.begun), 0);
    /* Another task is done after it, and only that one is told. */
    step_task_wake(&f.other);
    assert_true(step_task_arm(&f.other, f.completions));
    assert_ptr_equal(completions_wait(f.completions), &f.other.watch.reading);
    assert_null(spw__completions_next(f.completions));
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    assert_int_equal(f.one.watch.reading.state, SPW__TASK_HOME);
    assert_int_equal(f.one.steps, 1);
    two_tasks_close(&f);
}

static void a_task_apart_raises_its_sign_when_it_is_done(void **state)
{
    torture *t = *state;
    two_tasks f;
    int sign = spw__sign_open();
    two_tasks_open(t, 2, &f);
    f.one.reads_left = 2;
    assert_true(arm_apart(&f, sign));
    step_task_wake(&f.one);
    assert_int_equal(sem_wait(&f.one.begun), 0);
    assert_false(is_raised(sign)); /* it has something left to do */
    step_task_wake(&f.one);
    struct pollfd watched = {sign, POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    assert_true(is_raised(sign)); /* until the owner clears it */
    spw__sign_clear(sign);
    /* As well when it is not done, but cannot be waited for again. */
    f.one.reads_left = 2;
    assert_true(arm_apart(&f, sign));
    io_fault_arm_call("poller_rearm", 1, 0);
    step_task_wake(&f.one);
    assert_int_equal(poll(&watched, 1, 20000), 1);
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    assert_int_equal(f.one.reads_left, 1);
    two_tasks_close(&f);
    spw__poller_close(sign);
}

/* ---- fork ---- */

/* In the child: what is the parent's stays alone, and all of it can be cleaned up.
 * Returns: the child's exit status. */
static int clean_up_in_child(torture *t, two_tasks *f)
{
    two_tasks own;
    if (spw__task_recall(&f->one.watch, &f->one.watch.reading))
        return 1;
    if (step_task_arm(&f->other, f->completions))
        return 2;
    two_tasks_close(f);
    if (!CHILD_MAY_START_THREADS)
        return 0;
    two_tasks_open(t, 2, &own);
    if (!step_task_arm(&own.one, own.completions))
        return 3;
    step_task_wake(&own.one);
    if (completions_wait(own.completions) != &own.one.watch.reading)
        return 4;
    two_tasks_close(&own);
    return 0;
}

static void a_forked_child_leaves_the_parent_alone(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    for (int locked = 0; locked < 2; locked++) {
        int status;
        assert_true(step_task_arm(&f.one, f.completions));
        if (locked) /* as by a thread that the child will not have */
            spw__reactor_lock(f.reactor);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(clean_up_in_child(t, &f));
        if (locked)
            spw__reactor_unlock(f.reactor);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        f.one.reads_left = 1;
        step_task_wake(&f.one);
        assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    }
    two_tasks_close(&f);
}

/* ---- everything fails in turn ---- */

static void many_watches_go_away_and_come_home(void **state)
{
    enum { TASKS = 9 }; /* more than the first array of slots has */
    torture *t = *state;
    spw_reactor *reactor = NULL;
    spw_completions *completions = NULL;
    step_task tasks[TASKS];
    for (int i = 0; i < TASKS; i++)
        step_task_open(&tasks[i]);
    TRY(spw_reactor_create(t->context, 2, &reactor, &t->error));
    TRY(spw_completions_create(reactor, &completions, &t->error));
    for (int i = 0; i < TASKS; i++) {
        tasks[i].reads_left = 2;
        step_task_wake(&tasks[i]);
        step_task_wake(&tasks[i]);
        if (step_task_arm(&tasks[i], completions))
            assert_ptr_equal(completions_wait(completions), &tasks[i].watch.reading);
        else
            assert_int_equal(t->log_lines, 1);
    }
end:
    for (int i = 0; i < TASKS; i++) {
        spw__watch_forget(&tasks[i].watch);
        step_task_close(&tasks[i]);
    }
    spw_completions_free(completions);
    spw_reactor_free(reactor);
}

static void both_tasks_of_a_watch_go_away_and_are_recalled(void **state)
{
    torture *t = *state;
    spw_reactor *reactor = NULL;
    spw_completions *completions = NULL;
    step_task task;
    step_task_open(&task);
    TRY(spw_reactor_create(t->context, 2, &reactor, &t->error));
    TRY(spw_completions_create(reactor, &completions, &t->error));
    for (int i = 0; i < 2; i++) {
        bool reads = step_task_arm(&task, completions);
        bool writes = step_task_arm_writing(&task, completions);
        if (reads)
            assert_true(spw__task_recall(&task.watch, &task.watch.reading));
        if (writes)
            assert_true(spw__task_recall(&task.watch, &task.watch.writing));
        assert_false(completions_are_ready(completions));
    }
end:
    spw__watch_forget(&task.watch);
    step_task_close(&task);
    spw_completions_free(completions);
    spw_reactor_free(reactor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(threads_start_when_needed_and_end_with_it),
        SCENARIO(by_default_there_are_two_to_four),
        SCENARIO(too_many_threads_are_refused),
        SCENARIO(without_a_thread_a_task_stays_home),
        SCENARIO(a_prepared_watch_needs_nothing_more),
        SCENARIO(what_cannot_be_prepared),
        SCENARIO(with_fewer_threads_than_wanted_it_goes_on),
        SCENARIO(no_descriptor_no_reactor),
        SCENARIO(a_step_runs_when_the_descriptor_is_ready),
        SCENARIO(both_tasks_of_a_watch_run_at_once),
        SCENARIO(the_other_task_waits_on_while_one_is_recalled),
        SCENARIO(recall_while_it_waits_for_the_descriptor),
        SCENARIO(recall_waits_for_the_end_of_a_step),
        SCENARIO(recall_of_a_task_that_is_done),
        SCENARIO(a_task_apart_comes_back_by_recall_alone),
        SCENARIO(a_task_apart_raises_its_sign_when_it_is_done),
        SCENARIO(a_forked_child_leaves_the_parent_alone),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(many_watches_go_away_and_come_home),
        SCENARIO(both_tasks_of_a_watch_go_away_and_are_recalled),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("reactor", scenarios);
}
