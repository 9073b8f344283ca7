/* Bodies between two processes, the other one being slow, stopped or killed. */
#include <string.h>

#include "host_fault.h"
#include "host_peer.h"
#include "host_sizes.h"
#include "payloads.h"
#include "transport/connection_state.h"

/* For more messages than there is room for receipts, and a thread brings each. */
static const size_t STOPPED[] = {(3 << 20) + 1, 10};
enum { STOPPED_MESSAGES = 40 };

static void a_receipt_waits_for_room_as_long_as_it_takes(void **state)
{
    enum { MESSAGES = 1000 };
    static char body[262144];
    torture *t = *state;
    host_peer peer;
    host_peer_start(t, "stops", NULL, 2, &peer);
    spw_connection *connection = peer.side.connection;
    host_side_meet(t, &peer.side, true);
    /* It sends all, then stops; what it has in the socket then is more receipts than
     * fit there. */
    spw_payload *message;
    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_ok(loopback_receive(connection, NULL, &message, NULL));
        const spw_slice *slices = spw_payload_slices(message);
        memset(body, (int)i, sizeof body);
        assert_memory_equal(spw_slice_data(&slices[0]), body, sizeof body);
        spw_payload_free(message);
    }
    host_side_tell(&peer.side); /* it goes on, and ends once all is taken */
    host_side_await(&peer.side);
    host_peer_end(&peer);
}

/* Neither do bodies that a thread brings wait until there is room for receipts. */
static void a_stopped_sender_is_read_to_the_end(void **state)
{
    torture *t = *state;
    host_peer peer;
    host_peer_start(t, "stops large", NULL, 2, &peer);
    host_side_meet(t, &peer.side, true);
    for (unsigned i = 0; i < STOPPED_MESSAGES; i++)
        assert_ok(loopback_receive_made(t, peer.side.connection, NULL, STOPPED,
                                        COUNT_OF(STOPPED), i));
    spw_figures figures = torture_figures(t);
    assert_true(figures.host_bytes_by_address >= STOPPED_MESSAGES * STOPPED[0]);
    host_side_tell(&peer.side);
    host_side_await(&peer.side);
    host_peer_end(&peer);
}

enum { ROUNDS = 6 };

/* Send back whatever comes, until the other side says that it is done. */
static void play_echo(torture *t, host_side *side)
{
    host_side_meet(t, side, false);
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw_payload *message;
        uint64_t bytes;
        assert_ok(loopback_receive(side->connection, NULL, &message, NULL));
        assert_ok(spw_connection_send(side->connection, message, &bytes, NULL));
    }
    assert_ok(loopback_settle(side->connection, NULL, NULL));
    host_side_await(side);
}

static void between_two_processes(torture *t, const spw_meetings_options *options)
{
    static const size_t MANY[] = {5, MANY_BYTES, 300000, 17, 1 << 20};
    host_peer peer;
    host_peer_start(t, "echo", options, 2, &peer);
    spw_connection *connection = peer.side.connection;
    host_side_meet(t, &peer.side, true);
    /* All at once: it sends back while it receives. */
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_ok(i % 3 == 0   ? loopback_send_made(t, connection, MANY, 5, i)
                  : i % 3 == 1 ? loopback_send_made(t, connection, SMALL, 3, i)
                               : loopback_send_made(t, connection, MIXED, 7, i));
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_ok(i % 3 == 0 ? loopback_receive_made(t, connection, NULL, MANY, 5, i)
                  : i % 3 == 1
                      ? loopback_receive_made(t, connection, NULL, SMALL, 3, i)
                      : loopback_receive_made(t, connection, NULL, MIXED, 7, i));
    assert_ok(loopback_settle(connection, NULL, NULL));
    host_side_tell(&peer.side);
    host_peer_end(&peer);
}

static void data_between_two_processes_by_address(void **state)
{
    between_two_processes(*state, NULL);
    spw_figures figures = torture_figures(*state);
    assert_int_equal(figures.host_refusals, 0);
    assert_true(figures.host_bytes_by_address > 2 * (uint64_t)MANY_BYTES);
    assert_int_equal(figures.host_bytes_by_address, figures.host_bytes_sent);
    assert_in_range(figures.bytes_received - figures.host_bytes_by_address, 1, 1 << 20);
}

static void data_between_two_processes_by_descriptor(void **state)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.best = SPW_HOST_BY_DESCRIPTOR;
    options.uses_descriptors = true;
    between_two_processes(*state, &options);
    spw_figures figures = torture_figures(*state);
    assert_int_equal(figures.host_bytes_by_address, 0);
    assert_int_equal(figures.host_bytes_by_descriptor, figures.host_bytes_sent);
}

static void data_between_two_processes_by_stream(void **state)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.best = SPW_HOST_BY_STREAM;
    between_two_processes(*state, &options);
    assert_int_equal(torture_figures(*state).host_bytes_sent, 0);
}

/* Send more messages than a socket has room for receipts, and hear of none before all
 * have been taken. */
static void play_stops(torture *t, host_side *side)
{
    enum { MESSAGES = 1000 };
    static char body[262144];
    host_side_meet(t, side, false);
    for (unsigned i = 0; i < MESSAGES; i++) {
        spw_payload *payload;
        spw_slice slice = {.size = sizeof body, .plain_size = sizeof body};
        uint64_t bytes;
        assert_ok(spw_payload_create(t->context, 1, &payload, NULL));
        assert_ok(spw_buffer_create(t->context, sizeof body, SPW_CHARGE_HELD,
                                    &slice.buffer, NULL));
        memset(spw_buffer_data(slice.buffer), (int)i, sizeof body);
        assert_ok(spw_payload_append(payload, &slice, NULL));
        assert_ok(spw_connection_send(side->connection, payload, &bytes, NULL));
        /* The thread that would hear it is called home, and stays there. */
        spw__connection_call_home(side->connection, &side->connection->announcing);
    }
    assert_int_equal(torture_figures(t).host_bytes_sent, MESSAGES * sizeof body);
    while (spw__send_queue_unsent(&side->connection->queue) > 0)
        assert_ok(loopback_step(side->connection, NULL, NULL));
    host_side_await(side);
    spw_connection_reap(side->connection);
    assert_ok(loopback_settle(side->connection, NULL, NULL));
    assert_int_equal(spw_connection_queued_bytes(side->connection), 0);
    host_side_tell(side);
}

/* The same, each of more than the owner's thread brings. */
static void play_stops_large(torture *t, host_side *side)
{
    host_side_meet(t, side, false);
    for (unsigned i = 0; i < STOPPED_MESSAGES; i++) {
        assert_ok(
            loopback_send_made(t, side->connection, STOPPED, COUNT_OF(STOPPED), i));
        spw__connection_call_home(side->connection, &side->connection->announcing);
    }
    assert_int_equal(torture_figures(t).host_bytes_sent, STOPPED_MESSAGES * STOPPED[0]);
    host_side_await(side);
    spw_connection_reap(side->connection);
    assert_ok(loopback_settle(side->connection, NULL, NULL));
    assert_int_equal(spw_connection_queued_bytes(side->connection), 0);
    host_side_tell(side);
}

/* Announce something, and wait to be killed. */
static void play_victim(torture *t, host_side *side)
{
    static const size_t MANY[] = {MANY_BYTES};
    host_side_meet(t, side, false);
    assert_ok(loopback_send_made(t, side->connection, MANY, 1, 1));
    host_side_tell(side);
    host_side_await(side);
}

static void kill_it(void *argument)
{
    host_peer_kill(argument);
}

static void the_peer_is_killed_while_it_is_read(void **state)
{
    torture *t = *state;
    for (int is_before = 0; is_before < 2; is_before++) {
        host_peer peer;
        spw_payload *none;
        host_peer_start(t, "victim", NULL, 2, &peer);
        host_side_meet(t, &peer.side, true);
        host_side_await(&peer.side);
        if (is_before)
            host_peer_kill(&peer);
        else
            host_fault_after_read(kill_it, &peer);
        spw_status status = loopback_receive(peer.side.connection, NULL, &none, NULL);
        /* By the stream comes a reset, if it left something unread. */
        if (!is_before)
            assert_int_equal(status, SPW_STATUS_TRUNCATED);
        else
            assert_true(status == SPW_STATUS_TRUNCATED || status == SPW_STATUS_RESET);
        torture_assert_nothing_charged(t);
        host_peer_close(&peer);
    }
}

/* Say hello and read nothing more. */
static void play_deaf(torture *t, host_side *side)
{
    host_side_meet(t, side, false);
    host_side_await(side);
}

static void the_peer_is_killed_before_it_has_read(void **state)
{
    static char data[1 << 20];
    torture *t = *state;
    host_peer peer;
    unsigned released = 0;
    uint64_t bytes;
    host_peer_start(t, "deaf", NULL, 2, &peer);
    spw_connection *connection = peer.side.connection;
    host_side_meet(t, &peer.side, true);
    for (int i = 0; i < 3; i++) {
        spw_payload *payload;
        assert_ok(
            payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
        assert_ok(spw_connection_send(connection, payload, &bytes, NULL));
    }
    while (spw__send_queue_unsent(&connection->queue) > 0)
        assert_ok(loopback_step(connection, NULL, NULL));
    assert_int_equal(released, 0); /* it may still read them */
    assert_int_equal(spw_connection_queued_bytes(connection), 3 * sizeof data);
    host_peer_kill(&peer);
    while (spw_connection_is_open(connection))
        assert_ok(loopback_step(connection, NULL, NULL));
    spw_connection_reap(connection);
    assert_int_equal(released, 3);
    torture_assert_nothing_charged(t);
    host_peer_close(&peer);
}

int main(int argc, char **argv)
{
    static const host_role ROLES[] = {{"echo", play_echo},
                                      {"stops", play_stops},
                                      {"stops large", play_stops_large},
                                      {"victim", play_victim},
                                      {"deaf", play_deaf}};
    const struct CMUnitTest tests[] = {
        SCENARIO(data_between_two_processes_by_address),
        SCENARIO(data_between_two_processes_by_descriptor),
        SCENARIO(data_between_two_processes_by_stream),
        SCENARIO(a_receipt_waits_for_room_as_long_as_it_takes),
        SCENARIO(a_stopped_sender_is_read_to_the_end),
        SCENARIO(the_peer_is_killed_while_it_is_read),
        SCENARIO(the_peer_is_killed_before_it_has_read),
    };
    int code;
    if (host_peer_is_one(argc, argv, ROLES, COUNT_OF(ROLES), &code))
        return code;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
