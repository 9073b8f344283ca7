/* Connections from birth to end, of ours against each other. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "platform/socket.h"

static const size_t SMALL[] = {120, 0, 100};

/* ---- scenarios: tortured too ---- */

static void exchanges(torture *t, const char *host)
{
    static const size_t LARGE[] = {50, 70000, 0, 9000, 4096, 1};
    loopback pair;
    TRY(loopback_open(t->context, host, &pair, &t->error));
    for (unsigned round = 0; round < 2; round++) {
        TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), round));
        TRY(loopback_send_made(t, pair.client, LARGE, COUNT_OF(LARGE), round));
        TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL),
                                  round));
        TRY(loopback_receive_made(t, pair.server, pair.client, LARGE, COUNT_OF(LARGE),
                                  round));
        TRY(loopback_send_made(t, pair.server, LARGE, COUNT_OF(LARGE), round + 7));
        TRY(loopback_receive_made(t, pair.client, pair.server, LARGE, COUNT_OF(LARGE),
                                  round + 7));
    }
end:
    loopback_close(&pair);
}

static void exchanges_messages_over_ipv4(void **state)
{
    exchanges(*state, "127.0.0.1");
}

static void exchanges_messages_over_ipv6(void **state)
{
    if (loopback_has_ipv6())
        exchanges(*state, "::1");
}

static void receives_what_came_before_the_peer_closed(void **state)
{
    torture *t = *state;
    loopback pair;
    spw_payload *payload;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    for (unsigned i = 0; i < 3; i++)
        TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), i));
    while (spw_connection_queued_bytes(pair.client) > 0)
        TRY(loopback_step(pair.client, NULL, &t->error));
    spw_connection_close(pair.client);
    for (unsigned i = 0; i < 3; i++)
        TRY(loopback_receive_made(t, pair.server, NULL, SMALL, COUNT_OF(SMALL), i));
    TRY_STATUS(loopback_receive(pair.server, NULL, &payload, &t->error), PEER_CLOSED);
end:
    loopback_close(&pair);
}

static void closes_in_the_middle_of_both_directions(void **state)
{
    static const size_t LARGE[] = {10, 150000, 150000};
    torture *t = *state;
    loopback pair;
    spw_payload *payload;
    io_fault_limit(60000); /* so that no call moves the whole message */
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, LARGE, COUNT_OF(LARGE), 1));
    TRY(loopback_send_made(t, pair.server, LARGE, COUNT_OF(LARGE), 2));
    while (torture_figures(t).bytes_received < 100000) {
        TRY_STATUS(spw_connection_receive(pair.client, &payload, &t->error), AGAIN);
        TRY(loopback_step(pair.client, pair.server, &t->error));
    }
    /* Either may have failed meanwhile; neither has a whole message. */
    TRY_STATUS(spw_connection_receive(pair.client, &payload, &t->error), AGAIN);
    TRY_STATUS(spw_connection_receive(pair.server, &payload, &t->error), AGAIN);
end:
    loopback_close(&pair);
}

/* ---- sizes ---- */

static void exchanges_every_size(void **state)
{
    static const size_t SIZES[] = {0,       1,       7,       8,       300,   4095,
                                   4096,    4097,    65535,   65536,   65537, 131072,
                                   1 << 20, 3000001, 8 << 20, 33000000};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    for (unsigned i = 0; i < COUNT_OF(SIZES); i++) {
        const size_t sizes[] = {40, SIZES[i], 5, SIZES[i] / 3};
        TRY(loopback_send_made(t, pair.client, sizes, COUNT_OF(sizes), i));
        TRY(loopback_receive_made(t, pair.server, pair.client, sizes, COUNT_OF(sizes),
                                  i));
        TRY(loopback_send_made(t, pair.server, sizes, COUNT_OF(sizes), i + 50));
        TRY(loopback_receive_made(t, pair.client, pair.server, sizes, COUNT_OF(sizes),
                                  i + 50));
    }
    spw_figures figures = torture_figures(t);
    assert_int_equal(figures.messages_sent, 2 * COUNT_OF(SIZES));
    assert_int_equal(figures.messages_received, 2 * COUNT_OF(SIZES));
    assert_int_equal(figures.bytes_sent, figures.bytes_received);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
end:
    loopback_close(&pair);
}

static void a_small_message_costs_one_call_at_each_end(void **state)
{
    torture *t = *state;
    loopback pair;
    spw_payload *payload;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    for (unsigned i = 0; i < 2; i++) { /* the first one allocates the read-ahead */
        assert_status(spw_connection_receive(pair.server, &payload, NULL), AGAIN);
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), i));
        assert_int_equal(io_fault_calls_of("send"), 1);
        assert_int_equal(spw_connection_queued_bytes(pair.client), 0);
        uint64_t before = t->allocator.calls;
        TRY(loopback_step(pair.server, NULL, &t->error));
        TRY(spw_connection_receive(pair.server, &payload, &t->error));
        assert_int_equal(io_fault_calls(), 2);
        /* The payload, its slices, and the region with its buffer. */
        if (i == 1)
            assert_true(t->allocator.calls - before <= 6);
        payload_assert(payload, SMALL, COUNT_OF(SMALL), i);
        spw_payload_free(payload);
        spw_connection_reap(pair.client);
    }
end:
    loopback_close(&pair);
}

/* ---- connecting ---- */

static void a_refused_port_is_told_with_its_address(void **state)
{
    torture *t = *state;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    spw_listener *listener;
    spw_connection *connection;
    const char *host;
    uint16_t port;
    char expected[64];
    assert_ok(spw_listener_start(t->context, "127.0.0.1", 0, 1, &listener, NULL));
    spw_listener_local(listener, &host, &port);
    snprintf(expected, sizeof expected, "127.0.0.1:%u", port);
    spw_listener_free(listener);
    spw_status status = spw_connection_connect(t->context, "127.0.0.1", port, &options,
                                               &connection, &t->error);
    if (status == SPW_STATUS_OK) {
        assert_true(spw_connection_is_connecting(connection));
        assert_int_equal(spw_connection_interest(connection), SPW_INTEREST_WRITE);
        do {
            status = loopback_step(connection, NULL, &t->error);
        } while (status == SPW_STATUS_OK);
        assert_ended(connection, REFUSED);
        spw_connection_free(connection);
    }
    assert_int_equal(status, SPW_STATUS_REFUSED);
    assert_int_not_equal(t->error.os_errno, 0);
    assert_non_null(strstr(t->error.message, expected));
    assert_int_equal(torture_figures(t).connections_failed, 1);
    assert_int_equal(torture_figures(t).connections_opened, 1);
}

static void a_connect_that_fails_at_once_leaves_nothing(void **state)
{
    torture *t = *state;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    spw_connection *connection = NULL;
    io_fault_arm_call("connect", 1, ENETUNREACH);
    assert_status(spw_connection_connect(t->context, "127.0.0.1", 9, &options,
                                         &connection, &t->error),
                  UNREACHABLE);
    assert_null(connection);
    assert_int_equal(t->error.os_errno, ENETUNREACH);
    assert_int_equal(torture_figures(t).connections_failed, 1);
    assert_int_equal(torture_figures(t).connections_opened, 1);
}

static void congestion_of(spw_connection *connection, char *ret_name)
{
    socklen_t size = SPW__CONGESTION_NAME_BYTES;
    assert_int_equal(getsockopt(spw_connection_descriptor(connection), IPPROTO_TCP,
                                TCP_CONGESTION, ret_name, &size),
                     0);
}

static void peers_on_this_machine_get_their_congestion_control(void **state)
{
    torture *t = *state;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    char name[SPW__CONGESTION_NAME_BYTES], systems[SPW__CONGESTION_NAME_BYTES];
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    congestion_of(pair.client, systems);
    congestion_of(pair.server, systems);
    assert_int_equal(torture_figures(t).connections_tuned, 0);
    loopback_close(&pair);

    options.loopback_congestion = "reno";
    TRY(loopback_open_with(t->context, "127.0.0.1", &options, &pair, &t->error));
    congestion_of(pair.client, name);
    assert_string_equal(name, "reno");
    congestion_of(pair.server, name);
    assert_string_equal(name, "reno");
    assert_int_equal(torture_figures(t).connections_tuned, 2);
    loopback_close(&pair);

    options.loopback_congestion = "spillway-none";
    t->log_lines = 0;
    TRY(loopback_open_with(t->context, "127.0.0.1", &options, &pair, &t->error));
    congestion_of(pair.client, name);
    assert_string_equal(name, systems);
    assert_int_equal(t->log_lines, 2);
    assert_non_null(strstr(t->last_log_line, "TCP_CONGESTION"));
    assert_int_equal(torture_figures(t).connections_tuned, 2);
end:
    loopback_close(&pair);
}

static void both_ends_know_both_addresses(void **state)
{
    torture *t = *state;
    loopback pair;
    const char *host, *peer_host;
    uint16_t port, peer_port;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    TRY(spw_connection_local(pair.client, &host, &port, &t->error));
    spw_connection_peer(pair.server, &peer_host, &peer_port);
    assert_string_equal(host, "127.0.0.1");
    assert_string_equal(host, peer_host);
    assert_int_equal(port, peer_port);
    TRY(spw_connection_local(pair.server, &host, &port, &t->error));
    spw_connection_peer(pair.client, &peer_host, &peer_port);
    assert_string_equal(host, peer_host);
    assert_int_equal(port, peer_port);
    spw_connection_close(pair.client);
    /* What has been asked for is known from then on. */
    assert_ok(spw_connection_local(pair.client, &host, &port, NULL));
    assert_string_equal(host, "127.0.0.1");
end:
    loopback_close(&pair);
}

static void a_closed_connection_has_no_local_address(void **state)
{
    torture *t = *state;
    loopback pair;
    const char *host;
    uint16_t port;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    spw_connection_close(pair.client);
    assert_status(spw_connection_local(pair.client, &host, &port, NULL), CLOSED);
end:
    loopback_close(&pair);
}

static void refuses_options_and_hosts_that_it_does_not_know(void **state)
{
    torture *t = *state;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    spw_connection *connection = NULL;
    assert_status(spw_connection_connect(t->context, "localhost", 1, &options,
                                         &connection, &t->error),
                  ADDRESS);
    assert_non_null(strstr(t->error.message, "localhost"));
    options.struct_size++;
    assert_status(spw_connection_connect(t->context, "127.0.0.1", 1, &options,
                                         &connection, &t->error),
                  INVALID_ARGUMENT);
    options.struct_size--;
    options.loopback_congestion = "a name of more than fifteen bytes";
    assert_status(spw_connection_connect(t->context, "127.0.0.1", 1, &options,
                                         &connection, &t->error),
                  INVALID_ARGUMENT);
    /* Which a caller of an older version does not have: it is not looked at. */
    options.struct_size = offsetof(spw_connection_options, loopback_congestion);
    assert_status(spw_connection_connect(t->context, "localhost", 1, &options,
                                         &connection, &t->error),
                  ADDRESS);
    assert_status(spw_connection_connect(t->context, "127.0.0.1", 1, NULL, &connection,
                                         &t->error),
                  INVALID_ARGUMENT);
    assert_null(connection);
    spw_connection_free(NULL);
}

/* ---- closing here ---- */

static void close_releases_a_half_read_message(void **state)
{
    static const size_t LARGE[] = {50, 1 << 20};
    torture *t = *state;
    size_t size;
    char *wire = payload_wire(t->context, LARGE, COUNT_OF(LARGE), 4, &size);
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    assert_status(spw_connection_receive(pair.ours, &payload, NULL), AGAIN);
    raw_pair_send(&pair, wire, size / 2);
    while (torture_figures(t).bytes_received < size / 2)
        assert_ok(loopback_step(pair.ours, NULL, NULL));
    assert_true(torture_charged(t, SPW_CHARGE_IN_FLIGHT) >= LARGE[1]);
    spw_connection_close(pair.ours);
    spw_connection_close(pair.ours);
    assert_int_equal(torture_charged(t, SPW_CHARGE_IN_FLIGHT), 0);
    assert_ended(pair.ours, CLOSED);
    assert_int_equal(torture_figures(t).connections_closed, 1);
    raw_pair_close(&pair);
    free(wire);
}

static void close_drops_a_message_that_nobody_took(void **state)
{
    torture *t = *state;
    loopback pair;
    spw_payload *payload;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    assert_status(spw_connection_receive(pair.server, &payload, NULL), AGAIN);
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 6));
    TRY(loopback_step(pair.server, NULL, &t->error));
    spw_connection_close(pair.client); /* frees what was sent */
    assert_true(torture_charged(t, SPW_CHARGE_HELD) > 0);
    spw_connection_close(pair.server);
    assert_int_equal(torture_charged(t, SPW_CHARGE_HELD), 0);
    assert_ended(pair.server, CLOSED);
end:
    loopback_close(&pair);
}

/* A message much larger than what the sockets of both ends hold. */
enum { STUCK_BYTES = 64 << 20 };

static void close_while_writing_releases_the_queue(void **state)
{
    torture *t = *state;
    char *data = calloc(1, STUCK_BYTES);
    unsigned released = 0;
    uint64_t bytes;
    raw_pair pair = raw_pair_open(t->context);
    for (int i = 0; i < 3; i++) {
        spw_payload *payload;
        assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &payload,
                               &t->error));
        assert_ok(spw_connection_send(pair.ours, payload, &bytes, &t->error));
    }
    assert_true(spw_connection_interest(pair.ours) & SPW_INTEREST_WRITE);
    assert_int_equal(released, 0);
    spw_connection_close(pair.ours);
    assert_int_equal(released, 3);
    assert_int_equal(spw_connection_queued_bytes(pair.ours), 0);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    raw_pair_close(&pair);
    free(data);
}

static spw_connection *closed_by_callback;

static void close_again(void *user)
{
    (*(unsigned *)user)++;
    spw_connection_reap(closed_by_callback);
    spw_connection_close(closed_by_callback);
}

static void a_release_callback_may_close_the_connection(void **state)
{
    torture *t = *state;
    char data[5000] = {0};
    unsigned released = 0;
    uint64_t bytes;
    raw_pair pair = raw_pair_open(t->context);
    closed_by_callback = pair.ours;
    for (int i = 0; i < 3; i++) {
        spw_payload *payload;
        spw_slice slice = {.size = sizeof data, .plain_size = sizeof data};
        assert_ok(spw_payload_create(t->context, 1, &payload, NULL));
        assert_ok(spw_buffer_wrap(t->context, data, sizeof data, false, close_again,
                                  &released, &slice.buffer, NULL));
        assert_ok(spw_payload_append(payload, &slice, NULL));
        assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    }
    spw_connection_reap(pair.ours);
    assert_int_equal(released, 3);
    assert_ended(pair.ours, CLOSED);
    raw_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(exchanges_every_size),
        SCENARIO(a_small_message_costs_one_call_at_each_end),
        SCENARIO(a_refused_port_is_told_with_its_address),
        SCENARIO(a_connect_that_fails_at_once_leaves_nothing),
        SCENARIO(peers_on_this_machine_get_their_congestion_control),
        SCENARIO(both_ends_know_both_addresses),
        SCENARIO(a_closed_connection_has_no_local_address),
        SCENARIO(refuses_options_and_hosts_that_it_does_not_know),
        SCENARIO(close_releases_a_half_read_message),
        SCENARIO(close_drops_a_message_that_nobody_took),
        SCENARIO(close_while_writing_releases_the_queue),
        SCENARIO(a_release_callback_may_close_the_connection),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(exchanges_messages_over_ipv4),
        SCENARIO(exchanges_messages_over_ipv6),
        SCENARIO(receives_what_came_before_the_peer_closed),
        SCENARIO(closes_in_the_middle_of_both_directions),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("connection", scenarios);
}
