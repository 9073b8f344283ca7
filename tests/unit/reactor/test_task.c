/* Tasks go away, run when their descriptor is ready, and come home, whatever fails. */
#include <poll.h>

#include "io_fault.h"
#include "reactor/reactor_state.h"
#include "step_tasks.h"

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
        SCENARIO(a_step_runs_when_the_descriptor_is_ready),
        SCENARIO(both_tasks_of_a_watch_run_at_once),
        SCENARIO(the_other_task_waits_on_while_one_is_recalled),
        SCENARIO(recall_while_it_waits_for_the_descriptor),
        SCENARIO(recall_waits_for_the_end_of_a_step),
        SCENARIO(recall_of_a_task_that_is_done),
        SCENARIO(a_task_apart_comes_back_by_recall_alone),
        SCENARIO(a_task_apart_raises_its_sign_when_it_is_done),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(many_watches_go_away_and_come_home),
        SCENARIO(both_tasks_of_a_watch_go_away_and_are_recalled),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("tasks", scenarios);
}
