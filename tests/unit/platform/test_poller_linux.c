/* What the reactor relies on: one event for one watch, given to one of those who wait;
 * nothing more until it is armed again; and signs that show until they are cleared. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io_fault.h"
#include "platform/poller.h"
#include "testing.h"

typedef struct fixture {
    int poller, sign; /* the sign stands for "nothing else came": it is always last */
    int near, far;    /* a pair of sockets, near is watched */
} fixture;

enum { SIGN_TAG = 1, TAG = 7, OTHER_TAG = 8 };

static int set_up(void **state)
{
    static fixture f;
    int pair[2];
    f.poller = spw__poller_open();
    f.sign = spw__sign_open();
    assert_true(f.poller >= 0 && f.sign >= 0);
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    f.near = pair[0];
    f.far = pair[1];
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    close(f->near);
    if (f->far >= 0)
        close(f->far);
    spw__poller_close(f->sign);
    spw__poller_close(f->poller);
    return io_fault_open_descriptors();
}

static void send_byte(const fixture *f)
{
    assert_int_equal(write(f->far, "x", 1), 1);
}

static void assert_event(const fixture *f, unsigned ready, uint64_t tag)
{
    spw__poller_event event;
    assert_int_equal(spw__poller_wait(f->poller, -1, &event), 1);
    assert_int_equal(event.tag, tag);
    assert_int_equal(event.ready, ready);
}

static bool is_readable(int descriptor)
{
    struct pollfd watched = {descriptor, POLLIN, 0};
    return poll(&watched, 1, 0) == 1;
}

/* A poller is itself readable while it has an event. */
static void assert_no_event(const fixture *f)
{
    assert_false(is_readable(f->poller));
}

static void one_event_and_no_more_until_rearmed(void **state)
{
    const fixture *f = *state;
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG), 0);
    assert_no_event(f);
    send_byte(f);
    assert_event(f, SPW__READY_READ, TAG);
    send_byte(f);
    assert_no_event(f);
    assert_int_equal(spw__poller_rearm(f->poller, f->near, SPW__READY_READ, OTHER_TAG),
                     0);
    assert_event(f, SPW__READY_READ, OTHER_TAG); /* of what was there before */
    assert_no_event(f);
}

static void only_what_is_asked_for(void **state)
{
    const fixture *f = *state;
    send_byte(f);
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_WRITE, TAG), 0);
    assert_event(f, SPW__READY_WRITE, TAG);
    assert_int_equal(
        spw__poller_rearm(f->poller, f->near, SPW__READY_READ | SPW__READY_WRITE, TAG),
        0);
    assert_event(f, SPW__READY_READ | SPW__READY_WRITE, TAG);
}

static void a_hang_up_is_ready_for_both(void **state)
{
    fixture *f = *state;
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG), 0);
    close(f->far);
    f->far = -1;
    assert_event(f, SPW__READY_READ | SPW__READY_WRITE, TAG);
    assert_no_event(f); /* also a hang-up comes once */
}

static void what_is_removed_is_silent(void **state)
{
    const fixture *f = *state;
    spw__poller_remove(f->poller, f->near); /* not watched: nothing happens */
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG), 0);
    send_byte(f);
    spw__poller_remove(f->poller, f->near);
    assert_no_event(f);
    assert_int_equal(spw__poller_rearm(f->poller, f->near, SPW__READY_READ, TAG),
                     -ENOENT);
}

static void tells_what_went_wrong(void **state)
{
    const fixture *f = *state;
    spw__poller_event event;
    assert_int_equal(spw__poller_add(f->poller, -1, SPW__READY_READ, TAG), -EBADF);
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG), 0);
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG),
                     -EEXIST);
    assert_int_equal(spw__poller_wait(f->near, -1, &event), -EINVAL);
}

static void a_sign_shows_until_it_is_cleared(void **state)
{
    const fixture *f = *state;
    assert_int_equal(spw__poller_add_sign(f->poller, f->sign, SIGN_TAG), 0);
    assert_no_event(f);
    spw__sign_clear(f->sign); /* not raised: nothing happens, and it does not block */
    spw__sign_raise(f->sign);
    spw__sign_raise(f->sign);
    assert_true(is_readable(f->sign));
    assert_event(f, SPW__READY_READ, SIGN_TAG);
    assert_event(f, SPW__READY_READ, SIGN_TAG);
    spw__sign_clear(f->sign); /* once, however often it was raised */
    assert_false(is_readable(f->sign));
    assert_no_event(f);
}

static void no_signal(int number)
{
    (void)number;
}

static void *wait_for_event(void *argument)
{
    const fixture *f = argument;
    spw__poller_event event = {0};
    assert_int_equal(spw__poller_wait(f->poller, -1, &event), 1);
    return (void *)(uintptr_t)event.tag;
}

static void an_interrupted_wait_goes_on(void **state)
{
    fixture *f = *state;
    struct sigaction action = {.sa_handler = no_signal}, before;
    void *tag;
    pthread_t thread;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_event, f), 0);
    /* Whether it waits already or not, a signal makes no event of nothing. */
    for (int i = 0; i < 50; i++)
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
    send_byte(f);
    assert_int_equal(pthread_join(thread, &tag), 0);
    assert_int_equal((uintptr_t)tag, TAG);
    sigaction(SIGUSR1, &before, NULL);
}

static void each_event_goes_to_one_thread(void **state)
{
    fixture *f = *state;
    pthread_t threads[2];
    void *tags[2];
    assert_int_equal(spw__poller_add(f->poller, f->near, SPW__READY_READ, TAG), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_event, f), 0);
    send_byte(f);
    /* If both had that event, none would be left to wait for the sign. */
    assert_int_equal(spw__poller_add_sign(f->poller, f->sign, SIGN_TAG), 0);
    spw__sign_raise(f->sign);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], &tags[i]), 0);
    /* The sign goes to whoever asks, so at most one of them has the other event. */
    assert_false((uintptr_t)tags[0] == TAG && (uintptr_t)tags[1] == TAG);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_event_and_no_more_until_rearmed),
        TEST(only_what_is_asked_for),
        TEST(a_hang_up_is_ready_for_both),
        TEST(what_is_removed_is_silent),
        TEST(tells_what_went_wrong),
        TEST(a_sign_shows_until_it_is_cleared),
        TEST(an_interrupted_wait_goes_on),
        TEST(each_event_goes_to_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
