/* Large messages of several connections under one limit of what may be arriving: who
 * waits, who is let in, and that nobody waits for ever. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context/admission.h"
#include "fake_system.h"
#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "platform/clock.h"
#include "transport/connection_state.h"

enum { MIB = 1 << 20, LIMIT = 4 * MIB };
static const size_t BODY[] = {100, 3 * MIB, 20};
static const size_t SMALL[] = {100, MIB / 2};
/* Little enough for a suite that runs a hundred times, and two are too much. */
static const size_t HELD[] = {100, MIB + 1};
enum { TIGHT_LIMIT = MIB + MIB / 2 };
static const size_t ENORMOUS[] = {9 * MIB};

static void limit(const torture *t, uint64_t bytes)
{
    spw_budget_limit_in_flight(t->budget, bytes);
}

static uint64_t held_back(const torture *t)
{
    spw_budget_figures figures;
    spw_budget_read(t->budget, &figures);
    return figures.held_back;
}

static void messages_in_both_directions_take_turns(void **state)
{
    torture *t = *state;
    loopback pair;
    limit(t, TIGHT_LIMIT);
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    SEND(pair.client, HELD, 1);
    SEND(pair.server, HELD, 2);
    RECEIVE(pair.server, pair.client, HELD, 1);
    RECEIVE(pair.client, pair.server, HELD, 2);
end:
    loopback_close(&pair);
}

static void bodies_by_reference_take_turns(void **state)
{
    torture *t = *state;
    loopback pair;
    limit(t, TIGHT_LIMIT);
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    TRY(loopback_meet(t, pair.server, pair.client));
    SEND(pair.client, HELD, 1);
    SEND(pair.server, HELD, 2);
    RECEIVE(pair.server, pair.client, HELD, 1);
    RECEIVE(pair.client, pair.server, HELD, 2);
end:
    loopback_close(&pair);
}

/* One connection stands in the middle of a message that is in; another has one to
 * receive for which there is no room, and one behind it. */
typedef struct two_peers {
    raw_pair in, held;
    char *wire;
    size_t part, size;
} two_peers;

static void open_two(torture *t, two_peers *at)
{
    limit(t, LIMIT);
    at->in = raw_pair_open_away(t->context, 0);
    at->held = raw_pair_open_away(t->context, 0);
    at->wire = payload_wire(t->context, BODY, COUNT_OF(BODY), 1, &at->size);
    at->part = at->size / 2;
    raw_pair_begin_away(&at->in, at->wire, at->part);
    /* All of it has been read, so that from now on it does not move. */
    while (torture_charged(t, SPW_CHARGE_IN_FLIGHT) < BODY[1] ||
           torture_figures(t).bytes_received < at->part)
        ;
}

static void close_two(two_peers *at)
{
    raw_pair_close(&at->in);
    raw_pair_close(&at->held);
    free(at->wire);
}

/* The peer sends what is held, from a process of its own: it does not fit the socket.
 */
static pid_t send_held(const two_peers *at)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        size_t sent = 0;
        while (sent < at->size) {
            ssize_t step = write(at->held.raw, at->wire + sent, at->size - sent);
            if (step <= 0)
                _exit(1);
            sent += (size_t)step;
        }
        _exit(0);
    }
    return child;
}

static void await(pid_t child)
{
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static void until_held(const torture *t, const two_peers *at)
{
    spw_payload *none;
    while (held_back(t) == 0) {
        assert_status(spw_connection_receive(at->held.ours, &none, NULL), AGAIN);
        if (!at->held.ours->receiving.is_away)
            assert_ok(loopback_step(at->held.ours, NULL, NULL));
    }
}

static void receive_body(spw_connection *connection)
{
    spw_payload *message;
    assert_ok(loopback_receive(connection, NULL, &message, NULL));
    payload_assert(message, BODY, COUNT_OF(BODY), 1);
    spw_payload_free(message);
}

static void who_finds_no_room_waits_until_there_is(void **state)
{
    torture *t = *state;
    two_peers at;
    open_two(t, &at);
    uint64_t before = torture_charged(t, SPW_CHARGE_IN_FLIGHT);
    pid_t child = send_held(&at);
    until_held(t, &at);
    /* Nothing has been taken for it, and its owner can do other things. */
    assert_int_equal(torture_charged(t, SPW_CHARGE_IN_FLIGHT), before);
    assert_true(spw_connection_interest(at.held.ours) & SPW_INTEREST_COMPLETION);
    raw_pair_send(&at.in, at.wire + at.part, at.size - at.part);
    receive_body(at.in.ours);
    receive_body(at.held.ours);
    assert_int_equal(held_back(t), 1); /* however often it asked */
    await(child);
    close_two(&at);
}

/* Who leaves calls who waits: no time passes here. */
static void who_leaves_calls_who_waits(void **state)
{
    torture *t = *state;
    loopback pair;
    fake_clock_set(1000000);
    limit(t, LIMIT);
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    for (unsigned seed = 0; seed < 10; seed++) {
        SEND(pair.client, BODY, seed);
        SEND(pair.server, BODY, seed + 20);
        RECEIVE(pair.server, pair.client, BODY, seed);
        RECEIVE(pair.client, pair.server, BODY, seed + 20);
    }
end:
    fake_clock_set(0);
    loopback_close(&pair);
}

static void a_message_that_fails_leaves(void **state)
{
    torture *t = *state;
    two_peers at;
    open_two(t, &at);
    pid_t child = send_held(&at);
    until_held(t, &at);
    raw_pair_close_peer(&at.in);
    spw_payload *none;
    assert_status(loopback_receive(at.in.ours, NULL, &none, NULL), TRUNCATED);
    receive_body(at.held.ours);
    await(child);
    close_two(&at);
}

static void a_peer_that_has_stopped_stops_nobody_else(void **state)
{
    torture *t = *state;
    two_peers at;
    fake_clock_set(1000000);
    open_two(t, &at);
    pid_t child = send_held(&at);
    until_held(t, &at);
    fake_clock_set(1000000 + 1900);
    struct pollfd back = {spw_completions_descriptor(at.held.completions), POLLIN, 0};
    assert_int_equal(poll(&back, 1, 1200), 0); /* it has asked again, twice at least */
    fake_clock_set(1000000 + 2600);
    receive_body(at.held.ours);
    fake_clock_set(0);
    await(child);
    close_two(&at);
}

static void what_waits_can_be_closed(void **state)
{
    torture *t = *state;
    two_peers at;
    open_two(t, &at);
    raw_pair_send(&at.held, at.wire, 100000);
    until_held(t, &at);
    spw_connection_close(at.held.ours);
    assert_ended(at.held.ours, CLOSED);
    raw_pair_send(&at.in, at.wire + at.part, at.size - at.part);
    receive_body(at.in.ours);
    close_two(&at);
}

static void small_ones_and_one_alone_never_wait(void **state)
{
    torture *t = *state;
    loopback pair;
    two_peers at;
    open_two(t, &at);
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    SEND(pair.client, SMALL, 1);
    RECEIVE(pair.server, pair.client, SMALL, 1);
    raw_pair_close_peer(&at.in);
    spw_payload *none;
    assert_status(loopback_receive(at.in.ours, NULL, &none, NULL), TRUNCATED);
    SEND(pair.client, ENORMOUS, 2);
    RECEIVE(pair.server, pair.client, ENORMOUS, 2);
    assert_int_equal(held_back(t), 0);
end:
    loopback_close(&pair);
    close_two(&at);
}

/* Without a reactor, and where it has no thread, nobody could wait. */
static void who_cannot_wait_is_let_in(void **state)
{
    torture *t = *state;
    loopback pair;
    limit(t, LIMIT);
    spw__admission admission;
    assert_true(spw__budget_admit(t->budget, 2 * MIB, spw__clock_ms(), 0, &admission));
    for (int has_reactor = 0; has_reactor < 2; has_reactor++) {
        TRY(has_reactor ? loopback_open_away(t->context, 2, 0, &pair, &t->error)
                        : loopback_open(t->context, "127.0.0.1", &pair, &t->error));
        if (has_reactor)
            io_fault_arm_call("start_thread", 1, 0);
        for (unsigned seed = 0; seed < 2; seed++) {
            SEND(pair.client, BODY, seed);
            RECEIVE(pair.server, pair.client, BODY, seed);
        }
        loopback_close(&pair);
    }
    return;
end:
    loopback_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(who_finds_no_room_waits_until_there_is),
        SCENARIO(who_leaves_calls_who_waits),
        SCENARIO(a_message_that_fails_leaves),
        SCENARIO(a_peer_that_has_stopped_stops_nobody_else),
        SCENARIO(what_waits_can_be_closed),
        SCENARIO(small_ones_and_one_alone_never_wait),
        SCENARIO(who_cannot_wait_is_let_in),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(messages_in_both_directions_take_turns),
        SCENARIO(bodies_by_reference_take_turns),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("messages that are held", scenarios);
}
