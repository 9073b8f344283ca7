/* Where connections meet their peers, and something for that cannot be had: nobody
 * spins, visitors are sent away, and it is visitor_told once. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "context/error.h"
#include "io_fault.h"
#include "platform/unix_socket.h"
#include "transport/host_packet.h"
#include "transport/connection_host.h"
#include "visited_meetings.h"

static void without_descriptors_there_are_none(void **state)
{
    static const char *const CALLS[] = {"directory", "unix_listen", "poller_open",
                                        "sign_open", "poller_add_sign"};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(CALLS); i++) {
        private_place place;
        spw_meetings *none = NULL;
        spw_error error;
        private_place_open(&place);
        int before = private_place_descriptors();
        spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
        options.parent = place.directory;
        io_fault_arm_call(CALLS[i], 1, EMFILE);
        assert_status(spw_meetings_create(t->context, &options, &none, &error), IO);
        assert_int_equal(error.os_errno, EMFILE);
        assert_null(none);
        assert_int_equal(private_place_descriptors(), before);
        private_place_close(&place); /* nothing is left in it */
    }
}

static void where_nobody_can_be_let_in_nobody_spins(void **state)
{
    visited_meetings at;
    spw_error why;
    visited_meetings_open(*state, &at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    io_fault_arm_call("unix_accept", 1, EMFILE);
    assert_true(visited_meetings_are_readable(&at));
    assert_status(spw_meetings_on_readable(at.meetings, &why), IO);
    assert_non_null(strstr(why.message, strerror(EMFILE)));
    assert_false(
        visited_meetings_are_readable(&at)); /* though somebody waits at the door */
    assert_int_equal(torture_figures(at.t).host_refusals, 1);
    /* A connection comes or goes: perhaps there are descriptors now. */
    visited_meetings_expect(&at);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void a_visitor_for_whom_there_is_no_memory_is_sent_away(void **state)
{
    visited_meetings at;
    spw_error why;
    torture *t = *state;
    visited_meetings_open(t, &at);
    for (unsigned n = 1; n <= 2; n++) {
        int visitor = visitor_come(&at);
        t->allocator.fail_at = t->allocator.calls + n;
        assert_status(spw_meetings_on_readable(at.meetings, &why), NO_MEMORY);
        assert_int_equal(visitor_told(visitor), -1);
        assert_false(visited_meetings_are_readable(&at));
        spw__unix_socket_close(visitor);
    }
    int visitor = visitor_come(&at);
    io_fault_arm_call("poller_add_sign", 1, ENOSPC);
    assert_status(spw_meetings_on_readable(at.meetings, &why), IO);
    assert_int_equal(visitor_told(visitor), -1);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void a_visitor_that_no_thread_would_read_is_sent_away(void **state)
{
    visited_meetings at;
    spw_error why;
    visited_meetings_open(*state, &at);
    visited_meetings_expect(&at);
    io_fault_arm_call("start_thread", 1, 0);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    assert_status(spw_meetings_on_readable(at.meetings, &why), UNSUPPORTED);
    assert_int_equal(visitor_told(visitor), -1);
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void a_visitor_to_whom_nothing_can_be_said_at_once(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    visited_meetings_expect(&at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    io_fault_arm_call("unix_send", 1, EAGAIN);
    visited_meetings_let_in(&at);
    /* A thread says it when there is room. */
    struct pollfd watched = {visitor, POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void a_visitor_that_has_gone_is_no_news(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    visited_meetings_expect(&at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    io_fault_arm_call("unix_send", 1, EPIPE);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(visitor), -1);
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    assert_int_equal(torture_figures(at.t).host_refusals, 0);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void each_news_is_told_once(void **state)
{
    enum { MORE = 20 };
    visited_meetings at;
    spw_error why, got;
    torture *t = *state;
    visited_meetings_open(t, &at);
    for (int i = 0; i < 3; i++) {
        (void)spw__error_set(&why, SPW_STATUS_UNSUPPORTED, EPERM, "first");
        spw__meetings_tell(at.meetings, &why);
    }
    (void)spw__error_set(&why, SPW_STATUS_IO, 0, "second");
    spw__meetings_tell(at.meetings, &why);
    assert_int_equal(torture_figures(t).host_refusals, 4);
    assert_int_equal(t->log_lines, 4);
    assert_true(visited_meetings_are_readable(&at));
    assert_status(spw_meetings_on_readable(at.meetings, &got), IO);
    assert_string_equal(got.message, "second");
    assert_true(visited_meetings_are_readable(&at));
    assert_status(spw_meetings_on_readable(at.meetings, &got), UNSUPPORTED);
    assert_int_equal(got.os_errno, EPERM);
    assert_false(visited_meetings_are_readable(&at));
    assert_ok(spw_meetings_on_readable(at.meetings, &got));
    /* More than anybody has heard of are counted. */
    for (int i = 0; i < MORE; i++) {
        (void)spw__error_set(&why, SPW_STATUS_IO, 0, "reason %d", i);
        spw__meetings_tell(at.meetings, &why);
    }
    assert_int_equal(torture_figures(t).host_refusals, 4 + MORE);
    int told_news = 0;
    while (spw_meetings_on_readable(at.meetings, NULL) != SPW_STATUS_OK)
        told_news++;
    assert_in_range(told_news, 1, MORE);
    assert_false(visited_meetings_are_readable(&at));
    visited_meetings_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(without_descriptors_there_are_none),
        SCENARIO(where_nobody_can_be_let_in_nobody_spins),
        SCENARIO(a_visitor_for_whom_there_is_no_memory_is_sent_away),
        SCENARIO(a_visitor_that_no_thread_would_read_is_sent_away),
        SCENARIO(a_visitor_to_whom_nothing_can_be_said_at_once),
        SCENARIO(a_visitor_that_has_gone_is_no_news),
        SCENARIO(each_news_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
