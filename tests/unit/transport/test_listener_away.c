/* Connections that a thread accepts: what they get and what is received from them
 * before their owner does anything, and what the owner finds then. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "context/admission.h"
#include "io_fault.h"
#include "payloads.h"
#include "platform/clock.h"
#include "served_peers.h"
#include "transport/listener_state.h"

/* ---- before the owner takes them ---- */

static void greets_and_receives_without_its_owner(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    wait_for_figure(t, messages_sent, 1);
    assert_int_equal(io_fault_calls_of("set_keep_alive"), 1);
    raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 1);
    wait_for_figure(t, messages_received, 1);
    raw_send_made(t, raw, LARGE, COUNT_OF(LARGE), 2);
    wait_for_figure(t, messages_received, 2);
    spw_connection *connection = served_peers_take(&f);
    int keeps_alive = 0;
    socklen_t size = sizeof keeps_alive;
    assert_int_equal(getsockopt(spw_connection_descriptor(connection), SOL_SOCKET,
                                SO_KEEPALIVE, &keeps_alive, &size),
                     0);
    assert_int_equal(keeps_alive, 1);
    /* Not until it is empty-handed does it want to be watched. */
    assert_int_equal(spw_connection_interest(connection), 0);
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    assert_int_equal(spw_connection_interest(connection), 0);
    assert_waits(connection, LARGE, COUNT_OF(LARGE), 2);
    assert_int_equal(spw_connection_interest(connection), SPW_INTEREST_READ);
    spw_connection_free(connection);
    served_peers_close(&f);
}

/* Bytes of a message that are sent before it is known to be held. */
static const size_t HEAD_BYTES = 5000;

/* A peer sends the beginning of a large message while others have the room for it.
 * Returns: all of it, to be freed. */
static char *begin_held(torture *t, int raw, spw__admission *ret_admission,
                        size_t *ret_size)
{
    spw_budget_limit_in_flight(t->budget, 4 << 20);
    assert_true(
        spw__budget_admit(t->budget, 2 << 20, spw__clock_ms(), 0, ret_admission));
    char *wire = payload_wire(t->context, LARGE, COUNT_OF(LARGE), 1, ret_size);
    spw_budget_figures before, figures;
    spw_budget_read(t->budget, &before);
    raw_send(raw, wire, HEAD_BYTES);
    do
        spw_budget_read(t->budget, &figures);
    while (figures.held_back == before.held_back);
    return wire;
}

static void a_first_message_waits_for_room(void **state)
{
    torture *t = *state;
    for (int is_taken = 0; is_taken < 2; is_taken++) {
        served_peers f;
        spw_payload *payload;
        spw_connection *connection = NULL;
        spw__admission others;
        size_t size;
        served_peers_open(t, &f);
        int raw = served_peers_connect(&f);
        char *wire = begin_held(t, raw, &others, &size);
        if (is_taken) {
            connection = served_peers_take(&f);
            assert_status(spw_connection_receive(connection, &payload, NULL), AGAIN);
        }
        spw__budget_leave(t->budget, &others); /* who is parked looks by itself */
        raw_send(raw, wire + HEAD_BYTES, size - HEAD_BYTES);
        if (!is_taken)
            connection = served_peers_take(&f);
        assert_ok(loopback_receive(connection, NULL, &payload, NULL));
        payload_assert(payload, LARGE, COUNT_OF(LARGE), 1);
        spw_payload_free(payload);
        spw_connection_free(connection);
        free(wire);
        served_peers_close(&f);
    }
}

static void greets_who_has_its_own_address_differently(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    assert_greeted(t, served_peers_connect_from(&f, "127.0.0.2"), FAR_GREETING,
                   FAR_SEED);
    assert_greeted(t, served_peers_connect_from(&f, "127.0.0.1"), GREETING, NEAR_SEED);
    served_peers_close(&f);
}

static void a_greeting_that_the_socket_takes_in_pieces(void **state)
{
    torture *t = *state;
    served_peers f;
    assert_ok(served_peers_listen(t, &f, 4));
    io_fault_limit(7);
    assert_ok(served_peers_begin(t, &f));
    assert_greeted(t, served_peers_connect(&f), GREETING, NEAR_SEED);
    spw_connection *connection = served_peers_take(&f);
    assert_int_equal(spw_connection_queued_bytes(connection), 0);
    spw_connection_free(connection);
    served_peers_close(&f);
}

static void without_a_greeting_nothing_is_said(void **state)
{
    torture *t = *state;
    served_peers f;
    spw_listener_options options = SPW_LISTENER_OPTIONS_INIT;
    spw_connection_options of_each = SPW_CONNECTION_OPTIONS_INIT;
    assert_ok(served_peers_listen(t, &f, 4));
    of_each.completions = f.completions;
    options.connection = &of_each;
    assert_ok(spw_listener_serve(f.listener, &options, NULL));
    int raw = served_peers_connect(&f);
    spw_connection *connection = served_peers_take(&f);
    assert_int_equal(torture_figures(t).bytes_sent, 0);
    raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 1);
    spw_payload *payload;
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    spw_payload_free(payload);
    spw_connection_free(connection);
    served_peers_close(&f);
}

static void so_many_messages_wait_and_no_more(void **state)
{
    enum { MESSAGES = SPW__READY_MESSAGES + 9 };
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    for (unsigned i = 0; i < MESSAGES; i++)
        raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), i);
    wait_for_figure(t, messages_received, SPW__READY_MESSAGES);
    spw_connection *connection = served_peers_take(&f);
    assert_int_equal(torture_figures(t).messages_received, SPW__READY_MESSAGES);
    for (unsigned i = 0; i < SPW__READY_MESSAGES; i++)
        assert_waits(connection, SMALL, COUNT_OF(SMALL), i);
    for (unsigned i = SPW__READY_MESSAGES; i < MESSAGES; i++) {
        spw_payload *payload;
        assert_ok(loopback_receive(connection, NULL, &payload, NULL));
        payload_assert(payload, SMALL, COUNT_OF(SMALL), i);
        spw_payload_free(payload);
    }
    spw_connection_free(connection);
    served_peers_close(&f);
}

static void so_many_bytes_wait_and_no_more(void **state)
{
    static const size_t BODY[] = {SPW__READY_BYTES - 50000}, TAIL[] = {100000};
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    raw_send_made(t, raw, BODY, 1, 1);
    raw_send_made(t, raw, TAIL, 1, 2);
    raw_send_made(t, raw, TAIL, 1, 3);
    wait_for_figure(t, messages_received, 2);
    spw_connection *connection = served_peers_take(&f);
    assert_int_equal(torture_figures(t).messages_received, 2);
    assert_waits(connection, BODY, 1, 1);
    assert_waits(connection, TAIL, 1, 2);
    spw_payload *payload;
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    payload_assert(payload, TAIL, 1, 3);
    spw_payload_free(payload);
    spw_connection_free(connection);
    served_peers_close(&f);
}

/* A peer sends the rest of the large message of seed 4, while its owner receives it. */
static void finish_large(int raw, const char *wire, size_t sent, size_t size,
                         spw_connection *connection)
{
    spw_payload *payload;
    while (sent < size) {
        ssize_t step = send(raw, wire + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (step > 0)
            sent += (size_t)step;
        else
            assert_ok(loopback_step(connection, NULL, NULL));
    }
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    payload_assert(payload, LARGE, COUNT_OF(LARGE), 4);
    spw_payload_free(payload);
}

/* What of it comes first, the rest comes to who has taken the connection. */
static void a_large_message_waits_to_be_taken(void **state)
{
    torture *t = *state;
    for (int holds = 0; holds < 2; holds++) {
        served_peers f;
        size_t size;
        served_peers_open(t, &f);
        spw_listener_hold_from(f.listener, holds ? 1 << 20 : 0);
        int raw = served_peers_connect(&f);
        char *wire = payload_wire(t->context, LARGE, COUNT_OF(LARGE), 4, &size);
        assert_true(size > 1 << 20);
        uint64_t messages = torture_figures(t).messages_received;
        raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 1);
        wait_for_figure(t, messages_received, messages + 1);
        uint64_t before = torture_figures(t).bytes_received;
        raw_send(raw, wire, HEAD_BYTES);
        wait_for_figure(t, bytes_received, before + HEAD_BYTES);
        spw_connection *connection = served_peers_take(&f);
        assert_int_equal(spw__connection_is_held(connection), holds);
        assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
        finish_large(raw, wire, HEAD_BYTES, size, connection);
        free(wire);
        spw_connection_free(connection);
        served_peers_close(&f);
    }
}

static void a_message_half_there_is_finished_by_its_owner(void **state)
{
    torture *t = *state;
    served_peers f;
    size_t size;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    char *wire = payload_wire(t->context, LARGE, COUNT_OF(LARGE), 4, &size);
    assert_int_equal(send(raw, wire, 200000, 0), 200000);
    wait_for_figure(t, bytes_received, 200000);
    spw_connection *connection = served_peers_take(&f);
    spw_payload *payload;
    assert_status(spw_connection_receive(connection, &payload, NULL), AGAIN);
    finish_large(raw, wire, 200000, size, connection);
    free(wire);
    spw_connection_free(connection);
    served_peers_close(&f);
}

/* ---- many ---- */

static void no_more_wait_untaken_than_there_is_room_for(void **state)
{
    enum { ROOM = 1024 };
    torture *t = *state;
    served_peers f;
    assert_ok(served_peers_open_with(t, &f, 4096));
    for (int i = 0; i < MOST_PEERS; i++)
        served_peers_connect(&f);
    wait_for_figure(t, connections_opened, ROOM);
    /* No more by the time when the thread has ended its step. */
    spw__task *accepting = &f.listener->away.watch.reading;
    assert_true(spw__task_recall(&f.listener->away.watch, accepting));
    assert_int_equal(torture_figures(t).connections_opened, ROOM);
    spw_connection *connection = served_peers_take(&f);
    spw_connection_free(connection);
    for (int i = 1; i < MOST_PEERS; i++)
        spw_connection_free(served_peers_take(&f));
    assert_status(spw_listener_accept(f.listener, NULL, &connection, NULL), AGAIN);
    served_peers_close(&f);
}

/* ---- what fails ---- */

static void refuses_what_it_cannot_serve_with(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    spw_listener *listener;
    assert_ok(spw_listener_start(t->context, "127.0.0.1", 0, 4, &listener, NULL));
    spw_listener_options options = SPW_LISTENER_OPTIONS_INIT;
    spw_connection_options connection = SPW_CONNECTION_OPTIONS_INIT;
    assert_status(spw_listener_serve(listener, NULL, NULL), INVALID_ARGUMENT);
    assert_status(spw_listener_serve(listener, &options, NULL), INVALID_ARGUMENT);
    options.connection = &connection;
    assert_status(spw_listener_serve(listener, &options, &t->error), INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "completions"));
    connection.completions = f.completions;
    connection.struct_size = 3;
    assert_status(spw_listener_serve(listener, &options, NULL), INVALID_ARGUMENT);
    connection.struct_size = sizeof connection;
    options.greeting_bytes = SPW_GREETING_BYTES_MAX + 1;
    assert_status(spw_listener_serve(listener, &options, &t->error), INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "65537"));
    options.greeting_bytes = 0;
    options.struct_size++;
    assert_status(spw_listener_serve(listener, &options, NULL), INVALID_ARGUMENT);
    /* An older caller knows one greeting only; what it has behind that is not read. */
    options.struct_size = offsetof(spw_listener_options, greeting_same_host);
    options.greeting_same_host_bytes = SPW_GREETING_BYTES_MAX + 1;
    assert_ok(spw_listener_serve(listener, &options, NULL));
    assert_status(spw_listener_serve(listener, &options, NULL), INVALID_ARGUMENT);
    spw_listener_free(listener);
    served_peers_close(&f);
}

/* ---- with faults ---- */

static void serves_one_peer(void **state)
{
    static const size_t BODIES[] = {1000, 30000, 0};
    torture *t = *state;
    served_peers f;
    spw_connection *near = NULL, *far = NULL;
    const char *host;
    uint16_t port;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    TRY(served_peers_open_with(t, &f, 16));
    spw_listener_local(f.listener, &host, &port);
    TRY(spw_connection_connect(t->context, host, port, &options, &near, &t->error));
    while (spw_connection_is_connecting(near))
        TRY(loopback_step(near, NULL, &t->error));
    TRY(loopback_send_made(t, near, BODIES, COUNT_OF(BODIES), 1));
    TRY(loopback_accept(f.listener, NULL, &far, &t->error));
    TRY(loopback_receive_made(t, near, far, GREETING, 1, NEAR_SEED));
    TRY(loopback_receive_made(t, far, near, BODIES, COUNT_OF(BODIES), 1));
    TRY(loopback_send_made(t, far, BODIES, COUNT_OF(BODIES), 2));
    TRY(loopback_receive_made(t, near, far, BODIES, COUNT_OF(BODIES), 2));
end:
    spw_connection_free(near);
    spw_connection_free(far);
    served_peers_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(greets_and_receives_without_its_owner),
        SCENARIO(a_first_message_waits_for_room),
        SCENARIO(greets_who_has_its_own_address_differently),
        SCENARIO(a_greeting_that_the_socket_takes_in_pieces),
        SCENARIO(without_a_greeting_nothing_is_said),
        SCENARIO(so_many_messages_wait_and_no_more),
        SCENARIO(so_many_bytes_wait_and_no_more),
        SCENARIO(a_large_message_waits_to_be_taken),
        SCENARIO(a_message_half_there_is_finished_by_its_owner),
        SCENARIO(no_more_wait_untaken_than_there_is_room_for),
        SCENARIO(refuses_what_it_cannot_serve_with),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(serves_one_peer),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("listener with threads", scenarios);
}
