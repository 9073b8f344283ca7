#include "served_peers.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "payloads.h"
#include "transport/address.h"
#include "transport/connection_state.h"

/* The bytes that payload_make puts into the frame of such a greeting. */
static void fill(char *frame, const size_t *size, unsigned seed)
{
    for (size_t i = 0; i < *size; i++)
        frame[i] = (char)payload_byte(seed, 0, i);
}

spw_status served_peers_listen(torture *t, served_peers *f, int backlog)
{
    *f = (served_peers){0};
    TRY(spw_reactor_create(t->context, 2, &f->reactor, &t->error));
    TRY(spw_completions_create(f->reactor, &f->completions, &t->error));
    TRY(spw_listener_start(t->context, "127.0.0.1", 0, backlog, &f->listener,
                           &t->error));
end:
    return t->status;
}

spw_status served_peers_begin(torture *t, served_peers *f)
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

spw_status served_peers_open_with(torture *t, served_peers *f, int backlog)
{
    TRY(served_peers_listen(t, f, backlog));
    TRY(served_peers_begin(t, f));
end:
    return t->status;
}

void served_peers_open(torture *t, served_peers *f)
{
    assert_ok(served_peers_open_with(t, f, 64));
}

int served_peers_connect_from(served_peers *f, const char *own_host)
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

int served_peers_connect(served_peers *f)
{
    return served_peers_connect_from(f, "127.0.0.1");
}

void served_peers_end(served_peers *f, size_t peer)
{
    if (f->raw[peer] >= 0)
        close(f->raw[peer]);
    f->raw[peer] = -1;
}

void served_peers_close(served_peers *f)
{
    for (size_t i = 0; i < f->peers; i++)
        served_peers_end(f, i);
    spw_listener_free(f->listener);
    spw_completions_free(f->completions);
    spw_reactor_free(f->reactor);
}

spw_connection *served_peers_take(served_peers *f)
{
    spw_connection *connection;
    assert_ok(loopback_accept(f->listener, NULL, &connection, NULL));
    assert_false(connection->is_untaken);
    return connection;
}

void raw_send(int raw, const char *data, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t step = send(raw, data + sent, size - sent, MSG_NOSIGNAL);
        assert_true(step > 0);
        sent += (size_t)step;
    }
}

void raw_send_made(torture *t, int raw, const size_t *sizes, size_t count,
                   unsigned seed)
{
    size_t size;
    char *wire = payload_wire(t->context, sizes, count, seed, &size);
    raw_send(raw, wire, size);
    free(wire);
}

void assert_greeted(torture *t, int raw, const size_t *size, unsigned seed)
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

void assert_waits(spw_connection *connection, const size_t *sizes, size_t count,
                  unsigned seed)
{
    spw_payload *payload;
    assert_ok(spw_connection_receive(connection, &payload, NULL));
    payload_assert(payload, sizes, count, seed);
    spw_payload_free(payload);
}
