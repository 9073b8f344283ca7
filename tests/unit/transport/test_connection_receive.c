/* Receiving, mostly from a raw peer that sends what and when it likes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"

static const size_t SMALL[] = {120, 0, 100};

/* ---- pieces ---- */

static void receives_a_message_split_at_every_byte(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 9, &size);
    raw_pair pair = raw_pair_open(t->context);
    for (size_t split = 1; split < size; split++) {
        spw_payload *payload;
        assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
        raw_pair_send(&pair, wire, split);
        uint64_t before = torture_figures(t).bytes_received;
        while (torture_figures(t).bytes_received < before + split)
            assert_ok(loopback_step(pair.ours, NULL, NULL));
        assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
        if (split >= 8)
            assert_true(spw_connection_missing_bytes(pair.ours) > 0);
        raw_pair_send(&pair, wire + split, size - split);
        assert_ok(loopback_receive_made(t, pair.ours, NULL, SMALL, COUNT_OF(SMALL), 9));
        assert_int_equal(spw_connection_missing_bytes(pair.ours), 0);
    }
    raw_pair_close(&pair);
    free(wire);
}

static void moves_a_message_in_pieces_of_any_size(void **state)
{
    static const size_t SIZES[] = {100, 20000, 5000, 0, 12};
    static const size_t LIMITS[] = {1, 2, 3, 7, 8, 9, 100, 4096, 5000, 65536};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    for (unsigned i = 0; i < COUNT_OF(LIMITS); i++) {
        io_fault_limit(LIMITS[i]);
        TRY(loopback_send_made(t, pair.client, SIZES, COUNT_OF(SIZES), i));
        TRY(loopback_receive_made(t, pair.server, pair.client, SIZES, COUNT_OF(SIZES),
                                  i));
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    }
end:
    loopback_close(&pair);
}

/* ---- the peer ends ---- */

static void peer_closes_after(torture *t, const char *wire, size_t sent, size_t size,
                              bool is_wanted)
{
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    spw_error error;
    if (is_wanted)
        assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
    raw_pair_send(&pair, wire, sent);
    raw_pair_close_peer(&pair);
    if (sent == size)
        assert_ok(loopback_receive_made(t, pair.ours, NULL, SMALL, COUNT_OF(SMALL), 4));
    spw_status status = loopback_receive(pair.ours, NULL, &payload, &error);
    if (sent == 0 || sent == size) {
        assert_int_equal(status, SPW_STATUS_PEER_CLOSED);
        assert_ended(pair.ours, PEER_CLOSED);
    } else {
        char missing[64];
        snprintf(missing, sizeof missing, "at least %zu bytes", size - sent);
        assert_int_equal(status, SPW_STATUS_TRUNCATED);
        assert_non_null(strstr(error.message, "127.0.0.1:"));
        /* Once the lengths are known, the number is exact. */
        if (sent >= 8 * (2 + COUNT_OF(SMALL)))
            assert_non_null(strstr(error.message, missing));
        assert_ended(pair.ours, TRUNCATED);
        assert_int_equal(torture_charged(t, SPW_CHARGE_IN_FLIGHT), 0);
    }
    raw_pair_close(&pair);
}

static void tells_at_which_byte_the_peer_closed(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 4, &size);
    for (size_t sent = 0; sent <= size; sent++) {
        peer_closes_after(t, wire, sent, size, false);
        peer_closes_after(t, wire, sent, size, true);
    }
    free(wire);
    spw_figures figures = torture_figures(t);
    assert_int_equal(figures.connections_opened, 2 * (size + 1));
    assert_int_equal(figures.connections_failed, 2 * (size - 1));
    assert_int_equal(figures.connections_closed, 4);
}

static void an_idle_connection_notices_that_its_peer_closed(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    assert_int_equal(spw_connection_interest(pair.ours), SPW_INTEREST_READ);
    raw_pair_close_peer(&pair);
    assert_ok(loopback_step(pair.ours, NULL, NULL));
    assert_false(spw_connection_is_open(pair.ours));
    assert_ended(pair.ours, PEER_CLOSED);
    raw_pair_close(&pair);
}

static void a_half_closed_peer_counts_as_closed(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    spw_error error;
    assert_int_equal(shutdown(pair.raw, SHUT_WR), 0);
    assert_status(loopback_receive(pair.ours, NULL, &payload, &error), PEER_CLOSED);
    assert_ended(pair.ours, PEER_CLOSED);
    assert_status(loopback_send_made(t, pair.ours, SMALL, COUNT_OF(SMALL), 1),
                  PEER_CLOSED);
    raw_pair_close(&pair);
}

static void a_reset_is_told_with_errno_and_peer(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    spw_error error;
    assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
    raw_pair_reset_peer(&pair);
    assert_status(loopback_receive(pair.ours, NULL, &payload, &error), RESET);
    assert_int_not_equal(error.os_errno, 0);
    assert_non_null(strstr(error.message, "127.0.0.1:"));
    assert_ended(pair.ours, RESET);
    assert_int_equal(torture_figures(t).connections_failed, 1);
    raw_pair_close(&pair);
}

static void garbage_ends_the_connection(void **state)
{
    torture *t = *state;
    char garbage[256];
    memset(garbage, 0xfe, sizeof garbage);
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    spw_error error;
    raw_pair_send(&pair, garbage, sizeof garbage);
    spw_status status = loopback_receive(pair.ours, NULL, &payload, &error);
    assert_true(status == SPW_STATUS_PROTOCOL || status == SPW_STATUS_LIMIT_EXCEEDED);
    assert_false(spw_connection_is_open(pair.ours));
    assert_true(spw_connection_descriptor(pair.ours) >= 0);
    spw_connection_let_go(pair.ours);
    assert_int_equal(spw_connection_descriptor(pair.ours), -1);
    assert_int_equal(spw_connection_receive(pair.ours, &payload, &error), status);
    raw_pair_close(&pair);
}

static void messages_before_garbage_are_received(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 5, &size);
    char *both = malloc(size + 100);
    assert_non_null(both);
    memcpy(both, wire, size);
    memset(both + size, 0xff, 100);
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    raw_pair_send(&pair, both, size + 100);
    assert_ok(loopback_receive_made(t, pair.ours, NULL, SMALL, COUNT_OF(SMALL), 5));
    spw_status status = loopback_receive(pair.ours, NULL, &payload, NULL);
    assert_true(status == SPW_STATUS_PROTOCOL || status == SPW_STATUS_LIMIT_EXCEEDED);
    assert_false(spw_connection_is_open(pair.ours));
    raw_pair_close(&pair);
    free(both);
    free(wire);
}

/* ---- nobody waits ---- */

static void what_nobody_waits_for_takes_no_memory(void **state)
{
    static const size_t LARGE[] = {50, 1 << 20};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, LARGE, COUNT_OF(LARGE), 6));
    while (spw_connection_interest(pair.server) & SPW_INTEREST_READ)
        TRY(loopback_step(pair.server, NULL, &t->error));
    assert_true(torture_figures(t).bytes_received <= 64 * 1024);
    assert_int_equal(torture_charged(t, SPW_CHARGE_IN_FLIGHT), 0);
    assert_int_equal(spw_connection_interest(pair.server), 0);
    TRY(loopback_receive_made(t, pair.server, pair.client, LARGE, COUNT_OF(LARGE), 6));
    assert_int_equal(spw_connection_interest(pair.server), SPW_INTEREST_READ);
end:
    loopback_close(&pair);
}

static void many_messages_come_from_one_read(void **state)
{
    enum { MESSAGES = 100 };
    torture *t = *state;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    for (unsigned i = 0; i < MESSAGES; i++)
        TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), i));
    TRY(loopback_receive_made(t, pair.server, NULL, SMALL, COUNT_OF(SMALL), 0));
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    for (unsigned i = 1; i < MESSAGES; i++)
        TRY(loopback_receive_made(t, pair.server, NULL, SMALL, COUNT_OF(SMALL), i));
    assert_true(io_fault_calls_of("receive") <= 2);
end:
    loopback_close(&pair);
}

/* A read that filled the read-ahead is followed by the next as soon as its messages are
 * taken: a burst does not wait for the loop every 64 KiB. */
static void a_burst_is_received_in_one_turn(void **state)
{
    enum { MESSAGES = 400 };
    torture *t = *state;
    size_t size;
    int waiting = 0;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 5, &size);
    raw_pair pair = raw_pair_open(t->context);
    assert_true(MESSAGES * size > 64 * 1024);
    for (int i = 0; i < MESSAGES; i++)
        raw_pair_send(&pair, wire, size);
    while ((size_t)waiting < MESSAGES * size) /* what was sent, in the kernel's hands */
        assert_int_equal(
            ioctl(spw_connection_descriptor(pair.ours), FIONREAD, &waiting), 0);
    assert_ok(spw_connection_on_readable(pair.ours));
    for (int i = 0; i < MESSAGES; i++) {
        spw_payload *payload;
        assert_ok(spw_connection_receive(pair.ours, &payload, NULL));
        spw_payload_free(payload);
    }
    raw_pair_close(&pair);
    free(wire);
}

static void half_a_message_costs_one_call(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 5, &size);
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
    raw_pair_send(&pair, wire, size / 2);
    assert_ok(loopback_step(pair.ours, NULL, NULL));
    assert_int_equal(torture_figures(t).bytes_received, size / 2);
    assert_int_equal(io_fault_calls_of("receive"), 1);
    assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
    assert_int_equal(io_fault_calls_of("receive"), 1);
    raw_pair_close(&pair);
    free(wire);
}

/* The rest of a body goes straight to its place, and only what comes with it is copied.
 */
static void a_body_is_not_copied(void **state)
{
    static const size_t LARGE[] = {50, 1 << 20};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, LARGE, COUNT_OF(LARGE), 6));
    TRY(loopback_receive_made(t, pair.server, pair.client, LARGE, COUNT_OF(LARGE), 6));
    assert_true(torture_figures(t).copied_bytes[SPW_COPY_READ_AHEAD] <= 64 * 1024);
end:
    loopback_close(&pair);
}

static void what_was_read_survives_a_failed_send(void **state)
{
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, SMALL, COUNT_OF(SMALL), 5, &size);
    raw_pair pair = raw_pair_open(t->context);
    /* Two messages and half of a third, in one piece, end up in the read-ahead. */
    char *wires = malloc(3 * size);
    assert_non_null(wires);
    for (size_t i = 0; i < 3; i++)
        memcpy(wires + i * size, wire, size);
    raw_pair_send(&pair, wires, 2 * size + size / 2);
    assert_ok(loopback_step(pair.ours, NULL, NULL));
    assert_int_equal(torture_figures(t).bytes_received, 2 * size + size / 2);
    io_fault_arm_call("send", 1, 0);
    assert_status(loopback_send_made(t, pair.ours, SMALL, COUNT_OF(SMALL), 1), RESET);
    assert_false(spw_connection_is_open(pair.ours));
    for (int i = 0; i < 2; i++)
        assert_ok(loopback_receive_made(t, pair.ours, NULL, SMALL, COUNT_OF(SMALL), 5));
    assert_ended(pair.ours, RESET);
    raw_pair_close(&pair);
    free(wires);
    free(wire);
}

static void a_message_beyond_the_budget_ends_its_receiver(void **state)
{
    static const size_t LARGE[] = {50, 1 << 20};
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, LARGE, COUNT_OF(LARGE), 4, &size);
    torture_limit(t, 100000);
    spw_payload *payload;
    raw_pair pair = raw_pair_open(t->context);
    raw_pair_send(&pair, wire, 5000);
    assert_status(loopback_receive(pair.ours, NULL, &payload, NULL), LIMIT_EXCEEDED);
    assert_ended(pair.ours, LIMIT_EXCEEDED);
    raw_pair_close(&pair);
    free(wire);
}

/* ---- what reading ahead costs ---- */

/* Receive that many messages, which the peer has sent. Returns: in how many calls. */
static uint64_t receive_burst(const raw_pair *pair, unsigned count)
{
    spw_payload *payload;
    uint64_t before = io_fault_calls_of("receive");
    for (unsigned i = 0; i < count; i++) {
        assert_ok(loopback_receive(pair->ours, NULL, &payload, NULL));
        spw_payload_free(payload);
    }
    assert_status(spw_connection_receive(pair->ours, &payload, NULL), AGAIN);
    return io_fault_calls_of("receive") - before;
}

static void a_burst_takes_room_that_it_does_not_keep(void **state)
{
    enum { BURST = 200, LEAST = 8 * 1024, MOST = 64 * 1024 };
    static const size_t SIZES[] = {600, 400};
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, SIZES, COUNT_OF(SIZES), 1, &size);
    char *burst = malloc(BURST * size);
    assert_non_null(burst);
    for (size_t i = 0; i < BURST; i++)
        memcpy(burst + i * size, wire, size);
    raw_pair pair = raw_pair_open(t->context);
    uint64_t fresh = t->allocator.live_bytes;
    raw_pair_send(&pair, wire, size);
    receive_burst(&pair, 1);
    uint64_t idle = t->allocator.live_bytes;
    assert_in_range(idle - fresh, LEAST, 2 * LEAST);
    t->allocator.peak_bytes = idle;
    raw_pair_send(&pair, burst, BURST * size);
    assert_in_range(receive_burst(&pair, BURST), 3, 12);
    assert_in_range(t->allocator.peak_bytes - idle, MOST - LEAST, 2 * MOST);
    assert_true(t->allocator.live_bytes <= idle);
    raw_pair_send(&pair, wire, size);
    receive_burst(&pair, 1);
    assert_int_equal(t->allocator.live_bytes, idle);
    raw_pair_close(&pair);
    free(burst);
    free(wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(receives_a_message_split_at_every_byte),
        SCENARIO(moves_a_message_in_pieces_of_any_size),
        SCENARIO(tells_at_which_byte_the_peer_closed),
        SCENARIO(an_idle_connection_notices_that_its_peer_closed),
        SCENARIO(a_half_closed_peer_counts_as_closed),
        SCENARIO(a_reset_is_told_with_errno_and_peer),
        SCENARIO(garbage_ends_the_connection),
        SCENARIO(messages_before_garbage_are_received),
        SCENARIO(what_nobody_waits_for_takes_no_memory),
        SCENARIO(many_messages_come_from_one_read),
        SCENARIO(a_burst_is_received_in_one_turn),
        SCENARIO(half_a_message_costs_one_call),
        SCENARIO(a_body_is_not_copied),
        SCENARIO(what_was_read_survives_a_failed_send),
        SCENARIO(a_message_beyond_the_budget_ends_its_receiver),
        SCENARIO(a_burst_takes_room_that_it_does_not_keep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
