/* Where connections meet their peers: who is let in, who is sent away, and that nobody
 * is woken up for nothing. */
#include "spillway/same_host.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/unix_socket.h"
#include "transport/host_packet.h"
#include "visited_meetings.h"

static const size_t LARGE[] = {262144};
enum { NONSENSE = 99 };

static void say_nonsense(int visitor)
{
    static char nonsense[NONSENSE];
    struct iovec piece = {nonsense, sizeof nonsense};
    assert_int_equal(spw__unix_socket_send(visitor, &piece, 1, -1), sizeof nonsense);
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

/* ---- visitors ---- */

static void who_is_expected_is_let_in(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    visited_meetings_expect(&at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    assert_false(visited_meetings_are_readable(&at));
    assert_int_equal(torture_figures(at.t).host_meetings, 1);
    /* Once: a second one with the same nonce is a stranger. */
    int second = visitor_come(&at);
    visitor_say_hello(second, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(second), 0);
    assert_int_equal(torture_figures(at.t).host_meetings, 1);
    spw__unix_socket_close(second);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void who_comes_too_early_waits(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(visitor), 0);
    assert_false(visited_meetings_are_readable(&at));
    visited_meetings_expect(&at);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    assert_int_equal(torture_figures(at.t).host_meetings, 1);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void who_has_said_nothing_when_expected_is_let_in_later(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    int visitor = visitor_come(&at);
    visited_meetings_let_in(&at);
    assert_false(visited_meetings_are_readable(&at));
    visited_meetings_expect(&at);
    assert_int_equal(visitor_told(visitor), 0);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void a_stranger_waits_without_waking_anybody(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    visited_meetings_expect(&at);
    int before = private_place_descriptors();
    int stranger = visitor_come(&at);
    visitor_say_hello(stranger, NONCE_THERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(stranger), 0);
    assert_false(visited_meetings_are_readable(&at));
    /* When it goes, what was kept for it goes too. */
    spw__unix_socket_close(stranger);
    visited_meetings_let_in(&at);
    assert_false(visited_meetings_are_readable(&at));
    assert_int_equal(private_place_descriptors(), before);
    visited_meetings_close(&at);
}

static void who_is_sent_away(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    visited_meetings_expect(&at);
    int before = private_place_descriptors();
    for (int way = 0; way < 6; way++) {
        int visitor = visitor_come(&at);
        visited_meetings_let_in(
            &at); /* it has said nothing: nobody is woken for that */
        assert_false(visited_meetings_are_readable(&at));
        if (way == 0)
            say_nonsense(visitor);
        if (way == 1)
            visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION + 1);
        if (way == 2) {
            visitor_say_hello(visitor, NONCE_THERE, SPW__HOST_VERSION);
            visited_meetings_let_in(&at);
            say_nonsense(visitor); /* out of turn */
        }
        if (way == 3) { /* the same at once */
            visitor_say_hello(visitor, NONCE_THERE, SPW__HOST_VERSION);
            say_nonsense(visitor);
            visited_meetings_let_in(&at);
        }
        if (way == 4)
            spw__unix_socket_shutdown(visitor, spw__unix_socket_owner());
        if (way == 5) {
            visitor_say_hello(visitor, NONCE_THERE, SPW__HOST_VERSION);
            spw__unix_socket_shutdown(visitor, spw__unix_socket_owner());
            visited_meetings_let_in(&at);
        }
        visited_meetings_let_in(&at);
        assert_int_equal(visitor_told(visitor), -1);
        assert_false(visited_meetings_are_readable(&at));
        spw__unix_socket_close(visitor);
        assert_int_equal(private_place_descriptors(), before);
    }
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    visited_meetings_close(&at);
}

static void who_speaks_out_of_turn_is_not_let_in_either(void **state)
{
    visited_meetings at;
    visited_meetings_open(*state, &at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    say_nonsense(visitor);
    visited_meetings_expect(&at); /* looks at who waits */
    assert_int_equal(visitor_told(visitor), -1);
    assert_int_equal(torture_figures(at.t).host_meetings, 0);
    spw__unix_socket_close(visitor);
    visited_meetings_close(&at);
}

static void of_many_visitors_the_oldest_go(void **state)
{
    enum { COME = 300, STAY = 256 };
    static int visitors[COME];
    visited_meetings at;
    visited_meetings_open(*state, &at);
    for (int i = 0; i < COME; i++) {
        visitors[i] = visitor_come(&at);
        if (i % 50 == 49)
            visited_meetings_let_in(&at);
    }
    assert_false(visited_meetings_are_readable(&at));
    int stay = 0;
    for (int i = 0; i < COME; i++) {
        bool stays = visitor_told(visitors[i]) == 0;
        if (stays)
            stay++;
        else
            assert_int_equal(stay, 0); /* those that came first */
        spw__unix_socket_close(visitors[i]);
    }
    assert_int_equal(stay, STAY);
    visited_meetings_let_in(&at);
    assert_false(visited_meetings_are_readable(&at));
    visited_meetings_close(&at);
}

static void connections_that_end_are_expected_no_more(void **state)
{
    enum { PAIRS = 5 };
    static const int ORDER[PAIRS] = {2, 4, 0, 3, 1}; /* the middle, an end, ... */
    torture *t = *state;
    visited_meetings at;
    loopback pairs[PAIRS];
    uint8_t nonces[PAIRS][SPW_NONCE_BYTES];
    visited_meetings_open(t, &at);
    for (int i = 0; i < PAIRS; i++) {
        assert_ok(loopback_open_away(t->context, 2, 0, &pairs[i], NULL));
        memset(nonces[i], 'a' + i, SPW_NONCE_BYTES);
        assert_ok(spw_connection_meet(pairs[i].client, at.meetings, nonces[i],
                                      "/tmp/nowhere", NONCE_THERE, NULL));
    }
    for (int gone = 0; gone < PAIRS; gone++) {
        loopback_watch_meetings(at.meetings);
        spw_connection_close(pairs[ORDER[gone]].client);
        uint64_t before = torture_figures(t).host_meetings;
        int visitor = visitor_come(&at);
        visitor_say_hello(visitor, nonces[ORDER[gone]], SPW__HOST_VERSION);
        visited_meetings_let_in(&at);
        assert_int_equal(visitor_told(visitor), 0);
        spw__unix_socket_close(visitor);
        visited_meetings_let_in(&at);
        if (gone != 2) {
            assert_int_equal(torture_figures(t).host_meetings, before);
            continue;
        }
        /* The others still are, one of whom is met now. */
        visitor = visitor_come(&at);
        visitor_say_hello(visitor, nonces[ORDER[PAIRS - 1]], SPW__HOST_VERSION);
        visited_meetings_let_in(&at);
        assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
        assert_int_equal(torture_figures(t).host_meetings, before + 1);
        spw__unix_socket_close(visitor);
    }
    for (int i = 0; i < PAIRS; i++)
        loopback_close(&pairs[i]);
    visited_meetings_close(&at);
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
    visited_meetings at;
    loopback pairs[PAIRS];
    pthread_t threads[PAIRS];
    visited_meetings_open(t, &at);
    for (unsigned i = 0; i < PAIRS; i++) {
        uint8_t nonce[SPW_NONCE_BYTES] = {(uint8_t)i};
        assert_ok(loopback_open_away(t->context, 2, 0, &pairs[i], NULL));
        assert_ok(spw_connection_meet(pairs[i].client, at.meetings, nonce,
                                      "/tmp/nowhere", NONCE_THERE, NULL));
    }
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, close_it, pairs[i].client),
                         0);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    /* The list is sound: somebody else can be expected, and found. */
    visited_meetings_expect(&at);
    int visitor = visitor_come(&at);
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    for (int i = 0; i < PAIRS; i++)
        loopback_close(&pairs[i]);
    visited_meetings_close(&at);
}

/* ---- fork ---- */

static void a_forked_child_leaves_them_to_its_parent(void **state)
{
    visited_meetings at;
    int status;
    visited_meetings_open(*state, &at);
    int visitor = visitor_come(&at);
    visited_meetings_let_in(&at);
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
    visitor_say_hello(visitor, NONCE_HERE, SPW__HOST_VERSION);
    visited_meetings_let_in(&at);
    int second = visitor_come(&at);
    visited_meetings_let_in(&at);
    visited_meetings_expect(&at);
    assert_int_equal(visitor_told(visitor), SPW_HOST_BY_ADDRESS);
    spw__unix_socket_close(visitor);
    spw__unix_socket_close(second);
    visited_meetings_close(&at);
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
        SCENARIO(who_is_expected_is_let_in),
        SCENARIO(who_comes_too_early_waits),
        SCENARIO(who_has_said_nothing_when_expected_is_let_in_later),
        SCENARIO(a_stranger_waits_without_waking_anybody),
        SCENARIO(who_is_sent_away),
        SCENARIO(who_speaks_out_of_turn_is_not_let_in_either),
        SCENARIO(of_many_visitors_the_oldest_go),
        SCENARIO(connections_that_end_are_expected_no_more),
        SCENARIO(connections_may_end_on_several_threads),
        SCENARIO(a_forked_child_leaves_them_to_its_parent),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(met_or_not_it_arrives),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("meetings", scenarios);
}
