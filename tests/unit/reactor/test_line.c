/* Tasks that wait for nothing but a thread, or for a condition: run whatever their
 * descriptor does, recalled, and home when nobody can come for them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "fake_system.h"
#include "io_fault.h"
#include "reactor/reactor_state.h"
#include "spillway/reactor.h"
#include "step_tasks.h"
#include "torture.h"

enum { TASKS = 5 };

typedef struct fixture {
    spw_reactor *reactor;
    spw_completions *completions;
    step_task tasks[TASKS];
} fixture;

static void open_all(torture *t, unsigned threads, fixture *f)
{
    assert_ok(spw_reactor_create(t->context, threads, &f->reactor, NULL));
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

static bool arm_now(fixture *f, int i)
{
    step_task *task = &f->tasks[i];
    return spw__task_arm(f->completions, &task->watch, task->near, &task->watch.writing,
                         SPW__STEP_NOW);
}

static bool recall(fixture *f, int i)
{
    return spw__task_recall(&f->tasks[i].watch, &f->tasks[i].watch.writing);
}

static spw__step_answer count_down(spw__task *task)
{
    step_task *self = task->subject;
    self->steps++;
    return --self->reads_left > 0 ? SPW__STEP_NOW : SPW__STEP_DONE;
}

static void it_runs_whatever_the_descriptor_does(void **state)
{
    torture *t = *state;
    fixture f;
    static char filler[65536];
    open_all(t, 2, &f);
    /* Neither readable nor writable. */
    while (send(f.tasks[0].near, filler, sizeof filler, 0) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i < 3; i++) {
        assert_true(arm_now(&f, 0));
        assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    }
    assert_int_equal(f.tasks[0].steps, 3);
    close_all(&f);
}

static void a_step_may_go_to_the_end_of_the_line(void **state)
{
    torture *t = *state;
    for (unsigned threads = 1; threads <= 3; threads++) {
        fixture f;
        open_all(t, threads, &f);
        for (int i = 0; i < TASKS; i++) {
            f.tasks[i].watch.writing.step = count_down;
            f.tasks[i].reads_left = 100;
            assert_true(arm_now(&f, i));
        }
        for (int i = 0; i < TASKS; i++)
            (void)completions_wait(f.completions);
        for (int i = 0; i < TASKS; i++)
            assert_int_equal(f.tasks[i].steps, 100);
        close_all(&f);
    }
}

static void two_threads_come_for_two_tasks(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, 2, &f);
    f.tasks[0].waits = f.tasks[1].waits = true;
    assert_true(arm_now(&f, 0));
    assert_true(arm_now(&f, 1));
    sem_wait(&f.tasks[0].begun);
    sem_wait(&f.tasks[1].begun); /* neither has ended */
    sem_post(&f.tasks[0].let_go);
    sem_post(&f.tasks[1].let_go);
    (void)completions_wait(f.completions);
    (void)completions_wait(f.completions);
    close_all(&f);
}

static void a_task_in_line_is_recalled(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, 1, &f);
    f.tasks[0].waits = true;
    assert_true(arm_now(&f, 0));
    sem_wait(&f.tasks[0].begun); /* the only thread */
    for (int i = 1; i < TASKS; i++)
        assert_true(arm_now(&f, i));
    /* From the middle, the end and the beginning. */
    assert_true(recall(&f, 2));
    assert_true(recall(&f, 4));
    assert_true(recall(&f, 1));
    sem_post(&f.tasks[0].let_go);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[3].watch.writing);
    assert_true(arm_now(&f, 2)); /* and it can go again */
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[2].watch.writing);
    assert_int_equal(f.tasks[1].steps + f.tasks[4].steps, 0);
    close_all(&f);
}

static void a_line_that_is_empty_again_calls_nobody(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, 1, &f);
    f.tasks[0].waits = true;
    assert_true(arm_now(&f, 0));
    sem_wait(&f.tasks[0].begun);
    assert_true(arm_now(&f, 1));
    assert_true(recall(&f, 1)); /* what a thread was called for */
    sem_post(&f.tasks[0].let_go);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    assert_true(arm_now(&f, 3));
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[3].watch.writing);
    assert_int_equal(f.tasks[1].steps, 0);
    close_all(&f);
}

static void without_a_call_it_stays_home(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, 1, &f);
    io_fault_arm_call("poller_rearm", 1, 0);
    assert_false(arm_now(&f, 0));
    assert_int_equal(f.tasks[0].watch.writing.state, SPW__TASK_HOME);
    assert_true(arm_now(&f, 0));
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    close_all(&f);
}

static void nobody_comes_for_those_behind(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, 1, &f);
    f.tasks[0].waits = true;
    assert_true(arm_now(&f, 0));
    sem_wait(&f.tasks[0].begun);
    for (int i = 1; i < TASKS; i++)
        assert_true(arm_now(&f, i));
    io_fault_arm_call("poller_rearm", 1, 0); /* when the first of them is taken */
    sem_post(&f.tasks[0].let_go);
    unsigned steps = 0;
    for (int i = 0; i < TASKS; i++)
        (void)completions_wait(f.completions);
    for (int i = 1; i < TASKS; i++)
        steps += f.tasks[i].steps;
    assert_int_equal(steps, 1); /* the others came home as they were */
    close_all(&f);
}

static void who_cannot_go_on_comes_home(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, 1, &f);
    f.tasks[0].watch.writing.step = count_down;
    f.tasks[0].reads_left = 2;
    io_fault_arm_call("poller_rearm", 2, 0); /* the first sends it away */
    assert_true(arm_now(&f, 0));
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    assert_int_equal(f.tasks[0].reads_left, 1);
    close_all(&f);
}

/* ---- parked ---- */

/* A task that waits for a condition. */
typedef struct condition {
    _Atomic bool holds;
    sem_t asked, let_go;
    bool waits; /* in the step, after it has asked */
} condition;

static spw__step_answer ask(spw__task *task)
{
    condition *self = task->subject;
    bool holds = self->holds;
    sem_post(&self->asked);
    if (self->waits)
        sem_wait(&self->let_go);
    return holds ? SPW__STEP_DONE : SPW__STEP_PARK;
}

static void arm_condition(fixture *f, int i, condition *self)
{
    sem_init(&self->asked, 0, 0);
    sem_init(&self->let_go, 0, 0);
    f->tasks[i].watch.writing = (spw__task){.step = ask, .subject = self};
    assert_true(arm_now(f, i));
}

static void drop_condition(condition *self)
{
    sem_destroy(&self->asked);
    sem_destroy(&self->let_go);
}

static spw__task_state state_of(fixture *f, int i)
{
    spw__reactor_lock(f->reactor);
    spw__task_state state = f->tasks[i].watch.writing.state;
    spw__reactor_unlock(f->reactor);
    return state;
}

static void until_parked(fixture *f, int i)
{
    while (state_of(f, i) != SPW__TASK_PARKED)
        ;
}

static void who_is_parked_runs_after_an_unpark(void **state)
{
    torture *t = *state;
    fixture f;
    condition both[2] = {{0}, {0}};
    fake_clock_set(1000000); /* no time passes */
    open_all(t, 2, &f);
    for (int i = 0; i < 2; i++) {
        arm_condition(&f, i, &both[i]);
        sem_wait(&both[i].asked);
        until_parked(&f, i);
    }
    both[1].holds = true;
    spw__reactor_unpark(f.completions);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[1].watch.writing);
    sem_wait(&both[0].asked); /* in vain */
    both[0].holds = true;
    spw__reactor_unpark(f.completions);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    fake_clock_set(0);
    close_all(&f);
    drop_condition(&both[0]);
    drop_condition(&both[1]);
}

static void an_unpark_is_not_lost_on_who_is_about_to_park(void **state)
{
    torture *t = *state;
    fixture f;
    condition late = {.waits = true};
    fake_clock_set(1000000);
    open_all(t, 1, &f);
    arm_condition(&f, 0, &late);
    sem_wait(&late.asked);
    late.holds = true; /* too late for this time */
    spw__reactor_unpark(f.completions);
    sem_post(&late.let_go);
    sem_post(&late.let_go);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    fake_clock_set(0);
    close_all(&f);
    drop_condition(&late);
}

static void who_is_parked_looks_again_by_itself(void **state)
{
    torture *t = *state;
    fixture f;
    condition one = {0};
    open_all(t, 2, &f);
    arm_condition(&f, 0, &one);
    for (int i = 0; i < 3; i++)
        sem_wait(&one.asked);
    one.holds = true;
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    close_all(&f);
    drop_condition(&one);
}

static void who_is_parked_is_recalled(void **state)
{
    torture *t = *state;
    fixture f;
    condition one = {0};
    open_all(t, 1, &f);
    arm_condition(&f, 0, &one);
    until_parked(&f, 0);
    assert_true(recall(&f, 0));
    assert_int_equal(state_of(&f, 0), SPW__TASK_HOME);
    one.holds = true;
    spw__reactor_unpark(f.completions); /* nobody */
    assert_false(completions_are_ready(f.completions));
    close_all(&f);
    drop_condition(&one);
}

static void nobody_comes_for_who_is_parked(void **state)
{
    torture *t = *state;
    fixture f;
    condition one = {0};
    fake_clock_set(1000000);
    open_all(t, 1, &f);
    arm_condition(&f, 0, &one);
    until_parked(&f, 0);
    io_fault_arm_call("poller_rearm", 1, 0);
    spw__reactor_unpark(f.completions);
    assert_ptr_equal(completions_wait(f.completions), &f.tasks[0].watch.writing);
    fake_clock_set(0);
    close_all(&f);
    drop_condition(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(it_runs_whatever_the_descriptor_does),
        SCENARIO(a_step_may_go_to_the_end_of_the_line),
        SCENARIO(two_threads_come_for_two_tasks),
        SCENARIO(a_task_in_line_is_recalled),
        SCENARIO(a_line_that_is_empty_again_calls_nobody),
        SCENARIO(without_a_call_it_stays_home),
        SCENARIO(nobody_comes_for_those_behind),
        SCENARIO(who_cannot_go_on_comes_home),
        SCENARIO(who_is_parked_runs_after_an_unpark),
        SCENARIO(an_unpark_is_not_lost_on_who_is_about_to_park),
        SCENARIO(who_is_parked_looks_again_by_itself),
        SCENARIO(who_is_parked_is_recalled),
        SCENARIO(nobody_comes_for_who_is_parked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
