/* The threads: when there are any, how many, and how they end. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "reactor/reactor_state.h"
#include "step_tasks.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(threads_start_when_needed_and_end_with_it),
        SCENARIO(by_default_there_are_two_to_four),
        SCENARIO(too_many_threads_are_refused),
        SCENARIO(without_a_thread_a_task_stays_home),
        SCENARIO(with_fewer_threads_than_wanted_it_goes_on),
        SCENARIO(no_descriptor_no_reactor),
        SCENARIO(a_forked_child_leaves_the_parent_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
