/* Directions that are with a thread: that they get there and come home, with every byte
 * in its place, whatever the owner or the peer does meanwhile. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "transport/connection_state.h"

/* Little enough for a suite that runs a thousand times, and far more than INLINE. */
static const size_t BODIES[] = {1000, 300000, 0, 70000, 5000};
static const size_t OTHER_BODIES[] = {100, 200000};
static const size_t SMALL[] = {120, 0, 100};
enum { INLINE = 8192, LARGE_BYTES = 24 << 20, STUCK_BYTES = 64 << 20 };

/* ---- what goes, and that it arrives ---- */

static void large_messages_both_ways_at_once(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, INLINE, &pair, &t->error));
    for (unsigned seed = 1; seed <= 2; seed++) {
        TRY(loopback_send_made(t, pair.client, BODIES, COUNT_OF(BODIES), seed));
        TRY(loopback_send_made(t, pair.server, OTHER_BODIES, COUNT_OF(OTHER_BODIES),
                               seed + 9));
        TRY(loopback_receive_made(t, pair.server, pair.client, BODIES, COUNT_OF(BODIES),
                                  seed));
        TRY(loopback_receive_made(t, pair.client, pair.server, OTHER_BODIES,
                                  COUNT_OF(OTHER_BODIES), seed + 9));
    }
end:
    loopback_close(&pair);
}

static void many_sends_while_sending_is_away_keep_their_order(void **state)
{
    enum { MESSAGES = 6 };
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, INLINE, &pair, &t->error));
    for (unsigned i = 0; i < MESSAGES; i++)
        TRY(i % 2 == 0 ? loopback_send_made(t, pair.client, BODIES, COUNT_OF(BODIES), i)
                       : loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), i));
    for (unsigned i = 0; i < MESSAGES; i++)
        TRY(i % 2 == 0 ? loopback_receive_made(t, pair.server, pair.client, BODIES,
                                               COUNT_OF(BODIES), i)
                       : loopback_receive_made(t, pair.server, pair.client, SMALL,
                                               COUNT_OF(SMALL), i));
end:
    loopback_close(&pair);
}

static void closed_while_both_directions_are_away(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, INLINE, &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, BODIES, COUNT_OF(BODIES), 1));
    TRY(loopback_send_made(t, pair.server, BODIES, COUNT_OF(BODIES), 2));
    spw_payload *none;
    if (spw_connection_receive(pair.client, &none, &t->error) == SPW_STATUS_OK)
        spw_payload_free(none);
    spw_connection_close(pair.client);
    assert_ended(pair.client, CLOSED);
end:
    loopback_close(&pair);
}

static void megabytes_both_ways(void **state)
{
    static const size_t BODY[] = {LARGE_BYTES};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 0, 0, &pair, &t->error));
    for (unsigned seed = 0; seed < 3; seed++) {
        TRY(loopback_send_made(t, pair.client, BODY, 1, seed));
        assert_true(loopback_is_away(pair.client));
        TRY(loopback_send_made(t, pair.server, BODY, 1, seed + 100));
    }
    for (unsigned seed = 0; seed < 3; seed++) {
        TRY(loopback_receive_made(t, pair.server, pair.client, BODY, 1, seed));
        TRY(loopback_receive_made(t, pair.client, pair.server, BODY, 1, seed + 100));
    }
    spw_figures figures = torture_figures(t);
    assert_int_equal(figures.messages_sent, 6);
    assert_int_equal(figures.messages_received, 6);
    assert_int_equal(figures.bytes_sent, figures.bytes_received);
end:
    loopback_close(&pair);
}

static void small_messages_move_on_their_owners_thread(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    for (unsigned seed = 0; seed < 20; seed++) {
        TRY(loopback_send_made(t, pair.client, BODIES, 1, seed));
        assert_false(loopback_is_away(pair.client));
        TRY(loopback_receive_made(t, pair.server, pair.client, BODIES, 1, seed));
    }
    assert_int_equal(io_fault_calls_of("start_thread"), 0);
    assert_true(spw_connection_is_inline(pair.client, SPW_INLINE_BYTES_DEFAULT));
    assert_false(spw_connection_is_inline(pair.client, SPW_INLINE_BYTES_DEFAULT + 1));
end:
    loopback_close(&pair);
}

static void a_small_message_behind_a_large_one(void **state)
{
    static const size_t BODY[] = {LARGE_BYTES};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, BODY, 1, 1));
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 2));
    assert_true(
        loopback_is_away(pair.client)); /* nobody has read: it cannot be sent yet */
    TRY(loopback_receive_made(t, pair.server, pair.client, BODY, 1, 1));
    TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL), 2));
    /* Everything is sent, but whether the owner has heard of it is a matter of time. */
    while (loopback_is_away(pair.client))
        TRY(loopback_step(pair.client, NULL, &t->error));
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 3));
    assert_false(loopback_is_away(pair.client));
    TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL), 3));
end:
    loopback_close(&pair);
}

static void what_was_queued_while_connecting_goes_to_a_thread(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    const char *host;
    uint16_t port;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    TRY(spw_reactor_create(t->context, 2, &pair.reactor, &t->error));
    TRY(spw_completions_create(pair.reactor, &pair.completions, &t->error));
    options.completions = pair.completions;
    TRY(spw_listener_start(t->context, "127.0.0.1", 0, 4, &pair.listener, &t->error));
    spw_listener_local(pair.listener, &host, &port);
    TRY(spw_connection_connect(t->context, host, port, &options, &pair.client,
                               &t->error));
    TRY(loopback_send_made(t, pair.client, BODIES, COUNT_OF(BODIES), 1));
    assert_int_equal(spw_connection_interest(pair.client), SPW_INTEREST_WRITE);
    TRY(loopback_accept(pair.listener, NULL, &pair.server, &t->error));
    while (spw_connection_is_connecting(pair.client))
        TRY(loopback_step(pair.client, NULL, &t->error));
    assert_int_equal(io_fault_calls_of("start_thread"), 2);
    TRY(loopback_receive_made(t, pair.server, pair.client, BODIES, COUNT_OF(BODIES),
                              1));
end:
    loopback_close(&pair);
}

/* ---- what the owner may ask meanwhile ---- */

static void receiving_is_away_until_the_message_is_whole(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    spw_payload *message = NULL;
    raw_pair_begin_away(&pair, wire, 100000);
    for (size_t sent = 100000; sent < size; sent += 50000) {
        assert_int_equal(spw_connection_interest(pair.ours), SPW_INTEREST_COMPLETION);
        assert_status(spw_connection_receive(pair.ours, &message, &t->error), AGAIN);
        assert_status(spw_connection_on_readable(pair.ours), AGAIN);
        assert_int_equal(spw_connection_missing_bytes(pair.ours), 0);
        assert_true(spw_connection_is_open(pair.ours));
        raw_pair_send(&pair, wire + sent, size - sent < 50000 ? size - sent : 50000);
    }
    assert_ok(loopback_receive(pair.ours, NULL, &message, &t->error));
    payload_assert(message, BODIES, COUNT_OF(BODIES), 4);
    spw_payload_free(message);
    assert_int_equal(spw_connection_interest(pair.ours), SPW_INTEREST_READ);
    raw_pair_close(&pair);
    free(wire);
}

static void small_messages_go_out_while_receiving_is_away(void **state)
{
    torture *t = *state;
    size_t size, reply_size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    char *reply = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 5, &reply_size);
    char *read_back = malloc(reply_size);
    assert_non_null(read_back);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    spw_payload *message = NULL;
    raw_pair_begin_away(&pair, wire, 100000);
    for (int i = 0; i < 10; i++) {
        assert_ok(loopback_send_made(t, pair.ours, SMALL, COUNT_OF(SMALL), 5));
        assert_int_equal(recv(pair.raw, read_back, reply_size, MSG_WAITALL),
                         reply_size);
        assert_memory_equal(read_back, reply, reply_size);
    }
    assert_int_equal(spw_connection_interest(pair.ours), SPW_INTEREST_COMPLETION);
    raw_pair_send(&pair, wire + 100000, size - 100000);
    assert_ok(loopback_receive(pair.ours, NULL, &message, &t->error));
    payload_assert(message, BODIES, COUNT_OF(BODIES), 4);
    spw_payload_free(message);
    raw_pair_close(&pair);
    free(wire);
    free(reply);
    free(read_back);
}

static void on_writable_leaves_a_sending_thread_alone(void **state)
{
    torture *t = *state;
    char *data = calloc(1, STUCK_BYTES);
    assert_non_null(data);
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    assert_int_equal(spw_connection_interest(pair.ours),
                     SPW_INTEREST_COMPLETION | SPW_INTEREST_READ);
    assert_ok(spw_connection_on_writable(pair.ours, NULL));
    spw_connection_reap(pair.ours);
    assert_true(spw_connection_queued_bytes(pair.ours) > 0);
    assert_int_equal(released, 0);
    spw_connection_let_go(pair.ours); /* nothing: it is open */
    assert_true(spw_connection_descriptor(pair.ours) >= 0);
    raw_pair_close(&pair);
    assert_int_equal(released, 1);
    free(data);
}

/* ---- recall ---- */

typedef struct recall_gate {
    const direction *way;
    _Atomic unsigned calls; /* that a thread made for it */
} recall_gate;

/* Hold each call that a thread makes until its direction is recalled. */
static void hold_until_recalled(void *user)
{
    recall_gate *gate = user;
    if (!gate->way->is_away)
        return; /* it is the owner who calls */
    gate->calls++;
    while (!spw__task_is_recalled(gate->way->task))
        sched_yield();
}

static void wait_for_first_call(const recall_gate *gate)
{
    while (gate->calls == 0)
        sched_yield();
}

static void a_recalled_send_stops_after_the_call_under_way(void **state)
{
    torture *t = *state;
    char *data = calloc(1, STUCK_BYTES);
    assert_non_null(data);
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    recall_gate gate = {.way = &pair.ours->sending};
    io_fault_swallow();
    io_fault_before_move(hold_until_recalled, &gate);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    wait_for_first_call(&gate);
    spw_connection_close(pair.ours);
    assert_int_equal(gate.calls, 1);
    assert_int_equal(released, 1);
    raw_pair_close(&pair);
    free(data);
}

static void a_recalled_receive_stops_after_the_call_under_way(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    recall_gate gate = {.way = &pair.ours->receiving};
    io_fault_limit(2000); /* many calls, if it went on */
    io_fault_before_move(hold_until_recalled, &gate);
    raw_pair_begin_away(&pair, wire, 100000);
    wait_for_first_call(&gate);
    spw_connection_close(pair.ours);
    assert_int_equal(gate.calls, 1);
    raw_pair_close(&pair);
    free(wire);
}

/* ---- what is pinned ---- */

static void what_was_sent_is_let_go_before_the_queue_is_empty(void **state)
{
    enum { MESSAGES = 6, MESSAGE_BYTES = 40 << 20 };
    torture *t = *state;
    char *data = calloc(1, MESSAGE_BYTES);
    assert_non_null(data);
    unsigned released = 0, released_early = 0;
    uint64_t bytes;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    io_fault_swallow();
    for (int i = 0; i < MESSAGES; i++) {
        spw_payload *payload;
        assert_ok(
            payload_wrap(t->context, data, MESSAGE_BYTES, &released, &payload, NULL));
        assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    }
    while (spw_connection_interest(pair.ours) != SPW_INTEREST_READ) {
        assert_ok(loopback_step(pair.ours, NULL, NULL));
        if (spw_connection_queued_bytes(pair.ours) > 0)
            released_early = released;
    }
    assert_in_range(released_early, 1, MESSAGES - 1);
    assert_int_equal(released, MESSAGES);
    raw_pair_close(&pair);
    free(data);
}

static void who_never_gives_the_loop_a_turn_reaps_all_the_same(void **state)
{
    enum { MESSAGES = 40, MESSAGE_BYTES = 8 << 20, PINNED = 24 };
    torture *t = *state;
    char *data = calloc(1, MESSAGE_BYTES);
    assert_non_null(data);
    unsigned released = 0;
    uint64_t bytes;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    io_fault_swallow();
    for (unsigned i = 0; i < MESSAGES; i++) {
        spw_payload *payload;
        assert_ok(
            payload_wrap(t->context, data, MESSAGE_BYTES, &released, &payload, NULL));
        assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
        spw_connection_reap(pair.ours);
        /* Wait until the thread has sent it, but take nothing back. */
        struct pollfd watched = {spw_completions_descriptor(pair.completions), POLLIN,
                                 0};
        if (loopback_is_away(pair.ours))
            assert_int_equal(poll(&watched, 1, 20000), 1);
        assert_in_range(i + 1 - released, 0, PINNED);
    }
    raw_pair_close(&pair);
    assert_int_equal(released, MESSAGES);
    free(data);
}

/* ---- threads and descriptors that cannot be had ---- */

static void without_threads_everything_moves_at_home(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, INLINE, &pair, &t->error));
    io_fault_arm_call("start_thread", 1, 0);
    for (unsigned seed = 0; seed < 3; seed++) {
        TRY(loopback_send_made(t, pair.client, BODIES, COUNT_OF(BODIES), seed));
        assert_false(loopback_is_away(pair.client));
        TRY(loopback_receive_made(t, pair.server, pair.client, BODIES, COUNT_OF(BODIES),
                                  seed));
    }
    assert_int_equal(t->log_lines, 1);
end:
    loopback_close(&pair);
}

/* ---- let go ---- */

/* Receive one message of two, of the other one only so many bytes; have the connection
 * end, let it go, and end its threads. */
static raw_pair let_go_before(torture *t, const size_t *sizes, size_t count,
                              size_t part)
{
    size_t first, second;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 1, &first);
    char *other = payload_wire(t->context, sizes, count, 2, &second);
    char both[2048];
    if (part > second)
        part = second;
    assert_true(first + part <= sizeof both);
    memcpy(both, wire, first);
    memcpy(both + first, other, part);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    raw_pair_send(&pair, both, first + part);
    assert_ok(loopback_receive_made(t, pair.ours, NULL, SMALL, COUNT_OF(SMALL), 1));
    raw_pair_reset_peer(&pair);
    assert_false(loopback_send_made(t, pair.ours, SMALL, COUNT_OF(SMALL), 3) ==
                 SPW_STATUS_OK);
    assert_false(spw_connection_is_open(pair.ours));
    spw_connection_let_go(pair.ours);
    spw_completions_free(pair.completions);
    spw_reactor_free(pair.reactor);
    pair.completions = NULL;
    pair.reactor = NULL;
    free(wire);
    free(other);
    return pair;
}

static void who_was_let_go_needs_no_threads_for_what_has_come(void **state)
{
    torture *t = *state;
    spw_payload *none;
    raw_pair pair = let_go_before(t, SMALL, COUNT_OF(SMALL), SIZE_MAX);
    assert_ok(loopback_receive_made(t, pair.ours, NULL, SMALL, COUNT_OF(SMALL), 2));
    assert_status(spw_connection_receive(pair.ours, &none, NULL), RESET);
    raw_pair_close(&pair);
}

/* Not even to say that others may be let in for it. */
static void who_was_let_go_gives_a_large_message_up_without_threads(void **state)
{
    torture *t = *state;
    static const size_t HELD[] = {2 << 20};
    spw_budget_figures figures;
    spw_payload *none;
    spw_budget_limit_in_flight(t->budget, 1 << 20);
    raw_pair pair = let_go_before(t, HELD, COUNT_OF(HELD), 100);
    assert_status(spw_connection_receive(pair.ours, &none, NULL), RESET);
    spw_budget_read(t->budget, &figures);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_IN_FLIGHT], 0);
    spw_budget_limit_in_flight(t->budget, 0);
    raw_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(who_was_let_go_needs_no_threads_for_what_has_come),
        SCENARIO(who_was_let_go_gives_a_large_message_up_without_threads),
        SCENARIO(megabytes_both_ways),
        SCENARIO(small_messages_move_on_their_owners_thread),
        SCENARIO(a_small_message_behind_a_large_one),
        SCENARIO(what_was_queued_while_connecting_goes_to_a_thread),
        SCENARIO(receiving_is_away_until_the_message_is_whole),
        SCENARIO(small_messages_go_out_while_receiving_is_away),
        SCENARIO(on_writable_leaves_a_sending_thread_alone),
        SCENARIO(a_recalled_send_stops_after_the_call_under_way),
        SCENARIO(a_recalled_receive_stops_after_the_call_under_way),
        SCENARIO(what_was_sent_is_let_go_before_the_queue_is_empty),
        SCENARIO(who_never_gives_the_loop_a_turn_reaps_all_the_same),
        SCENARIO(without_threads_everything_moves_at_home),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(large_messages_both_ways_at_once),
        SCENARIO(many_sends_while_sending_is_away_keep_their_order),
        SCENARIO(closed_while_both_directions_are_away),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("connections with threads", scenarios);
}
