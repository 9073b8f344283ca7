/* Tasks come home also when the poller cannot wait for them, and an event that comes
 * too late is nobody else's. */

#include "io_fault.h"
#include "reactor/reactor_state.h"
#include "step_tasks.h"

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

static void what_cannot_be_watched_stays_home(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    io_fault_arm_call("poller_add", 1, 0);
    assert_false(step_task_arm(&f.one, f.completions));
    assert_int_equal(t->log_lines, 1);
    assert_null(f.one.watch.reactor);
    assert_int_equal(f.one.watch.reading.state, SPW__TASK_HOME);
    t->allocator.fail_at = 0;
    step_task_wake(&f.one); /* and later it goes */
    assert_true(step_task_arm(&f.one, f.completions));
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    io_fault_arm_call("poller_rearm", 1, 0);
    f.one.reads_left = 1;
    assert_false(step_task_arm(&f.one, f.completions));
    assert_int_equal(t->log_lines, 1);
    two_tasks_close(&f);
}

static void no_memory_for_a_watch(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    t->allocator.fail_at = t->allocator.calls + 1;
    assert_false(step_task_arm(&f.one, f.completions));
    assert_int_equal(t->log_lines, 1);
    assert_true(step_task_arm(&f.one, f.completions));
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    two_tasks_close(&f);
}

static void who_cannot_be_waited_for_again_comes_home(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 1, &f);
    f.one.reads_left = 2;
    assert_true(step_task_arm(&f.one, f.completions));
    io_fault_arm_call("poller_rearm", 1, 0);
    step_task_wake(&f.one);
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    assert_int_equal(f.one.reads_left, 1); /* not done, but home */
    two_tasks_close(&f);
}

static void the_other_task_comes_home_too(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 2, &f);
    assert_true(step_task_arm(&f.one, f.completions));
    io_fault_arm_call("poller_rearm", 2, 0); /* the first is the next line's */
    assert_true(step_task_arm_writing(&f.one, f.completions));
    /* Serving the one takes away what watches the other. */
    bool is_back[2] = {false, false};
    for (int i = 0; i < 2; i++)
        is_back[completions_wait(f.completions) == &f.one.watch.reading] = true;
    assert_true(is_back[0] && is_back[1]);
    two_tasks_close(&f);
}

typedef struct gate {
    sem_t fetched, go;
} gate;

static void hold(void *user)
{
    gate *g = user;
    sem_post(&g->fetched);
    sem_wait(&g->go);
}

static void a_slot_used_again_ignores_the_event_of_its_last_watch(void **state)
{
    torture *t = *state;
    two_tasks f;
    gate g;
    sem_init(&g.fetched, 0, 0);
    sem_init(&g.go, 0, 0);
    io_fault_after_wait(hold, &g);
    two_tasks_open(t, 1, &f);
    assert_true(step_task_arm(&f.one, f.completions));
    step_task_wake(&f.one);
    sem_wait(&g.fetched); /* the thread has the event and has not acted on it */
    uint32_t slot = f.one.watch.slot;
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    spw__watch_forget(&f.one.watch);
    assert_true(step_task_arm(&f.other, f.completions));
    assert_int_equal(f.other.watch.slot, slot);
    sem_post(&g.go);
    step_task_wake(&f.other);
    sem_wait(&g.fetched); /* it is back from the old event, which did nothing */
    assert_int_equal(f.other.steps, 0);
    assert_int_equal(f.one.steps, 0);
    sem_post(&g.go);
    assert_ptr_equal(completions_wait(f.completions), &f.other.watch.reading);
    assert_int_equal(f.other.steps, 1);
    sem_post(&g.go); /* for the sign to stop */
    two_tasks_close(&f);
    sem_destroy(&g.fetched);
    sem_destroy(&g.go);
}

static void an_event_of_a_task_sent_away_again_is_as_good_as_new(void **state)
{
    torture *t = *state;
    two_tasks f;
    gate g;
    sem_init(&g.fetched, 0, 0);
    sem_init(&g.go, 0, 0);
    io_fault_after_wait(hold, &g);
    two_tasks_open(t, 1, &f);
    assert_true(step_task_arm(&f.one, f.completions));
    step_task_wake(&f.one);
    sem_wait(&g.fetched);
    assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
    assert_true(step_task_arm(&f.one, f.completions));
    sem_post(&g.go);
    assert_ptr_equal(completions_wait(f.completions), &f.one.watch.reading);
    assert_int_equal(f.one.steps, 1);
    /* The rearmed descriptor may have had an event of its own, and the sign comes. */
    sem_post(&g.go);
    sem_post(&g.go);
    two_tasks_close(&f);
    sem_destroy(&g.fetched);
    sem_destroy(&g.go);
}

static void slots_are_used_again(void **state)
{
    torture *t = *state;
    two_tasks f;
    two_tasks_open(t, 1, &f);
    for (int i = 0; i < 100; i++) {
        assert_true(step_task_arm(&f.one, f.completions));
        assert_true(step_task_arm(&f.other, f.completions));
        assert_true(spw__task_recall(&f.one.watch, &f.one.watch.reading));
        assert_true(spw__task_recall(&f.other.watch, &f.other.watch.reading));
        spw__watch_forget(&f.other.watch);
        spw__watch_forget(&f.one.watch);
    }
    assert_int_equal(f.reactor->slots_used, 2);
    two_tasks_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_prepared_watch_needs_nothing_more),
        SCENARIO(what_cannot_be_prepared),
        SCENARIO(what_cannot_be_watched_stays_home),
        SCENARIO(no_memory_for_a_watch),
        SCENARIO(who_cannot_be_waited_for_again_comes_home),
        SCENARIO(the_other_task_comes_home_too),
        SCENARIO(a_slot_used_again_ignores_the_event_of_its_last_watch),
        SCENARIO(an_event_of_a_task_sent_away_again_is_as_good_as_new),
        SCENARIO(slots_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
