/* Connections that a thread accepts: what they get and what is received from them
 * before their owner does anything, what the owner finds then, and that nothing of it
 * is lost or kept whatever fails or ends meanwhile. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "context/admission.h"
#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "platform/clock.h"
#include "transport/listener_state.h"

static const size_t GREETING[] = {900}, FAR_GREETING[] = {40};
static const size_t SMALL[] = {120, 0, 100};
static const size_t LARGE[] = {1000, 3 << 20, 70000};
enum { NEAR_SEED = 5, FAR_SEED = 6, MOST_PEERS = 1100, LOST_AFTER_S = 20 };

typedef struct fixture {
    spw_reactor *reactor;
    spw_completions *completions;
    spw_listener *listener;
    int raw[MOST_PEERS]; /* -1 once closed */
    size_t peers;
} fixture;

/* The bytes that payload_make puts into the frame of such a greeting. */
static void fill(char *frame, const size_t *size, unsigned seed)
{
    for (size_t i = 0; i < *size; i++)
        frame[i] = (char)payload_byte(seed, 0, i);
}

static spw_status listen_only(torture *t, fixture *f, int backlog)
{
    *f = (fixture){0};
    TRY(spw_reactor_create(t->context, 2, &f->reactor, &t->error));
    TRY(spw_completions_create(f->reactor, &f->completions, &t->error));
    TRY(spw_listener_start(t->context, "127.0.0.1", 0, backlog, &f->listener,
                           &t->error));
end:
    return t->status;
}

static spw_status begin_to_serve(torture *t, fixture *f)
{
    char near[1024], far[1024];
    fill(near, GREETING, NEAR_SEED);
    fill(far, FAR_GREETING, FAR_SEED);
    spw_listener_options options = SPW_LISTENER_OPTIONS_INIT;
    spw_connection_options connection = SPW_CONNECTION_OPTIONS_INIT;
    options.connection = &connection;
    connection.user_timeout_ms = 30000;
    options.greeting = far;
    options.greeting_bytes = *FAR_GREETING;
    options.greeting_same_host = near;
    options.greeting_same_host_bytes = *GREETING;
    connection.completions = f->completions;
    return spw_listener_serve(f->listener, &options, &t->error);
}

static spw_status serve_with(torture *t, fixture *f, int backlog)
{
    TRY(listen_only(t, f, backlog));
    TRY(begin_to_serve(t, f));
end:
    return t->status;
}

static void serve(torture *t, fixture *f)
{
    assert_ok(serve_with(t, f, 64));
}

static int connect_from(fixture *f, const char *own_host)
{
    const char *host;
    uint16_t port;
    spw__socket_address address, own;
    spw_listener_local(f->listener, &host, &port);
    assert_ok(spw__address_parse(host, port, &address, NULL));
    assert_ok(spw__address_parse(own_host, 0, &own, NULL));
    int raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(raw >= 0);
    assert_int_equal(bind(raw, &own.any, own.size), 0);
    assert_int_equal(connect(raw, &address.any, address.size), 0);
    f->raw[f->peers++] = raw;
    return raw;
}

static int connect_raw(fixture *f)
{
    return connect_from(f, "127.0.0.1");
}

static void close_raw(fixture *f, size_t peer)
{
    if (f->raw[peer] >= 0)
        close(f->raw[peer]);
    f->raw[peer] = -1;
}

static void close_all(fixture *f)
{
    for (size_t i = 0; i < f->peers; i++)
        close_raw(f, i);
    spw_listener_free(f->listener);
    spw_completions_free(f->completions);
    spw_reactor_free(f->reactor);
}

static void send_all(int raw, const char *data, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t step = send(raw, data + sent, size - sent, MSG_NOSIGNAL);
        assert_true(step > 0);
        sent += (size_t)step;
    }
}

static void send_wire(torture *t, int raw, const size_t *sizes, size_t count,
                      unsigned seed)
{
    size_t size;
    char *wire = payload_wire(t->context, sizes, count, seed, &size);
    send_all(raw, wire, size);
    free(wire);
}

static void assert_greeted(torture *t, int raw, const size_t *size, unsigned seed)
{
    size_t wanted;
    char *wire = payload_wire(t->context, size, 1, seed, &wanted);
    char *got = malloc(wanted);
    assert_non_null(got);
    for (size_t received = 0; received < wanted;) {
        struct pollfd watched = {raw, POLLIN, 0};
        assert_int_equal(poll(&watched, 1, LOST_AFTER_S * 1000), 1);
        ssize_t step = recv(raw, got + received, wanted - received, 0);
        assert_true(step > 0);
        received += (size_t)step;
    }
    assert_memory_equal(got, wire, wanted);
    free(got);
    free(wire);
}

/* Wait, without a turn for the owner, until a figure of the context is that. */
#define wait_for_figure(t, name, value)                                                \
    do {                                                                               \
        time_t began_ = time(NULL);                                                    \
        while (torture_figures(t).name < (value)) {                                    \
            if (time(NULL) - began_ > LOST_AFTER_S)                                    \
                fail_msg(#name " stays at %llu",                                       \
                         (unsigned long long)torture_figures(t).name);                 \
            sched_yield();                                                             \
        }                                                                              \
    } while (0)

static spw_connection *take(fixture *f)
{
    spw_connection *connection;
    assert_ok(loopback_accept(f->listener, NULL, &connection, NULL));
    assert_false(connection->is_untaken);
    return connection;
}

/* A message that is there already. */
static void assert_waits(spw_connection *connection, const size_t *sizes, size_t count,
                         unsigned seed)
{
    spw_payload *payload;
    assert_ok(spw_connection_receive(connection, &payload, NULL));
    payload_assert(payload, sizes, count, seed);
    spw_payload_free(payload);
}

/* ---- before the owner takes them ---- */

static void greets_and_receives_without_its_owner(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    wait_for_figure(t, messages_sent, 1);
    assert_int_equal(io_fault_calls_of("set_keep_alive"), 1);
    send_wire(t, raw, SMALL, COUNT_OF(SMALL), 1);
    wait_for_figure(t, messages_received, 1);
    send_wire(t, raw, LARGE, COUNT_OF(LARGE), 2);
    wait_for_figure(t, messages_received, 2);
    spw_connection *connection = take(&f);
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
    close_all(&f);
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
    send_all(raw, wire, HEAD_BYTES);
    do
        spw_budget_read(t->budget, &figures);
    while (figures.held_back == before.held_back);
    return wire;
}

static void a_first_message_waits_for_room(void **state)
{
    torture *t = *state;
    for (int is_taken = 0; is_taken < 2; is_taken++) {
        fixture f;
        spw_payload *payload;
        spw_connection *connection = NULL;
        spw__admission others;
        size_t size;
        serve(t, &f);
        int raw = connect_raw(&f);
        char *wire = begin_held(t, raw, &others, &size);
        if (is_taken) {
            connection = take(&f);
            assert_status(spw_connection_receive(connection, &payload, NULL), AGAIN);
        }
        spw__budget_leave(t->budget, &others); /* who is parked looks by itself */
        send_all(raw, wire + HEAD_BYTES, size - HEAD_BYTES);
        if (!is_taken)
            connection = take(&f);
        assert_ok(loopback_receive(connection, NULL, &payload, NULL));
        payload_assert(payload, LARGE, COUNT_OF(LARGE), 1);
        spw_payload_free(payload);
        spw_connection_free(connection);
        free(wire);
        close_all(&f);
    }
}

static void greets_who_has_its_own_address_differently(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    assert_greeted(t, connect_from(&f, "127.0.0.2"), FAR_GREETING, FAR_SEED);
    assert_greeted(t, connect_from(&f, "127.0.0.1"), GREETING, NEAR_SEED);
    close_all(&f);
}

static void a_greeting_that_the_socket_takes_in_pieces(void **state)
{
    torture *t = *state;
    fixture f;
    assert_ok(listen_only(t, &f, 4));
    io_fault_limit(7);
    assert_ok(begin_to_serve(t, &f));
    assert_greeted(t, connect_raw(&f), GREETING, NEAR_SEED);
    spw_connection *connection = take(&f);
    assert_int_equal(spw_connection_queued_bytes(connection), 0);
    spw_connection_free(connection);
    close_all(&f);
}

static void without_a_greeting_nothing_is_said(void **state)
{
    torture *t = *state;
    fixture f;
    spw_listener_options options = SPW_LISTENER_OPTIONS_INIT;
    spw_connection_options of_each = SPW_CONNECTION_OPTIONS_INIT;
    assert_ok(listen_only(t, &f, 4));
    of_each.completions = f.completions;
    options.connection = &of_each;
    assert_ok(spw_listener_serve(f.listener, &options, NULL));
    int raw = connect_raw(&f);
    spw_connection *connection = take(&f);
    assert_int_equal(torture_figures(t).bytes_sent, 0);
    send_wire(t, raw, SMALL, COUNT_OF(SMALL), 1);
    spw_payload *payload;
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    spw_payload_free(payload);
    spw_connection_free(connection);
    close_all(&f);
}

static void so_many_messages_wait_and_no_more(void **state)
{
    enum { MESSAGES = SPW__READY_MESSAGES + 9 };
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    for (unsigned i = 0; i < MESSAGES; i++)
        send_wire(t, raw, SMALL, COUNT_OF(SMALL), i);
    wait_for_figure(t, messages_received, SPW__READY_MESSAGES);
    spw_connection *connection = take(&f);
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
    close_all(&f);
}

static void so_many_bytes_wait_and_no_more(void **state)
{
    static const size_t BODY[] = {SPW__READY_BYTES - 50000}, TAIL[] = {100000};
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    send_wire(t, raw, BODY, 1, 1);
    send_wire(t, raw, TAIL, 1, 2);
    send_wire(t, raw, TAIL, 1, 3);
    wait_for_figure(t, messages_received, 2);
    spw_connection *connection = take(&f);
    assert_int_equal(torture_figures(t).messages_received, 2);
    assert_waits(connection, BODY, 1, 1);
    assert_waits(connection, TAIL, 1, 2);
    spw_payload *payload;
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    payload_assert(payload, TAIL, 1, 3);
    spw_payload_free(payload);
    spw_connection_free(connection);
    close_all(&f);
}

static void a_message_half_there_is_finished_by_its_owner(void **state)
{
    torture *t = *state;
    fixture f;
    size_t size;
    serve(t, &f);
    int raw = connect_raw(&f);
    char *wire = payload_wire(t->context, LARGE, COUNT_OF(LARGE), 4, &size);
    assert_int_equal(send(raw, wire, 200000, 0), 200000);
    wait_for_figure(t, bytes_received, 200000);
    spw_connection *connection = take(&f);
    spw_payload *payload;
    assert_status(spw_connection_receive(connection, &payload, NULL), AGAIN);
    for (size_t sent = 200000; sent < size;) {
        ssize_t step = send(raw, wire + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (step > 0)
            sent += (size_t)step;
        else
            assert_ok(loopback_step(connection, NULL, NULL));
    }
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    payload_assert(payload, LARGE, COUNT_OF(LARGE), 4);
    spw_payload_free(payload);
    free(wire);
    spw_connection_free(connection);
    close_all(&f);
}

/* ---- peers that misbehave ---- */

static void what_came_before_the_peer_closed_is_received(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    send_wire(t, raw, SMALL, COUNT_OF(SMALL), 1);
    send_wire(t, raw, LARGE, COUNT_OF(LARGE), 2);
    close_raw(&f, 0);
    wait_for_figure(t, messages_received, 2);
    spw_connection *connection = take(&f);
    const char *host;
    uint16_t port;
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    assert_true(spw_connection_is_open(connection));
    assert_waits(connection, LARGE, COUNT_OF(LARGE), 2);
    spw_payload *none;
    assert_status(loopback_receive(connection, NULL, &none, NULL), PEER_CLOSED);
    assert_ended(connection, PEER_CLOSED);
    assert_ok(spw_connection_local(connection, &host, &port, NULL));
    assert_string_equal(host, "127.0.0.1");
    spw_connection_free(connection);
    close_all(&f);
}

static void the_end_shows_to_a_loop_that_only_watches(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    send_wire(t, raw, SMALL, COUNT_OF(SMALL), 1);
    close_raw(&f, 0);
    wait_for_figure(t, messages_received, 1);
    spw_connection *connection = take(&f);
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    while (spw_connection_is_open(connection))
        assert_ok(loopback_step(connection, NULL, NULL));
    assert_ended(connection, PEER_CLOSED);
    spw_connection_free(connection);
    close_all(&f);
}

static void a_peer_that_is_gone_at_once(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    for (size_t i = 0; i < 20; i++) {
        struct linger at_once = {.l_onoff = (int)i % 2, .l_linger = 0};
        int raw = connect_raw(&f);
        assert_int_equal(
            setsockopt(raw, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        close_raw(&f, i);
    }
    for (size_t i = 0; i < 20; i++) {
        spw_connection *connection = take(&f);
        spw_payload *none;
        spw_status status = loopback_receive(connection, NULL, &none, NULL);
        assert_true(status == SPW_STATUS_PEER_CLOSED || status == SPW_STATUS_RESET);
        spw_connection_free(connection);
    }
    close_all(&f);
}

static void garbage_ends_the_connection_alone(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    assert_int_equal(send(raw, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    wait_for_figure(t, bytes_received, 18);
    spw_connection *connection = take(&f);
    spw_payload *none;
    assert_status(loopback_receive(connection, NULL, &none, NULL), LIMIT_EXCEEDED);
    assert_ended(connection, LIMIT_EXCEEDED);
    spw_connection_free(connection);
    assert_greeted(t, connect_raw(&f), GREETING, NEAR_SEED);
    close_all(&f);
}

static void who_says_nothing_is_given_to_its_owner_too(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
    int raw = connect_raw(&f);
    spw_connection *connection = take(&f);
    spw_payload *payload;
    assert_status(spw_connection_receive(connection, &payload, NULL), AGAIN);
    assert_int_equal(spw_connection_interest(connection), SPW_INTEREST_READ);
    send_wire(t, raw, SMALL, COUNT_OF(SMALL), 3);
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    payload_assert(payload, SMALL, COUNT_OF(SMALL), 3);
    spw_payload_free(payload);
    spw_connection_free(connection);
    close_all(&f);
}

/* ---- many ---- */

static void no_more_wait_untaken_than_there_is_room_for(void **state)
{
    enum { ROOM = 1024 };
    torture *t = *state;
    fixture f;
    assert_ok(serve_with(t, &f, 4096));
    for (int i = 0; i < MOST_PEERS; i++)
        connect_raw(&f);
    wait_for_figure(t, connections_opened, ROOM);
    /* No more by the time when the thread has ended its step. */
    spw__task *accepting = &f.listener->away.watch.reading;
    assert_true(spw__task_recall(&f.listener->away.watch, accepting));
    assert_int_equal(torture_figures(t).connections_opened, ROOM);
    spw_connection *connection = take(&f);
    spw_connection_free(connection);
    for (int i = 1; i < MOST_PEERS; i++)
        spw_connection_free(take(&f));
    assert_status(spw_listener_accept(f.listener, NULL, &connection, NULL), AGAIN);
    close_all(&f);
}

static void ends_what_nobody_has_taken(void **state)
{
    enum { PEERS = 40 };
    torture *t = *state;
    fixture f;
    serve(t, &f);
    for (unsigned i = 0; i < PEERS; i++)
        send_wire(t, connect_raw(&f), SMALL, COUNT_OF(SMALL), i);
    wait_for_figure(t, connections_opened, PEERS / 2);
    spw_connection *connection = take(&f); /* some have arrived, and some have not */
    spw_listener_free(f.listener);
    f.listener = NULL;
    for (size_t i = 1; i < PEERS; i++) {
        char byte;
        struct pollfd watched = {f.raw[i], POLLIN, 0};
        do
            assert_int_equal(poll(&watched, 1, LOST_AFTER_S * 1000), 1);
        while (recv(f.raw[i], &byte, 1, 0) > 0);
    }
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 0);
    spw_connection_free(connection);
    close_all(&f);
}

/* ---- what fails ---- */

static void a_fault_is_told_once_and_accepting_goes_on(void **state)
{
    torture *t = *state;
    fixture f;
    spw_connection *connection;
    assert_ok(listen_only(t, &f, 4));
    io_fault_arm_call("accept", 1, EMFILE);
    assert_ok(begin_to_serve(t, &f));
    int raw = connect_raw(&f);
    assert_status(loopback_accept(f.listener, NULL, &connection, &t->error), IO);
    assert_int_equal(t->error.os_errno, EMFILE);
    assert_non_null(strstr(t->error.message, "ulimit -n"));
    struct pollfd watched = {spw_listener_descriptor(f.listener), POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 0), 0);
    assert_int_equal(io_fault_calls_of("accept"), 1); /* nobody spins */
    assert_status(spw_listener_accept(f.listener, NULL, &connection, NULL), AGAIN);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    spw_connection_free(take(&f));
    close_all(&f);
}

static void who_came_before_a_fault_is_handed_out_before_it(void **state)
{
    torture *t = *state;
    fixture f;
    spw_connection *connection;
    assert_ok(listen_only(t, &f, 4));
    for (int i = 0; i < 3; i++)
        connect_raw(&f);
    io_fault_arm_call("accept", 3, ENFILE);
    assert_ok(begin_to_serve(t, &f));
    spw_connection_free(take(&f));
    spw_connection_free(take(&f));
    assert_status(loopback_accept(f.listener, NULL, &connection, &t->error), IO);
    assert_int_equal(t->error.os_errno, ENFILE);
    assert_status(spw_listener_accept(f.listener, NULL, &connection, NULL), AGAIN);
    spw_connection_free(take(&f));
    close_all(&f);
}

static void a_fault_of_one_connection_is_not_told(void **state)
{
    torture *t = *state;
    fixture f;
    assert_ok(listen_only(t, &f, 4));
    io_fault_arm_call("accept", 1, ECONNABORTED);
    assert_ok(begin_to_serve(t, &f));
    assert_greeted(t, connect_raw(&f), GREETING, NEAR_SEED);
    spw_connection_free(take(&f));
    close_all(&f);
}

static void who_cannot_be_waited_for_says_so(void **state)
{
    torture *t = *state;
    fixture f;
    /* By the thread after its step, */
    assert_ok(listen_only(t, &f, 4));
    io_fault_arm_call("poller_rearm", 1, 0);
    assert_ok(begin_to_serve(t, &f));
    connect_raw(&f);
    spw_connection_free(take(&f));
    spw_connection *none;
    assert_status(spw_listener_accept(f.listener, NULL, &none, NULL), AGAIN);
    connect_raw(&f); /* whose coming a thread hears of all the same */
    spw_connection_free(take(&f));
    assert_status(spw_listener_accept(f.listener, NULL, &none, NULL), AGAIN);
    /* and by the owner who sends it away again. */
    io_fault_arm_call("poller_rearm", 1, 0);
    assert_status(spw_listener_accept(f.listener, NULL, &none, &t->error), IO);
    assert_non_null(strstr(t->error.message, "no thread accepts"));
    assert_status(spw_listener_accept(f.listener, NULL, &none, NULL), AGAIN);
    connect_raw(&f);
    spw_connection_free(take(&f));
    close_all(&f);
}

static void without_a_thread_the_owner_accepts(void **state)
{
    torture *t = *state;
    fixture f;
    io_fault_arm_call("start_thread", 1, 0);
    assert_status(serve_with(t, &f, 4), IO);
    t->status = SPW_STATUS_OK;
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    connect_raw(&f);
    spw_connection *connection;
    assert_ok(loopback_accept(f.listener, NULL, &connection, NULL));
    spw_connection_free(connection);
    close_all(&f);
}

static void refuses_what_it_cannot_serve_with(void **state)
{
    torture *t = *state;
    fixture f;
    serve(t, &f);
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
    close_all(&f);
}

/* ---- fork ---- */

static int use_in_child(torture *t, fixture *f)
{
    spw_connection *connection;
    if (spw_listener_accept(f->listener, NULL, &connection, &t->error) !=
            SPW_STATUS_CLOSED ||
        strstr(t->error.message, "parent") == NULL)
        return 1;
    close_all(f);
    return 0;
}

static void a_forked_child_leaves_it_to_the_parent(void **state)
{
    torture *t = *state;
    fixture f;
    int status;
    serve(t, &f);
    int raw = connect_raw(&f);
    send_wire(t, raw, SMALL, COUNT_OF(SMALL), 1);
    wait_for_figure(t, messages_received, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(use_in_child(t, &f));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_greeted(t, connect_raw(&f), GREETING, NEAR_SEED);
    spw_connection *connection = take(&f);
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    spw_connection_free(connection);
    close_all(&f);
}

/* ---- with faults ---- */

static void serves_one_peer(void **state)
{
    static const size_t BODIES[] = {1000, 30000, 0};
    torture *t = *state;
    fixture f;
    spw_connection *near = NULL, *far = NULL;
    const char *host;
    uint16_t port;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    TRY(serve_with(t, &f, 16));
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
    close_all(&f);
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
        SCENARIO(a_message_half_there_is_finished_by_its_owner),
        SCENARIO(what_came_before_the_peer_closed_is_received),
        SCENARIO(the_end_shows_to_a_loop_that_only_watches),
        SCENARIO(a_peer_that_is_gone_at_once),
        SCENARIO(garbage_ends_the_connection_alone),
        SCENARIO(who_says_nothing_is_given_to_its_owner_too),
        SCENARIO(no_more_wait_untaken_than_there_is_room_for),
        SCENARIO(ends_what_nobody_has_taken),
        SCENARIO(a_fault_is_told_once_and_accepting_goes_on),
        SCENARIO(who_came_before_a_fault_is_handed_out_before_it),
        SCENARIO(a_fault_of_one_connection_is_not_told),
        SCENARIO(who_cannot_be_waited_for_says_so),
        SCENARIO(without_a_thread_the_owner_accepts),
        SCENARIO(refuses_what_it_cannot_serve_with),
        SCENARIO(a_forked_child_leaves_it_to_the_parent),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(serves_one_peer)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("listener with threads", scenarios);
}
