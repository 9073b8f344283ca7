/* What the library's threads start with. */
#include "platform/thread.h"

#include <errno.h>
#include <signal.h>

#include "io_fault.h"
#include "testing.h"

static void *look(void *argument)
{
    sigset_t *blocked = argument;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, blocked), 0);
    return argument;
}

static void signals_are_blocked_in_it_and_not_in_who_starts_it(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t blocked, ours;
    void *answer;
    assert_int_equal(spw__thread_start(&thread, 256 * 1024, "a-thread", look, &blocked),
                     0);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_ptr_equal(answer, &blocked);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &ours), 0);
    assert_true(sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT));
    assert_false(sigismember(&ours, SIGTERM) || sigismember(&ours, SIGINT));
}

static void one_that_cannot_be_started_is_told(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t ours;
    io_fault_arm_call("start_thread", 1, EAGAIN);
    assert_int_equal(spw__thread_start(&thread, 256 * 1024, "a-thread", look, NULL),
                     EAGAIN);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &ours), 0);
    assert_false(sigismember(&ours, SIGTERM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_are_blocked_in_it_and_not_in_who_starts_it),
        cmocka_unit_test(one_that_cannot_be_started_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
