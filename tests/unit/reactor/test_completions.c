/* The way home: in the order in which tasks were done, with one sign for all of them.
 */
#include <errno.h>
#include <string.h>

#include "io_fault.h"
#include "reactor/reactor_state.h"
#include "spillway/reactor.h"
#include "step_tasks.h"
#include "torture.h"

enum { TASKS = 3 };

typedef struct fixture {
    spw_reactor *reactor;
    spw_completions *completions;
    step_task tasks[TASKS];
} fixture;

static void open_all(torture *t, fixture *f)
{
    assert_ok(spw_reactor_create(t->context, 1, &f->reactor, NULL));
    assert_ok(spw_completions_create(f->reactor, &f->completions, NULL));
    for (int i = 0; i < TASKS; i++)
        step_task_open(&f->tasks[i]);
}

static void close_all(fixture *f)
{
    for (int i = 0; i < TASKS; i++) {
        spw__watch_forget(&f->tasks[i].watch);
        step_task_close(&f->tasks[i]);
    }
    spw_completions_free(f->completions);
    spw_reactor_free(f->reactor);
}

/* Send them away and have them done one after another. */
static void have_all_done(fixture *f)
{
    for (int i = 0; i < TASKS; i++) {
        step_task *task = &f->tasks[i];
        assert_true(step_task_arm(task, f->completions));
        step_task_wake(task);
        sem_wait(&task->begun);
        for (bool is_done = false; !is_done;) {
            spw__reactor_lock(f->reactor);
            is_done = task->watch.reading.state == SPW__TASK_DONE;
            spw__reactor_unlock(f->reactor);
        }
    }
}

static void come_back_in_the_order_in_which_they_were_done(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, &f);
    assert_false(completions_are_ready(f.completions));
    assert_null(spw__completions_next(f.completions));
    have_all_done(&f);
    for (int i = 0; i < TASKS; i++) {
        assert_true(completions_are_ready(f.completions));
        spw__task *task = spw__completions_next(f.completions);
        assert_ptr_equal(task, &f.tasks[i].watch.reading);
        assert_int_equal(task->state, SPW__TASK_HOME);
    }
    assert_false(completions_are_ready(f.completions));
    assert_null(spw__completions_next(f.completions));
    /* And again, now that the sign has been cleared. */
    f.tasks[1].reads_left = 1;
    assert_true(step_task_arm(&f.tasks[1], f.completions));
    step_task_wake(&f.tasks[1]);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[1].watch.reading);
    close_all(&f);
}

static void any_of_them_can_be_recalled(void **state)
{
    torture *t = *state;
    for (int recalled = 0; recalled < TASKS; recalled++) {
        fixture f;
        open_all(t, &f);
        have_all_done(&f);
        assert_true(spw__task_recall(&f.tasks[recalled].watch,
                                     &f.tasks[recalled].watch.reading));
        for (int i = 0; i < TASKS; i++)
            if (i != recalled)
                assert_ptr_equal(spw__completions_next(f.completions),
                                 &f.tasks[i].watch.reading);
        assert_null(spw__completions_next(f.completions));
        assert_false(completions_are_ready(f.completions));
        close_all(&f);
    }
}

static void recalling_the_last_one_clears_the_sign(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, &f);
    have_all_done(&f);
    for (int i = TASKS - 1; i >= 0; i--) {
        assert_true(completions_are_ready(f.completions));
        assert_true(spw__task_recall(&f.tasks[i].watch, &f.tasks[i].watch.reading));
    }
    assert_false(completions_are_ready(f.completions));
    assert_null(spw__completions_next(f.completions));
    close_all(&f);
}

static void each_owner_has_its_own(void **state)
{
    torture *t = *state;
    fixture f;
    spw_completions *others;
    open_all(t, &f);
    assert_ok(spw_completions_create(f.reactor, &others, NULL));
    assert_true(step_task_arm(&f.tasks[0], others));
    assert_true(step_task_arm(&f.tasks[1], f.completions));
    step_task_wake(&f.tasks[0]);
    assert_ptr_equal(completions_wait(others), &f.tasks[0].watch.reading);
    assert_false(completions_are_ready(f.completions));
    step_task_wake(&f.tasks[1]);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[1].watch.reading);
    assert_false(completions_are_ready(others));
    spw_completions_free(others);
    close_all(&f);
}

static void cannot_be_had_without_a_descriptor_or_memory(void **state)
{
    torture *t = *state;
    spw_reactor *reactor;
    spw_completions *completions = NULL;
    spw_error error;
    assert_ok(spw_reactor_create(t->context, 1, &reactor, NULL));
    io_fault_arm_call("sign_open", 1, EMFILE);
    assert_status(spw_completions_create(reactor, &completions, &error), IO);
    assert_int_equal(error.os_errno, EMFILE);
    assert_non_null(strstr(error.message, "ulimit"));
    t->allocator.fail_at = t->allocator.calls + 1;
    assert_status(spw_completions_create(reactor, &completions, &error), NO_MEMORY);
    assert_null(completions);
    spw_completions_free(NULL);
    spw_reactor_free(reactor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(come_back_in_the_order_in_which_they_were_done),
        SCENARIO(any_of_them_can_be_recalled),
        SCENARIO(recalling_the_last_one_clears_the_sign),
        SCENARIO(each_owner_has_its_own),
        SCENARIO(cannot_be_had_without_a_descriptor_or_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
