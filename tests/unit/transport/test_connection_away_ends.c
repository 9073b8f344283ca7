/* Ends of connections whose directions are with a thread: the owner's, the peer's, the
 * budget's, and those in a forked child. */
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
static const size_t SMALL[] = {120, 0, 100};
enum { INLINE = 8192, LARGE_BYTES = 24 << 20, STUCK_BYTES = 64 << 20 };

/* ---- ends ---- */

static void a_closed_connection_lets_go_of_what_it_sends(void **state)
{
    torture *t = *state;
    char *data = calloc(1, STUCK_BYTES);
    assert_non_null(data);
    for (int way = 0; way < 3; way++) {
        enum { MESSAGES = 3 };
        unsigned released = 0;
        uint64_t bytes;
        spw_payload *payload;
        raw_pair pair = raw_pair_open_away(t->context, 0);
        for (int i = 0; i < MESSAGES; i++) {
            assert_ok(
                payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
            assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
        }
        assert_true(loopback_is_away(pair.ours));
        if (way == 1)
            spw_connection_close(pair.ours);
        if (way == 2) {
            spw_connection_free(pair.ours);
            pair.ours = NULL;
        }
        if (way > 0) {
            assert_int_equal(released, MESSAGES);
            assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
        }
        raw_pair_close(&pair);
        assert_int_equal(released, MESSAGES);
    }
    free(data);
}

static void a_closed_connection_lets_go_of_what_it_receives(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    for (size_t part = 100000; part <= size; part += 50000) {
        raw_pair pair = raw_pair_open_away(t->context, INLINE);
        raw_pair_begin_away(&pair, wire, 100000);
        raw_pair_send(&pair, wire + 100000, part - 100000);
        spw_connection_close(pair.ours);
        assert_ended(pair.ours, CLOSED);
        torture_assert_nothing_charged(t);
        raw_pair_close(&pair);
    }
    free(wire);
}

static void completions_may_go_before_a_closed_connection(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    raw_pair_begin_away(&pair, wire, 100000);
    assert_false(spw_connection_is_inline(pair.ours, size));
    spw_connection_close(pair.ours);
    spw_completions_free(pair.completions);
    spw_reactor_free(pair.reactor);
    pair.completions = NULL;
    pair.reactor = NULL;
    assert_true(spw_connection_is_inline(pair.ours, size));
    assert_ended(pair.ours, CLOSED);
    spw_connection_close(pair.ours);
    raw_pair_close(&pair);
    free(wire);
}

typedef void (*peer_end)(raw_pair *pair);

static void half_close_peer(raw_pair *pair)
{
    assert_int_equal(shutdown(pair->raw, SHUT_WR), 0);
}

/* Wait for the end of ours. Returns: what it is. */
static spw_status wait_for_end(spw_connection *ours, spw_error *error)
{
    spw_payload *message;
    while (spw_connection_is_open(ours))
        if (loopback_receive(ours, NULL, &message, error) == SPW_STATUS_OK)
            spw_payload_free(message);
    return spw_connection_receive(ours, &message, error);
}

/* At many points of a message, with or without a large one on its way out. */
static void ends_as_at_home(torture *t, peer_end end, bool is_sending)
{
    size_t size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    char *data = calloc(1, STUCK_BYTES);
    assert_non_null(data);
    for (size_t part = 9000; part < size; part += 29000) {
        unsigned released = 0;
        uint64_t bytes;
        spw_payload *payload;
        raw_pair pair = raw_pair_open_away(t->context, INLINE);
        raw_pair_begin_away(&pair, wire, 9000);
        assert_ok(
            payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
        if (is_sending)
            assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
        raw_pair_send(&pair, wire + 9000, part - 9000);
        end(&pair);
        /* Who sends as well may meet the end there, and a peer that has unread bytes
         * when it closes resets. */
        spw_status status = wait_for_end(pair.ours, &t->error);
        if (!is_sending && end != raw_pair_reset_peer)
            assert_int_equal(status, SPW_STATUS_TRUNCATED);
        else if (end == half_close_peer)
            assert_int_equal(status, SPW_STATUS_TRUNCATED);
        else
            assert_true(status == SPW_STATUS_RESET || status == SPW_STATUS_TRUNCATED);
        assert_non_null(strstr(t->error.message, "127.0.0.1"));
        assert_ended_as(pair.ours, status);
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
        raw_pair_close(&pair);
        if (!is_sending)
            spw_payload_free(payload);
        assert_int_equal(released, 1);
    }
    free(wire);
    free(data);
}

static void the_peer_closes_at_any_point(void **state)
{
    ends_as_at_home(*state, raw_pair_close_peer, false);
    ends_as_at_home(*state, raw_pair_close_peer, true);
}

static void the_peer_resets_at_any_point(void **state)
{
    ends_as_at_home(*state, raw_pair_reset_peer, false);
    ends_as_at_home(*state, raw_pair_reset_peer, true);
}

static void the_peer_half_closes_at_any_point(void **state)
{
    ends_as_at_home(*state, half_close_peer, false);
    ends_as_at_home(*state, half_close_peer, true);
}

static void a_message_that_came_whole_survives_the_peers_end(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, BODIES, COUNT_OF(BODIES), 4, &size);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    spw_payload *message;
    raw_pair_begin_away(&pair, wire, 100000);
    raw_pair_send(&pair, wire + 100000, size - 100000);
    raw_pair_close_peer(&pair);
    assert_ok(loopback_receive(pair.ours, NULL, &message, &t->error));
    payload_assert(message, BODIES, COUNT_OF(BODIES), 4);
    spw_payload_free(message);
    assert_int_equal(wait_for_end(pair.ours, &t->error), SPW_STATUS_PEER_CLOSED);
    raw_pair_close(&pair);
    free(wire);
}

static void a_failed_send_is_told_at_home(void **state)
{
    torture *t = *state;
    char *data = calloc(1, STUCK_BYTES);
    assert_non_null(data);
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    io_fault_arm_call("send", 1, ETIMEDOUT);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    while (spw_connection_is_open(pair.ours))
        assert_ok(loopback_step(pair.ours, NULL, NULL));
    assert_ended(pair.ours, TIMED_OUT);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    spw_connection_reap(pair.ours);
    assert_int_equal(released, 1);
    /* So does whoever sends before it has heard of it. */
    raw_pair_close(&pair);
    pair = raw_pair_open_away(t->context, 0);
    io_fault_arm_call("send", 1, ETIMEDOUT);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    struct pollfd watched = {spw_completions_descriptor(pair.completions), POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
    assert_ok(payload_wrap(t->context, data, 10, &released, &payload, NULL));
    assert_status(spw_connection_send(pair.ours, payload, &bytes, NULL), TIMED_OUT);
    spw_payload_free(payload);
    assert_int_equal(poll(&watched, 1, 0), 0);
    raw_pair_close(&pair);
    assert_int_equal(released, 3);
    free(data);
}

/* ---- the budget ---- */

static void a_body_that_the_budget_refuses_on_a_thread(void **state)
{
    static const size_t REFUSED[] = {1000, 300000, 8 << 20};
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, REFUSED, COUNT_OF(REFUSED), 4, &size);
    torture_limit(t, 4 << 20);
    raw_pair pair = raw_pair_open_away(t->context, INLINE);
    raw_pair_begin_away(&pair, wire, 100000);
    raw_pair_send(&pair, wire + 100000, 300000);
    assert_int_equal(wait_for_end(pair.ours, &t->error), SPW_STATUS_LIMIT_EXCEEDED);
    assert_non_null(strstr(t->error.message, "budget"));
    assert_ended(pair.ours, LIMIT_EXCEEDED);
    torture_assert_nothing_charged(t);
    raw_pair_close(&pair);
    free(wire);
}

static void a_send_that_the_budget_refuses_while_sending_is_away(void **state)
{
    torture *t = *state;
    torture_limit(t, STUCK_BYTES + 100000);
    char *data = calloc(1, STUCK_BYTES), *sink = malloc(STUCK_BYTES);
    assert_true(data != NULL && sink != NULL);
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload, NULL));
    assert_status(spw_connection_send(pair.ours, payload, &bytes, &t->error),
                  LIMIT_EXCEEDED);
    assert_int_equal(released, 0);
    assert_true(spw_connection_is_open(pair.ours));
    /* The first goes on: it is home now, and goes away again. */
    while (spw_connection_queued_bytes(pair.ours) > 0) {
        assert_true(recv(pair.raw, sink, STUCK_BYTES, MSG_DONTWAIT) != 0);
        if (spw_connection_interest(pair.ours) & SPW_INTEREST_WRITE)
            assert_ok(spw_connection_on_writable(pair.ours, NULL));
    }
    spw_payload_free(payload);
    raw_pair_close(&pair);
    assert_int_equal(released, 2);
    free(data);
    free(sink);
}

/* ---- fork ---- */

static int use_own_in_child(torture *t, loopback *parents)
{
    loopback own;
    uint64_t bytes;
    spw_payload *payload;
    if (payload_make(t->context, SMALL, COUNT_OF(SMALL), 1, &payload, NULL) !=
        SPW_STATUS_OK)
        return 1;
    /* What was away is the parent's, and says so. */
    if (spw_connection_send(parents->client, payload, &bytes, &t->error) !=
            SPW_STATUS_CLOSED ||
        strstr(t->error.message, "parent") == NULL)
        return 2;
    spw_payload_free(payload);
    loopback_close(parents);
    TRY(CHILD_MAY_START_THREADS
            ? loopback_open_away(t->context, 2, INLINE, &own, &t->error)
            : loopback_open(t->context, "127.0.0.1", &own, &t->error));
    TRY(loopback_send_made(t, own.client, BODIES, COUNT_OF(BODIES), 7));
    TRY(loopback_receive_made(t, own.server, own.client, BODIES, COUNT_OF(BODIES), 7));
end:
    loopback_close(&own);
    return t->status == SPW_STATUS_OK ? 0 : 3;
}

static void a_forked_child_has_connections_of_its_own(void **state)
{
    static const size_t BODY[] = {LARGE_BYTES};
    torture *t = *state;
    loopback pair;
    int status;
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, BODY, 1, 1));
    TRY(loopback_send_made(t, pair.server, BODY, 1, 2));
    spw_payload *message;
    while (!(pair.server->receiving.is_away && pair.client->sending.is_away)) {
        TRY_STATUS(spw_connection_receive(pair.server, &message, &t->error), AGAIN);
        TRY(loopback_step(pair.server, NULL, &t->error));
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(use_own_in_child(t, &pair));
    TRY(loopback_receive_made(t, pair.server, pair.client, BODY, 1, 1));
    TRY(loopback_receive_made(t, pair.client, pair.server, BODY, 1, 2));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
end:
    loopback_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_closed_connection_lets_go_of_what_it_sends),
        SCENARIO(a_closed_connection_lets_go_of_what_it_receives),
        SCENARIO(completions_may_go_before_a_closed_connection),
        SCENARIO(the_peer_closes_at_any_point),
        SCENARIO(the_peer_resets_at_any_point),
        SCENARIO(the_peer_half_closes_at_any_point),
        SCENARIO(a_message_that_came_whole_survives_the_peers_end),
        SCENARIO(a_failed_send_is_told_at_home),
        SCENARIO(a_body_that_the_budget_refuses_on_a_thread),
        SCENARIO(a_send_that_the_budget_refuses_while_sending_is_away),
        SCENARIO(a_forked_child_has_connections_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
