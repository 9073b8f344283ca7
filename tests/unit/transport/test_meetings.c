/* Where connections meet their peers: who is let in, who is sent away, and that nobody
 * is woken up for nothing. */
#include "spillway/same_host.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context/error.h"
#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "platform/unix_socket.h"
#include "transport/connection_state.h"
#include "transport/host_packet.h"

static const size_t LARGE[] = {262144};
static const uint8_t OURS[SPW_NONCE_BYTES] = "expected here..";
static const uint8_t THEIRS[SPW_NONCE_BYTES] = "expected there.";
enum { PROOF = SPW__HOST_NONCE_BYTES + SPW__HOST_SECRET_BYTES, NONSENSE = 99 };
static uint8_t secret[SPW__HOST_SECRET_BYTES] = "what only this process has";

/* Meetings, and connections whose peers are played by raw visitors. */
typedef struct fixture {
    torture *t;
    loopback pair; /* both ends expect nobody yet */
    private_place place;
    spw_meetings *meetings;
} fixture;

static void open_fixture(torture *t, fixture *at)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    *at = (fixture){.t = t};
    private_place_open(&at->place);
    options.parent = at->place.directory;
    assert_ok(loopback_open_away(t->context, 2, 0, &at->pair, NULL));
    assert_ok(spw_meetings_create(t->context, &options, &at->meetings, NULL));
    loopback_watch_meetings(at->meetings);
}

static void close_fixture(fixture *at)
{
    loopback_close(&at->pair);
    spw_meetings_free(at->meetings);
    private_place_close(&at->place);
}

static void expect_peer(const fixture *at)
{
    assert_ok(spw_connection_meet(at->pair.client, at->meetings, OURS, "/tmp/nowhere",
                                  THEIRS, NULL));
}

static bool is_readable(const fixture *at)
{
    struct pollfd watched = {spw_meetings_descriptor(at->meetings), POLLIN, 0};
    return poll(&watched, 1, 0) == 1;
}

static void let_in(const fixture *at)
{
    assert_true(is_readable(at));
    assert_ok(spw_meetings_on_readable(at->meetings, NULL));
}

static int come(const fixture *at)
{
    int visitor = spw__unix_socket_connect(spw_meetings_path(at->meetings));
    assert_true(visitor >= 0);
    return visitor;
}

static void say_hello(int visitor, const uint8_t *nonce, uint64_t version)
{
    uint8_t hello[SPW__HOST_HEAD_BYTES + PROOF];
    struct iovec piece = {hello, sizeof hello};
    spw__host_packet_put(&(spw__host_packet){.kind = SPW__HOST_HELLO,
                                             .epoch = version,
                                             .place = (uintptr_t)secret},
                         hello);
    memcpy(hello + SPW__HOST_HEAD_BYTES, nonce, SPW__HOST_NONCE_BYTES);
    memcpy(hello + SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES, secret, sizeof secret);
    assert_int_equal(spw__unix_socket_send(visitor, &piece, 1, -1), sizeof hello);
}

static void say_nonsense(int visitor)
{
    static char nonsense[NONSENSE];
    struct iovec piece = {nonsense, sizeof nonsense};
    assert_int_equal(spw__unix_socket_send(visitor, &piece, 1, -1), sizeof nonsense);
}

/* What it was told: a way, 0 for nothing yet, or -1 when it was sent away. */
static int told(int visitor)
{
    uint8_t data[SPW__HOST_HEAD_BYTES];
    struct iovec piece = {data, sizeof data};
    spw__host_packet packet;
    int passed;
    bool is_lost;
    ssize_t size = spw__unix_socket_receive(visitor, &piece, 1, &passed, &is_lost);
    if (size == -EAGAIN)
        return 0;
    if (size <= 0)
        return -1;
    assert_true(spw__host_packet_get(data, (size_t)size, &packet));
    assert_int_equal(packet.kind, SPW__HOST_WAY);
    return (int)packet.way;
}

/* ---- making them ---- */

static void options_that_make_no_sense(void **state)
{
    torture *t = *state;
    spw_meetings *none = NULL;
    spw_error error;
    char deep[120];
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
#define MAKE() spw_meetings_create(t->context, &options, &none, &error)
    assert_status(MAKE(), INVALID_ARGUMENT); /* no directory */
    options.parent = "/tmp";
    options.best = (spw_host_way)4;
    assert_status(MAKE(), INVALID_ARGUMENT);
    options.best = 0;
    options.struct_size = offsetof(spw_meetings_options, parent);
    assert_status(MAKE(), INVALID_ARGUMENT); /* so old a caller has no directory */
    assert_status(spw_meetings_create(t->context, NULL, &none, &error),
                  INVALID_ARGUMENT);
    options.struct_size = offsetof(spw_meetings_options, best);
    options.best = (spw_host_way)4; /* which is not looked at */
    options.parent = "/nowhere/at/all";
    assert_status(MAKE(), IO);
    assert_int_equal(error.os_errno, ENOENT);
    memset(deep, 'x', sizeof deep);
    deep[0] = '/';
    deep[sizeof deep - 1] = '\0';
    options.parent = deep;
    assert_status(MAKE(), ADDRESS);
    assert_null(none);
    spw_meetings_free(NULL);
#undef MAKE
}

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

/* ---- visitors ---- */

static void who_is_expected_is_let_in(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    expect_peer(&at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    let_in(&at);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    assert_false(is_readable(&at));
    assert_int_equal(torture_figures(at.t).host_meetings, 1);
    /* Once: a second one with the same nonce is a stranger. */
    int second = come(&at);
    say_hello(second, OURS, SPW__HOST_VERSION);
    let_in(&at);
    assert_int_equal(told(second), 0);
    assert_int_equal(torture_figures(at.t).host_meetings, 1);
    spw__unix_socket_close(second);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void who_comes_too_early_waits(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    let_in(&at);
    assert_int_equal(told(visitor), 0);
    assert_false(is_readable(&at));
    expect_peer(&at);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    assert_int_equal(torture_figures(at.t).host_meetings, 1);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void who_has_said_nothing_when_expected_is_let_in_later(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    int visitor = come(&at);
    let_in(&at);
    assert_false(is_readable(&at));
    expect_peer(&at);
    assert_int_equal(told(visitor), 0);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    let_in(&at);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void a_stranger_waits_without_waking_anybody(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    expect_peer(&at);
    int before = private_place_descriptors();
    int stranger = come(&at);
    say_hello(stranger, THEIRS, SPW__HOST_VERSION);
    let_in(&at);
    assert_int_equal(told(stranger), 0);
    assert_false(is_readable(&at));
    /* When it goes, what was kept for it goes too. */
    spw__unix_socket_close(stranger);
    let_in(&at);
    assert_false(is_readable(&at));
    assert_int_equal(private_place_descriptors(), before);
    close_fixture(&at);
}

static void who_is_sent_away(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    expect_peer(&at);
    int before = private_place_descriptors();
    for (int way = 0; way < 6; way++) {
        int visitor = come(&at);
        let_in(&at); /* it has said nothing: nobody is woken for that */
        assert_false(is_readable(&at));
        if (way == 0)
            say_nonsense(visitor);
        if (way == 1)
            say_hello(visitor, OURS, SPW__HOST_VERSION + 1);
        if (way == 2) {
            say_hello(visitor, THEIRS, SPW__HOST_VERSION);
            let_in(&at);
            say_nonsense(visitor); /* out of turn */
        }
        if (way == 3) { /* the same at once */
            say_hello(visitor, THEIRS, SPW__HOST_VERSION);
            say_nonsense(visitor);
            let_in(&at);
        }
        if (way == 4)
            spw__unix_socket_shutdown(visitor, spw__unix_socket_owner());
        if (way == 5) {
            say_hello(visitor, THEIRS, SPW__HOST_VERSION);
            spw__unix_socket_shutdown(visitor, spw__unix_socket_owner());
            let_in(&at);
        }
        let_in(&at);
        assert_int_equal(told(visitor), -1);
        assert_false(is_readable(&at));
        spw__unix_socket_close(visitor);
        assert_int_equal(private_place_descriptors(), before);
    }
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    close_fixture(&at);
}

static void who_speaks_out_of_turn_is_not_let_in_either(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    let_in(&at);
    say_nonsense(visitor);
    expect_peer(&at); /* looks at who waits */
    assert_int_equal(told(visitor), -1);
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void of_many_visitors_the_oldest_go(void **state)
{
    enum { COME = 300, STAY = 256 };
    static int visitors[COME];
    fixture at;
    open_fixture(*state, &at);
    for (int i = 0; i < COME; i++) {
        visitors[i] = come(&at);
        if (i % 50 == 49)
            let_in(&at);
    }
    assert_false(is_readable(&at));
    int stay = 0;
    for (int i = 0; i < COME; i++) {
        bool stays = told(visitors[i]) == 0;
        if (stays)
            stay++;
        else
            assert_int_equal(stay, 0); /* those that came first */
        spw__unix_socket_close(visitors[i]);
    }
    assert_int_equal(stay, STAY);
    let_in(&at);
    assert_false(is_readable(&at));
    close_fixture(&at);
}

static void connections_that_end_are_expected_no_more(void **state)
{
    enum { PAIRS = 5 };
    static const int ORDER[PAIRS] = {2, 4, 0, 3, 1}; /* the middle, an end, ... */
    torture *t = *state;
    fixture at;
    loopback pairs[PAIRS];
    uint8_t nonces[PAIRS][SPW_NONCE_BYTES];
    open_fixture(t, &at);
    for (int i = 0; i < PAIRS; i++) {
        assert_ok(loopback_open_away(t->context, 2, 0, &pairs[i], NULL));
        memset(nonces[i], 'a' + i, SPW_NONCE_BYTES);
        assert_ok(spw_connection_meet(pairs[i].client, at.meetings, nonces[i],
                                      "/tmp/nowhere", THEIRS, NULL));
    }
    for (int gone = 0; gone < PAIRS; gone++) {
        loopback_watch_meetings(at.meetings);
        spw_connection_close(pairs[ORDER[gone]].client);
        uint64_t before = torture_figures(t).host_meetings;
        int visitor = come(&at);
        say_hello(visitor, nonces[ORDER[gone]], SPW__HOST_VERSION);
        let_in(&at);
        assert_int_equal(told(visitor), 0);
        spw__unix_socket_close(visitor);
        let_in(&at);
        if (gone != 2) {
            assert_int_equal(torture_figures(t).host_meetings, before);
            continue;
        }
        /* The others still are, one of whom is met now. */
        visitor = come(&at);
        say_hello(visitor, nonces[ORDER[PAIRS - 1]], SPW__HOST_VERSION);
        let_in(&at);
        assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
        assert_int_equal(torture_figures(t).host_meetings, before + 1);
        spw__unix_socket_close(visitor);
    }
    for (int i = 0; i < PAIRS; i++)
        loopback_close(&pairs[i]);
    close_fixture(&at);
}

static void *close_it(void *connection)
{
    spw_connection_close(connection);
    return NULL;
}

static void connections_may_end_on_several_threads(void **state)
{
    enum { PAIRS = 16 };
    torture *t = *state;
    fixture at;
    loopback pairs[PAIRS];
    pthread_t threads[PAIRS];
    open_fixture(t, &at);
    for (unsigned i = 0; i < PAIRS; i++) {
        uint8_t nonce[SPW_NONCE_BYTES] = {(uint8_t)i};
        assert_ok(loopback_open_away(t->context, 2, 0, &pairs[i], NULL));
        assert_ok(spw_connection_meet(pairs[i].client, at.meetings, nonce,
                                      "/tmp/nowhere", THEIRS, NULL));
    }
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, close_it, pairs[i].client),
                         0);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    /* The list is sound: somebody else can be expected, and found. */
    expect_peer(&at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    let_in(&at);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    for (int i = 0; i < PAIRS; i++)
        loopback_close(&pairs[i]);
    close_fixture(&at);
}

/* ---- what cannot be had ---- */

static void where_nobody_can_be_let_in_nobody_spins(void **state)
{
    fixture at;
    spw_error why;
    open_fixture(*state, &at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    io_fault_arm_call("unix_accept", 1, EMFILE);
    assert_true(is_readable(&at));
    assert_status(spw_meetings_on_readable(at.meetings, &why), IO);
    assert_non_null(strstr(why.message, strerror(EMFILE)));
    assert_false(is_readable(&at)); /* though somebody waits at the door */
    assert_int_equal(torture_figures(at.t).host_refusals, 1);
    /* A connection comes or goes: perhaps there are descriptors now. */
    expect_peer(&at);
    let_in(&at);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void a_visitor_for_whom_there_is_no_memory_is_sent_away(void **state)
{
    fixture at;
    spw_error why;
    torture *t = *state;
    open_fixture(t, &at);
    for (unsigned n = 1; n <= 2; n++) {
        int visitor = come(&at);
        t->allocator.fail_at = t->allocator.calls + n;
        assert_status(spw_meetings_on_readable(at.meetings, &why), NO_MEMORY);
        assert_int_equal(told(visitor), -1);
        assert_false(is_readable(&at));
        spw__unix_socket_close(visitor);
    }
    int visitor = come(&at);
    io_fault_arm_call("poller_add_sign", 1, ENOSPC);
    assert_status(spw_meetings_on_readable(at.meetings, &why), IO);
    assert_int_equal(told(visitor), -1);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void a_visitor_that_no_thread_would_read_is_sent_away(void **state)
{
    fixture at;
    spw_error why;
    open_fixture(*state, &at);
    expect_peer(&at);
    io_fault_arm_call("start_thread", 1, 0);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    assert_status(spw_meetings_on_readable(at.meetings, &why), UNSUPPORTED);
    assert_int_equal(told(visitor), -1);
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void a_visitor_to_whom_nothing_can_be_said_at_once(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    expect_peer(&at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    io_fault_arm_call("unix_send", 1, EAGAIN);
    let_in(&at);
    /* A thread says it when there is room. */
    struct pollfd watched = {visitor, POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

static void a_visitor_that_has_gone_is_no_news(void **state)
{
    fixture at;
    open_fixture(*state, &at);
    expect_peer(&at);
    int visitor = come(&at);
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    io_fault_arm_call("unix_send", 1, EPIPE);
    let_in(&at);
    assert_int_equal(told(visitor), -1);
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    assert_int_equal(torture_figures(at.t).host_refusals, 0);
    spw__unix_socket_close(visitor);
    close_fixture(&at);
}

/* ---- news ---- */

static void each_news_is_told_once(void **state)
{
    enum { MORE = 20 };
    fixture at;
    spw_error why, got;
    torture *t = *state;
    open_fixture(t, &at);
    for (int i = 0; i < 3; i++) {
        (void)spw__error_set(&why, SPW_STATUS_UNSUPPORTED, EPERM, "first");
        spw__meetings_tell(at.meetings, &why);
    }
    (void)spw__error_set(&why, SPW_STATUS_IO, 0, "second");
    spw__meetings_tell(at.meetings, &why);
    assert_int_equal(torture_figures(t).host_refusals, 4);
    assert_int_equal(t->log_lines, 4);
    assert_true(is_readable(&at));
    assert_status(spw_meetings_on_readable(at.meetings, &got), IO);
    assert_string_equal(got.message, "second");
    assert_true(is_readable(&at));
    assert_status(spw_meetings_on_readable(at.meetings, &got), UNSUPPORTED);
    assert_int_equal(got.os_errno, EPERM);
    assert_false(is_readable(&at));
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
    assert_false(is_readable(&at));
    close_fixture(&at);
}

/* ---- fork ---- */

static void a_forked_child_leaves_them_to_its_parent(void **state)
{
    fixture at;
    int status;
    open_fixture(*state, &at);
    int visitor = come(&at);
    let_in(&at);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        loopback_close(&at.pair);
        spw_meetings_free(at.meetings);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The parent still hears who waits, and who comes. */
    say_hello(visitor, OURS, SPW__HOST_VERSION);
    let_in(&at);
    int second = come(&at);
    let_in(&at);
    expect_peer(&at);
    assert_int_equal(told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    spw__unix_socket_close(second);
    close_fixture(&at);
}

/* ---- with failing calls ---- */

static void met_or_not_it_arrives(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    for (unsigned i = 0; i < 3; i++) {
        TRY(loopback_send_made(t, pair.server, LARGE, 1, i));
        TRY(loopback_receive_made(t, pair.client, pair.server, LARGE, 1, i));
    }
end:
    loopback_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(options_that_make_no_sense),
        SCENARIO(without_descriptors_there_are_none),
        SCENARIO(who_is_expected_is_let_in),
        SCENARIO(who_comes_too_early_waits),
        SCENARIO(who_has_said_nothing_when_expected_is_let_in_later),
        SCENARIO(a_stranger_waits_without_waking_anybody),
        SCENARIO(who_is_sent_away),
        SCENARIO(who_speaks_out_of_turn_is_not_let_in_either),
        SCENARIO(of_many_visitors_the_oldest_go),
        SCENARIO(connections_that_end_are_expected_no_more),
        SCENARIO(connections_may_end_on_several_threads),
        SCENARIO(where_nobody_can_be_let_in_nobody_spins),
        SCENARIO(a_visitor_for_whom_there_is_no_memory_is_sent_away),
        SCENARIO(a_visitor_that_no_thread_would_read_is_sent_away),
        SCENARIO(a_visitor_to_whom_nothing_can_be_said_at_once),
        SCENARIO(a_visitor_that_has_gone_is_no_news),
        SCENARIO(each_news_is_told_once),
        SCENARIO(a_forked_child_leaves_them_to_its_parent),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(met_or_not_it_arrives)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("meetings", scenarios);
}
