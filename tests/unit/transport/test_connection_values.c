/* Values that a sink takes to memory or to disk, on real connections, with the sink of
 * a store: by the stream and from the memory of a peer of this host. */
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "disk_fault.h"
#include "host_fault.h"
#include "loopback.h"
#include "transport/connection_state.h"
#include "value_messages.h"

enum { MIB = 1 << 20 };
/* More than a window, odd sizes, and frames without any byte. */
static const size_t MIXED[] = {0, 100, MIB + 4321, 0, 70001, 3, 2 * MIB, 0};
static const size_t LARGE[] = {3 * MIB + 1};
static const size_t SMALL[] = {MIB / 2, 100};
/* Little enough for a suite that runs some hundred times. */
static const size_t LEAST[] = {MIB + 1};

#define MESSAGE(count, of, number)                                                     \
    ((value_message){                                                                  \
        .values = (count), .sizes = (of), .frames = COUNT_OF(of), .seed = (number)})

static spw_status send_values(torture *t, spw_connection *sender,
                              const value_message *message)
{
    spw_payload *payload;
    uint64_t bytes;
    spw_status status = value_message_make(t->context, message, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_connection_send(sender, payload, &bytes, &t->error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

static spw_status ask(torture *t, spw_connection *receiver, const value_store *at)
{
    spw_value_sink *sink;
    spw_status status = spw_store_create_sink(at->store, NULL, &sink, &t->error);
    if (status == SPW_STATUS_OK)
        spw_connection_receive_values(receiver, sink);
    return status;
}

/* Receive a message for a store, and see that all of it is there. Returns: how many of
 * its values are on disk. */
static spw_status receive(torture *t, const loopback *pair, const value_store *at,
                          const value_message *message, spw_payload **ret_payload,
                          size_t *ret_on_disk)
{
    spw_payload *payload;
    *ret_on_disk = 0;
    spw_status status = ask(t, pair->server, at);
    if (status == SPW_STATUS_OK)
        status = loopback_receive(pair->server, pair->client, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; i < message->values && status == SPW_STATUS_OK; i++) {
        spw_payload *value;
        status =
            value_message_value(t->context, payload, message, i, &value, &t->error);
        if (status != SPW_STATUS_OK)
            break;
        status = value_message_check(t->context, value, message, i, &t->error);
        *ret_on_disk += value_message_is_on_disk(value);
        spw_payload_free(value);
    }
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    else
        *ret_payload = payload;
    return status;
}

/* The same, of which nothing is kept. */
static spw_status pass(torture *t, const loopback *pair, const value_store *at,
                       const value_message *message, size_t *ret_on_disk)
{
    spw_payload *payload;
    spw_status status = send_values(t, pair->client, message);
    if (status == SPW_STATUS_OK)
        status = receive(t, pair, at, message, &payload, ret_on_disk);
    if (status == SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

/* ----- by the stream ----- */

static void what_does_not_fit_comes_to_disk(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 1, &pair, &t->error));
    value_message message = MESSAGE(1, LEAST, 1);
    TRY(pass(t, &pair, &at, &message, &on_disk));
    /* Where the fault met the disk before the value, it is in memory. */
    assert_int_equal(on_disk, value_store_figures(&at).received);
    /* Nobody is asked about the next. */
    TRY(send_values(t, pair.client, &message));
    spw_payload *payload;
    TRY(loopback_receive(pair.server, pair.client, &payload, &t->error));
    assert_int_equal(spw_payload_slices(payload)[2].kind, SPW_MEMORY_HOST);
    spw_payload_free(payload);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void values_of_every_kind_come_whole(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    value_message mixed = MESSAGE(3, MIXED, 1), large = MESSAGE(2, LARGE, 2),
                  small = MESSAGE(5, SMALL, 3);
    TRY(pass(t, &pair, &at, &mixed, &on_disk));
    assert_int_equal(on_disk, 3);
    TRY(pass(t, &pair, &at, &small, &on_disk));
    assert_int_equal(on_disk, 0);
    TRY(pass(t, &pair, &at, &large, &on_disk));
    assert_int_equal(on_disk, 2);
    spw_store_figures figures = value_store_figures(&at);
    assert_int_equal(figures.received, 5);
    assert_true(figures.received_bytes >= 3 * (3 * MIB + 74425) + 2 * LARGE[0]);
    assert_int_equal(figures.written_bytes, 0);
    /* Nobody kept any of it. */
    value_store_wait_for_space(&at, 0);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void memory_is_a_window(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    static const size_t HUGE[] = {24 * MIB};
    value_message message = MESSAGE(1, HUGE, 1);
    spw_payload *payload, *received;
    uint64_t bytes;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(value_message_make(t->context, &message, &payload, &t->error));
    TRY(spw_connection_send(pair.client, payload, &bytes, &t->error));
    spw_budget_figures before, after;
    spw_budget_read(t->budget, &before);
    TRY(ask(t, pair.server, &at));
    TRY(loopback_receive(pair.server, pair.client, &received, &t->error));
    spw_budget_read(t->budget, &after);
    assert_true(after.peak_bytes - before.peak_bytes < 2 * MIB);
    TRY(value_message_value(t->context, received, &message, 0, &payload, &t->error));
    TRY(value_message_check(t->context, payload, &message, 0, &t->error));
    on_disk = value_message_is_on_disk(payload);
    assert_int_equal(on_disk, 1);
    spw_payload_free(payload);
    spw_payload_free(received);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void without_threads_all_comes_to_memory(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    value_message message = MESSAGE(1, LEAST, 1);
    TRY(pass(t, &pair, &at, &message, &on_disk));
    assert_int_equal(on_disk, 0);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

/* ----- from memory to memory ----- */

static spw_status open_host(torture *t, bool uses_descriptors, loopback *pair)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.uses_descriptors = uses_descriptors;
    spw_status status = loopback_open_host(t->context, 2, &options, pair, &t->error);
    return status == SPW_STATUS_OK ? loopback_meet(t, pair->client, pair->server)
                                   : status;
}

static void what_a_peer_has_comes_to_disk(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(open_host(t, false, &pair));
    value_message message = MESSAGE(1, LEAST, 1);
    TRY(pass(t, &pair, &at, &message, &on_disk));
    /* Where the fault met the disk before the value, it is in memory. */
    assert_int_equal(on_disk, value_store_figures(&at).received);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void pass_by(torture *t, bool uses_descriptors, spw_host_way way)
{
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    TRY(value_store_open(t, 1, 0, &at));
    if (way != SPW_HOST_BY_ADDRESS)
        host_fault_refuse_reads(1);
    TRY(open_host(t, uses_descriptors, &pair));
    spw_figures before = torture_figures(t);
    for (unsigned i = 0; i < 3; i++) {
        value_message mixed = MESSAGE(2, MIXED, i);
        TRY(pass(t, &pair, &at, &mixed, &on_disk));
        assert_int_equal(on_disk, 2);
    }
    spw_figures after = torture_figures(t);
    assert_true(way != SPW_HOST_BY_ADDRESS ||
                after.host_bytes_by_address - before.host_bytes_by_address >
                    3 * 2 * (3 * MIB));
    assert_true(way != SPW_HOST_BY_DESCRIPTOR ||
                after.host_bytes_by_descriptor - before.host_bytes_by_descriptor >
                    3 * 2 * (3 * MIB));
end:
    host_fault_refuse_reads(0);
    loopback_close(&pair);
    value_store_close(&at);
}

static void by_address(void **state)
{
    pass_by(*state, false, SPW_HOST_BY_ADDRESS);
}

static void by_descriptor(void **state)
{
    pass_by(*state, true, SPW_HOST_BY_DESCRIPTOR);
}

static void by_the_side_channel(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(open_host(t, false, &pair));
    value_message mixed = MESSAGE(2, MIXED, 1);
    TRY(send_values(t, pair.client, &mixed));
    /* What was announced by its address comes over the side channel. */
    host_fault_refuse_reads(1);
    spw_payload *payload;
    TRY(receive(t, &pair, &at, &mixed, &payload, &on_disk));
    assert_int_equal(on_disk, 2);
    spw_payload_free(payload);
    assert_true(torture_figures(t).host_bytes_by_stream > 3 * MIB);
end:
    host_fault_refuse_reads(0);
    loopback_close(&pair);
    value_store_close(&at);
}

/* ----- a disk that is slow, full, or fails ----- */

typedef struct gate {
    sem_t reached, open;
    _Atomic bool is_open;
} gate;

static void stop_at(void *user, disk_fault_way way)
{
    gate *at = user;
    (void)way;
    if (at->is_open)
        return;
    (void)sem_post(&at->reached);
    (void)sem_wait(&at->open);
}

static void gate_close(gate *at)
{
    (void)sem_init(&at->reached, 0, 0);
    (void)sem_init(&at->open, 0, 0);
    at->is_open = false;
    disk_fault_during(DISK_FAULT_WRITING, stop_at, at);
}

/* For all who wait: the store has two threads. */
static void gate_open(gate *at)
{
    at->is_open = true;
    (void)sem_post(&at->open);
    (void)sem_post(&at->open);
}

/* Step until a write has begun, and the receiver waits for it. */
static void until_disk(gate *at, spw_connection *receiver, spw_connection *sender)
{
    spw_payload *none;
    while (sem_trywait(&at->reached) != 0) {
        if (!receiver->receiving.is_away)
            assert_status(spw_connection_receive(receiver, &none, NULL), AGAIN);
        if (!receiver->receiving.is_away)
            assert_ok(loopback_step(receiver, sender, NULL));
    }
}

static void a_slow_disk_stops_the_peer(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    gate disk;
    size_t on_disk;
    static const size_t HUGE[] = {32 * MIB};
    value_message message = MESSAGE(1, HUGE, 1);
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(send_values(t, pair.client, &message));
    gate_close(&disk);
    TRY(ask(t, pair.server, &at));
    until_disk(&disk, pair.server, pair.client);
    assert_true(torture_figures(t).bytes_received < MIB);
    /* The owner can do other things. */
    assert_true(spw_connection_interest(pair.server) & SPW_INTEREST_COMPLETION);
    gate_open(&disk);
    spw_payload *payload;
    TRY(receive(t, &pair, &at, &message, &payload, &on_disk));
    assert_int_equal(on_disk, 1);
    spw_payload_free(payload);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void closed_while_the_disk_is_at_it(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    gate disk;
    value_message message = MESSAGE(1, LARGE, 1);
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(send_values(t, pair.client, &message));
    gate_close(&disk);
    TRY(ask(t, pair.server, &at));
    until_disk(&disk, pair.server, pair.client);
    spw_connection_close(pair.server);
    gate_open(&disk);
    value_store_wait_for_space(&at, 0);
    /* The window goes when the last write has ended. */
    while (torture_charged(t, SPW_CHARGE_SPILLING) > 0)
        ;
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void ended_otherwise_while_the_disk_is_at_it(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    gate disk;
    value_message message = MESSAGE(1, LARGE, 1);
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(send_values(t, pair.client, &message));
    gate_close(&disk);
    TRY(ask(t, pair.server, &at));
    until_disk(&disk, pair.server, pair.client);
    spw_error why = {.status = SPW_STATUS_RESET};
    spw__connection_end(pair.server, &why);
    spw_connection_let_go(pair.server);
    gate_open(&disk); /* who is woken now is gone */
    value_store_wait_for_space(&at, 0);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void a_lost_peer_leaves_nothing(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    gate disk;
    spw_payload *payload;
    static const size_t HUGE[] = {32 * MIB};
    value_message message = MESSAGE(1, HUGE, 1);
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(send_values(t, pair.client, &message));
    gate_close(&disk);
    TRY(ask(t, pair.server, &at));
    until_disk(&disk, pair.server, pair.client);
    spw_connection_close(pair.client);
    gate_open(&disk);
    assert_status(loopback_receive(pair.server, NULL, &payload, &t->error), TRUNCATED);
    value_store_wait_for_space(&at, 0);
    assert_int_equal(value_store_figures(&at).received, 0);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void a_store_that_closes_ends_the_message(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    gate disk;
    spw_payload *payload;
    value_message message = MESSAGE(1, LARGE, 1);
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(send_values(t, pair.client, &message));
    gate_close(&disk);
    TRY(ask(t, pair.server, &at));
    until_disk(&disk, pair.server, pair.client);
    spw_store_close(at.store);
    gate_open(&disk);
    assert_status(loopback_receive(pair.server, pair.client, &payload, &t->error),
                  CLOSED);
end:
    value_store_close(&at); /* before the connection, which had its sink */
    loopback_close(&pair);
}

static void a_disk_that_fails_at_first_is_not_used(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    value_message message = MESSAGE(1, LARGE, 1);
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    disk_fault_room(0);
    TRY(pass(t, &pair, &at, &message, &on_disk));
    assert_int_equal(on_disk, 0);
    assert_int_equal(value_store_figures(&at).failures, 1);
    assert_non_null(strstr(t->last_log_line, "taken to memory"));
    unsigned lines = t->log_lines;
    /* It is not asked again for a while, and nothing more is said. */
    TRY(pass(t, &pair, &at, &message, &on_disk));
    assert_int_equal(on_disk, 0);
    assert_int_equal(t->log_lines, lines);
    assert_int_equal(value_store_figures(&at).failures, 1);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void a_disk_that_fails_in_the_middle_ends_the_connection(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    value_message message = MESSAGE(1, LARGE, 1);
    spw_payload *payload;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    disk_fault_room(2 * MIB);
    TRY(send_values(t, pair.client, &message));
    TRY(ask(t, pair.server, &at));
    assert_status(loopback_receive(pair.server, pair.client, &payload, &t->error), IO);
    assert_non_null(strstr(t->error.message, "bytes that arrive to disk"));
    assert_false(spw_connection_is_open(pair.server));
    value_store_wait_for_space(&at, 0);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

static void what_is_beyond_the_limit_on_disk_comes_to_memory(void **state)
{
    torture *t = *state;
    loopback pair = {0};
    value_store at;
    size_t on_disk;
    value_message large = MESSAGE(1, LARGE, 1), least = MESSAGE(1, LEAST, 2);
    TRY(value_store_open(t, 1, 2 * MIB, &at));
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(pass(t, &pair, &at, &large, &on_disk));
    assert_int_equal(on_disk, 0);
    TRY(pass(t, &pair, &at, &least, &on_disk));
    assert_int_equal(on_disk, 1);
    assert_int_equal(value_store_figures(&at).failures, 0);
end:
    loopback_close(&pair);
    value_store_close(&at);
}

int main(void)
{
    const struct CMUnitTest once[] = {
        SCENARIO(values_of_every_kind_come_whole),
        SCENARIO(memory_is_a_window),
        SCENARIO(without_threads_all_comes_to_memory),
        SCENARIO(by_address),
        SCENARIO(by_descriptor),
        SCENARIO(by_the_side_channel),
        SCENARIO(a_slow_disk_stops_the_peer),
        SCENARIO(closed_while_the_disk_is_at_it),
        SCENARIO(ended_otherwise_while_the_disk_is_at_it),
        SCENARIO(a_lost_peer_leaves_nothing),
        SCENARIO(a_store_that_closes_ends_the_message),
        SCENARIO(a_disk_that_fails_at_first_is_not_used),
        SCENARIO(a_disk_that_fails_in_the_middle_ends_the_connection),
        SCENARIO(what_is_beyond_the_limit_on_disk_comes_to_memory),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(what_does_not_fit_comes_to_disk),
        SCENARIO(what_a_peer_has_comes_to_disk),
    };
    return cmocka_run_group_tests(once, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("connection_values", scenarios);
}
