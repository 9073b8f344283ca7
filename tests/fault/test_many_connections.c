/* A thousand connections to one endpoint: what an idle one costs, and that none of them
 * starves while all of them send. Both ends are of this process, each side with
 * completions of its own, over one reactor. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"

enum {
    CONNECTIONS = 1000,
    DESCRIPTORS = 2 * CONNECTIONS + 100,
    IDLE_BYTES = 16 * 1024,  /* what an idle connection may cost */
    MESSAGES = 4,            /* of each, on average */
    BODY_BYTES = 280 * 1024, /* more than moves at home */
    LOST_AFTER_MS = 20000,
    CANNOT_RUN = 77
};

typedef struct many {
    spw_reactor *reactor;
    spw_completions *completions[2]; /* of the clients, of the servers */
    spw_listener *listener;
    spw_connection *ends[2][CONNECTIONS];
    unsigned received[CONNECTIONS];
    unsigned char *body;
    unsigned released, sent, arrived;
} many;

static many m;

static struct pollfd watch(const spw_connection *connection)
{
    unsigned interest = spw_connection_interest(connection);
    struct pollfd watched = {-1, 0, 0};
    if (interest & (SPW_INTEREST_READ | SPW_INTEREST_WRITE))
        watched.fd = spw_connection_descriptor(connection);
    if (interest & SPW_INTEREST_READ)
        watched.events |= POLLIN;
    if (interest & SPW_INTEREST_WRITE)
        watched.events |= POLLOUT;
    return watched;
}

/* Wait for whatever is ready of all ends and of both completions, and serve it. */
static void turn(void)
{
    static struct pollfd watched[2 * CONNECTIONS + 2];
    for (int i = 0; i < 2 * CONNECTIONS; i++)
        watched[i] = watch(m.ends[i / CONNECTIONS][i % CONNECTIONS]);
    for (int side = 0; side < 2; side++)
        watched[2 * CONNECTIONS + side] =
            (struct pollfd){spw_completions_descriptor(m.completions[side]), POLLIN, 0};
    if (poll(watched, 2 * CONNECTIONS + 2, LOST_AFTER_MS) <= 0)
        fail_msg("nothing became ready: a wake-up was lost");
    for (int i = 0; i < 2 * CONNECTIONS; i++) {
        spw_connection *connection = m.ends[i / CONNECTIONS][i % CONNECTIONS];
        if (watched[i].fd >= 0 && (watched[i].revents & ~POLLOUT))
            (void)!spw_connection_on_readable(connection);
        if (watched[i].fd >= 0 && (watched[i].revents & POLLOUT))
            assert_ok(spw_connection_on_writable(connection, NULL));
    }
    spw_connection *back;
    for (int side = 0; side < 2; side++)
        while ((back = spw_completions_next(m.completions[side])) != NULL)
            spw_connection_reap(back);
}

static void open_all(torture *t)
{
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    const char *host;
    uint16_t port;
    m = (many){0};
    assert_ok(spw_reactor_create(t->context, 0, &m.reactor, NULL));
    assert_ok(spw_completions_create(m.reactor, &m.completions[0], NULL));
    assert_ok(spw_completions_create(m.reactor, &m.completions[1], NULL));
    assert_ok(
        spw_listener_start(t->context, "127.0.0.1", 0, CONNECTIONS, &m.listener, NULL));
    spw_listener_local(m.listener, &host, &port);
    for (int i = 0; i < CONNECTIONS; i++) {
        options.completions = m.completions[0];
        assert_ok(spw_connection_connect(t->context, host, port, &options,
                                         &m.ends[0][i], NULL));
        options.completions = m.completions[1];
        assert_ok(loopback_accept(m.listener, &options, &m.ends[1][i], NULL));
    }
    for (int i = 0; i < CONNECTIONS; i++)
        while (spw_connection_is_connecting(m.ends[0][i]))
            turn();
    m.body = calloc(1, BODY_BYTES);
    assert_non_null(m.body);
}

static void close_all(void)
{
    for (int i = 0; i < 2 * CONNECTIONS; i++)
        spw_connection_free(m.ends[i / CONNECTIONS][i % CONNECTIONS]);
    spw_listener_free(m.listener);
    spw_completions_free(m.completions[0]);
    spw_completions_free(m.completions[1]);
    spw_reactor_free(m.reactor);
    free(m.body);
}

static void send_one(torture *t, spw_connection *connection, size_t size)
{
    spw_payload *payload;
    uint64_t bytes;
    assert_ok(payload_wrap(t->context, m.body, size, &m.released, &payload, NULL));
    assert_ok(spw_connection_send(connection, payload, &bytes, NULL));
    spw_connection_reap(connection);
    m.sent++;
}

/* Returns: how many messages of that size have come to the ends of a side. */
static unsigned receive_some(int side, size_t size)
{
    unsigned count = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        spw_payload *payload;
        spw_error error;
        spw_status status;
        while ((status = spw_connection_receive(m.ends[side][i], &payload, &error)) ==
               SPW_STATUS_OK) {
            const spw_slice *slice = spw_payload_slices(payload);
            assert_int_equal(slice->size, size);
            assert_memory_equal(spw_slice_data(slice), m.body, size);
            spw_payload_free(payload);
            m.received[i]++;
            m.arrived++;
            count++;
        }
        if (status != SPW_STATUS_AGAIN)
            fail_msg("%s", error.message);
    }
    return count;
}

static void exchange_small(torture *t)
{
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < CONNECTIONS; i++)
            send_one(t, m.ends[side][i], 1000);
        for (unsigned count = 0; count < CONNECTIONS;) {
            count += receive_some(!side, 1000);
            if (count < CONNECTIONS)
                turn();
        }
    }
}

/* Each sends one message after another, until so many have come in all.
 * Returns: how many each got through on average. */
static unsigned send_large_from_all(torture *t)
{
    unsigned count = 0;
    memset(m.received, 0, sizeof m.received);
    while (count < MESSAGES * CONNECTIONS) {
        for (int i = 0; i < CONNECTIONS; i++)
            if (spw_connection_queued_bytes(m.ends[0][i]) < BODY_BYTES)
                send_one(t, m.ends[0][i], BODY_BYTES);
        turn();
        count += receive_some(1, BODY_BYTES);
    }
    return count / CONNECTIONS;
}

/* What is still under way arrives. */
static void calm_down(void)
{
    while (m.sent > m.arrived) {
        turn();
        (void)receive_some(1, BODY_BYTES);
    }
}

static uint64_t bytes_for_each(const torture *t, uint64_t before)
{
    return (t->allocator.live_bytes - before) / (2 * CONNECTIONS);
}

static void a_thousand_connections(void **state)
{
    torture *t = *state;
    uint64_t before = t->allocator.live_bytes;
    open_all(t);
    uint64_t fresh = bytes_for_each(t, before);
    exchange_small(t);
    uint64_t idle = bytes_for_each(t, before);
    unsigned average = send_large_from_all(t);
    unsigned least = UINT_MAX, most = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        least = m.received[i] < least ? m.received[i] : least;
        most = m.received[i] > most ? m.received[i] : most;
    }
    calm_down();
    uint64_t idle_again = bytes_for_each(t, before);
    printf("%d connections: %llu bytes each when new, %llu when idle, %llu after large "
           "messages, of which each got through %u to %u while all sent\n",
           CONNECTIONS, (unsigned long long)fresh, (unsigned long long)idle,
           (unsigned long long)idle_again, least, most);
    assert_in_range(fresh, 1, IDLE_BYTES);
    assert_in_range(idle, 1, IDLE_BYTES);
    assert_in_range(idle_again, 1, IDLE_BYTES);
    assert_in_range(least, 1, average);
    close_all();
    assert_int_equal(m.released, m.sent);
}

int main(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < DESCRIPTORS) {
        printf("needs %d descriptors (ulimit -Hn)\n", DESCRIPTORS);
        return CANNOT_RUN;
    }
    if (limit.rlim_cur < DESCRIPTORS) {
        limit.rlim_cur = DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    const struct CMUnitTest tests[] = {SCENARIO(a_thousand_connections)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
