/* Fuzz target: what peers may do to a listener that serves, before and just after its
 * owner takes their connections. The first byte says how it serves; after it come
 * steps: connect, say something in pieces, end, reset, and the owner's take and
 * receive. What is held against it: whatever came, who connects next is greeted and
 * heard, and in the end everything charged and every descriptor is given back. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memory/byte_reader.h"
#include "spillway/spillway.h"
#include "transport/address.h"

/* The first byte. */
enum {
    SAYS_NOTHING = 1 << 0, /* no greeting */
    SMALL_INLINE = 1 << 1, /* threads have all that the owner does not take at once */
    LIMITED = 1 << 2,      /* large messages wait for each other */
    NOBODY_ELSE = 1 << 3,  /* connects: who was not taken goes with the listener */
    INLINE_BYTES = 4096,
    IN_FLIGHT_BYTES = 3 << 19
};

/* A step: which, and of which peer. */
enum {
    SAY = 0, /* two bytes of length, and so much of the input */
    SAY_MORE = 1,
    CONNECT = 2,
    END = 3,
    RESET = 4,
    TAKE = 5,
    RECEIVE = 6,
    SAY_ZEROS = 7, /* two bytes: so many times ZEROS */
    STEP_BITS = 7,
    PEER_SHIFT = 3,
    PEERS = 4,
    AT_ONCE = 1 << 5, /* do not wait until the threads have read it */
    FROM_AFAR = 1 << 6,
    ZEROS = 64
};

enum {
    CONNECTS_MOST = 12,
    WAIT_MS = 10000,
    SETTLE_TURNS = 200, /* a thread that reads does so within some tens */
    HEADER_WORDS = 3
};

static const char GREETING[] = "what a listener says to whoever connects";
static const char REQUEST[] = "what somebody says afterwards who means it";

typedef struct run {
    spw_listener *listener;
    spw_completions *completions;
    int raw[PEERS]; /* -1: nobody */
    spw_connection *taken[CONNECTS_MOST + 1];
    unsigned connects, takes;
    uint64_t said;            /* bytes, by all peers */
    uint64_t received_before; /* by earlier runs */
} run;

/* Once for all runs: to start threads takes longer than a run. */
static spw_budget *budget;
static spw_context *context;
static spw_reactor *reactor;

static void require_at(bool condition, int line)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_handshake.c:%d does not hold\n", line);
    abort();
}
#define require(condition) require_at(condition, __LINE__)

static void end_all(void)
{
    spw_reactor_free(reactor);
    spw_context_unref(context);
    spw_budget_free(budget);
}

static void begin_once(void)
{
    if (reactor != NULL)
        return;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    require(spw_budget_create(0, &budget, NULL) == SPW_STATUS_OK);
    options.budget = budget;
    options.limits =
        (spw_limits){.frames_per_message = 1 << 14, .bytes_per_message = 3 << 20};
    options.pool = SPW_POOL_OFF; /* so that AddressSanitizer knows each buffer */
    require(spw_context_create(&options, &context, NULL) == SPW_STATUS_OK);
    require(spw_reactor_create(context, 2, &reactor, NULL) == SPW_STATUS_OK);
    atexit(end_all);
}

static void serve(run *r, unsigned how)
{
    spw_listener_options options = SPW_LISTENER_OPTIONS_INIT;
    spw_connection_options connection = SPW_CONNECTION_OPTIONS_INIT;
    options.connection = &connection;
    if (!(how & SAYS_NOTHING)) {
        options.greeting = options.greeting_same_host = GREETING;
        options.greeting_bytes = options.greeting_same_host_bytes = sizeof GREETING;
    }
    if (how & SMALL_INLINE)
        connection.inline_bytes = INLINE_BYTES;
    spw_budget_limit_in_flight(budget, how & LIMITED ? IN_FLIGHT_BYTES : 0);
    require(spw_completions_create(reactor, &r->completions, NULL) == SPW_STATUS_OK);
    connection.completions = r->completions;
    require(spw_listener_start(context, "127.0.0.1", 0, 2 * CONNECTS_MOST, &r->listener,
                               NULL) == SPW_STATUS_OK);
    require(spw_listener_serve(r->listener, &options, NULL) == SPW_STATUS_OK);
}

/* Peers. */

static int connect_from(const run *r, const char *own_host)
{
    const char *host;
    uint16_t port;
    spw__socket_address address, own;
    spw_listener_local(r->listener, &host, &port);
    require(spw__address_parse(host, port, &address, NULL) == SPW_STATUS_OK);
    require(spw__address_parse(own_host, 0, &own, NULL) == SPW_STATUS_OK);
    int raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(raw >= 0);
    /* Who has ended keeps its port for a minute, and there are only so many. */
    require(spw__socket_set_reuse_address(raw) == 0);
    require(bind(raw, &own.any, own.size) == 0);
    while (connect(raw, &address.any, address.size) != 0 && errno != EISCONN)
        require(errno == EINTR || errno == EALREADY);
    return raw;
}

/* With a reset: nothing of it stays in the system for a minute. */
static void reset_raw(int *raw)
{
    struct linger at_once = {.l_onoff = 1};
    if (*raw < 0)
        return;
    require(setsockopt(*raw, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close(*raw);
    *raw = -1;
}

/* Let the threads read what has been said, unless they have no wish to. */
static void settle(const run *r)
{
    spw_figures figures;
    for (int i = 0; i < SETTLE_TURNS; i++) {
        spw_context_read_figures(context, &figures);
        if (figures.bytes_received - r->received_before >= r->said)
            return;
        sched_yield();
    }
}

static void say(run *r, int raw, const void *data, size_t size)
{
    if (raw < 0)
        return;
    /* The other end may have hung up, or have enough. */
    ssize_t sent = send(raw, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
        r->said += (uint64_t)sent;
}

static void say_next(run *r, int raw, spw__byte_reader *input)
{
    uint64_t length;
    if (!spw__byte_reader_le(input, 2, &length))
        return;
    size_t left = (size_t)(input->end - input->next);
    size_t size = length < left ? (size_t)length : left;
    say(r, raw, input->next, size);
    require(spw__byte_reader_skip(input, size));
}

static void say_zeros(run *r, int raw, spw__byte_reader *input)
{
    static const char zeros[1 << 16];
    uint64_t count;
    if (!spw__byte_reader_le(input, 2, &count))
        return;
    for (size_t left = (size_t)count * ZEROS, size; left > 0; left -= size) {
        size = left < sizeof zeros ? left : sizeof zeros;
        say(r, raw, zeros, size);
    }
}

/* The owner. */

static void take_all(run *r)
{
    spw_connection *connection;
    spw_status status;
    while ((status = spw_listener_accept(r->listener, NULL, &connection, NULL)) ==
           SPW_STATUS_OK) {
        require(r->takes <= CONNECTS_MOST);
        r->taken[r->takes++] = connection;
    }
    require(status == SPW_STATUS_AGAIN);
}

static void receive_all(spw_connection *connection)
{
    spw_payload *payload;
    spw_status status;
    while ((status = spw_connection_receive(connection, &payload, NULL)) ==
           SPW_STATUS_OK)
        spw_payload_free(payload);
    require(status == SPW_STATUS_AGAIN || !spw_connection_is_open(connection));
    if (status != SPW_STATUS_AGAIN)
        spw_connection_let_go(connection);
}

static void drive(run *r)
{
    spw_connection *connection;
    while ((connection = spw_completions_next(r->completions)) != NULL)
        receive_all(connection);
    for (unsigned i = 0; i < r->takes; i++) {
        (void)!spw_connection_on_readable(r->taken[i]);
        receive_all(r->taken[i]);
    }
}

static bool step(run *r, spw__byte_reader *input)
{
    uint64_t what;
    if (!spw__byte_reader_le(input, 1, &what))
        return false;
    int *raw = &r->raw[(what >> PEER_SHIFT) % PEERS];
    switch (what & STEP_BITS) {
    case SAY:
    case SAY_MORE:
        say_next(r, *raw, input);
        break;
    case SAY_ZEROS:
        say_zeros(r, *raw, input);
        break;
    case CONNECT:
        if (r->connects == CONNECTS_MOST)
            break;
        reset_raw(raw);
        *raw = connect_from(r, what & FROM_AFAR ? "127.0.0.2" : "127.0.0.1");
        r->connects++;
        break;
    case END:
        if (*raw >= 0)
            (void)!shutdown(*raw, SHUT_WR); /* it may have been reset */
        break;
    case RESET:
        reset_raw(raw);
        break;
    case TAKE:
        take_all(r);
        break;
    default:
        drive(r);
        break;
    }
    if (!(what & AT_ONCE))
        settle(r);
    return true;
}

/* Somebody who means it. */

static void wait_for(int descriptor, int other)
{
    struct pollfd polls[] = {{.fd = descriptor, .events = POLLIN},
                             {.fd = other, .events = POLLIN}};
    int ready;
    do { /* libFuzzer's clock interrupts */
        ready = poll(polls, 2, WAIT_MS);
    } while (ready < 0 && errno == EINTR);
    require(ready > 0);
}

static void hear(int raw, void *data, size_t size)
{
    ssize_t received;
    for (size_t at = 0; at < size; at += (size_t)received) {
        wait_for(raw, -1);
        received = recv(raw, (char *)data + at, size - at, MSG_DONTWAIT);
        require(received > 0);
    }
}

static void require_greeting(int raw)
{
    uint64_t words[HEADER_WORDS];
    char frame[sizeof GREETING];
    hear(raw, words, sizeof words);
    require(words[0] == 2 * sizeof *words + sizeof frame);
    require(words[1] == 1 && words[2] == sizeof frame);
    hear(raw, frame, sizeof frame);
    require(memcmp(frame, GREETING, sizeof frame) == 0);
}

/* The connection of who connected from there, when it has come. Not by its port, which
 * may have been that of somebody who was reset. */
static spw_connection *wait_to_take(run *r, const char *own_host)
{
    for (;;) {
        take_all(r);
        for (unsigned i = 0; i < r->takes; i++) {
            const char *host;
            uint16_t port;
            spw_connection_peer(r->taken[i], &host, &port);
            if (strcmp(host, own_host) == 0)
                return r->taken[i];
        }
        wait_for(spw_listener_descriptor(r->listener), -1);
    }
}

static void require_request(const run *r, spw_connection *connection)
{
    spw_payload *payload;
    spw_status status;
    while ((status = spw_connection_receive(connection, &payload, NULL)) ==
           SPW_STATUS_AGAIN) {
        wait_for(spw_connection_descriptor(connection),
                 spw_completions_descriptor(r->completions));
        (void)!spw_connection_on_readable(connection);
        while (spw_completions_next(r->completions) != NULL)
            ;
    }
    require(status == SPW_STATUS_OK && spw_payload_count(payload) == 1);
    const spw_slice *slice = spw_payload_slices(payload);
    require(slice->size == sizeof REQUEST);
    const char *data = spw_buffer_data(slice->buffer);
    require(memcmp(data + slice->offset, REQUEST, sizeof REQUEST) == 0);
    spw_payload_free(payload);
}

/* The listener goes on: who connects now is greeted and heard. */
static void require_goes_on(run *r, unsigned how)
{
    const uint64_t words[HEADER_WORDS] = {2 * sizeof *words + sizeof REQUEST, 1,
                                          sizeof REQUEST};
    int raw = connect_from(r, "127.0.0.3");
    if (!(how & SAYS_NOTHING))
        require_greeting(raw);
    require(send(raw, words, sizeof words, MSG_NOSIGNAL) == (ssize_t)sizeof words);
    require(send(raw, REQUEST, sizeof REQUEST, MSG_NOSIGNAL) ==
            (ssize_t)sizeof REQUEST);
    spw_connection *connection = wait_to_take(r, "127.0.0.3");
    require_request(r, connection);
    reset_raw(&raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    begin_once();
    int before = dup(STDERR_FILENO); /* the lowest that is free */
    close(before);
    spw_figures figures;
    spw_context_read_figures(context, &figures);
    run r = {.received_before = figures.bytes_received};
    for (int i = 0; i < PEERS; i++)
        r.raw[i] = -1;
    serve(&r, data[0]);

    spw__byte_reader input = spw__byte_reader_over(data + 1, size - 1);
    while (step(&r, &input))
        ;
    if (!(data[0] & NOBODY_ELSE))
        require_goes_on(&r, data[0]);

    for (int i = 0; i < PEERS; i++)
        reset_raw(&r.raw[i]);
    for (unsigned i = 0; i < r.takes; i++)
        spw_connection_free(r.taken[i]);
    spw_listener_free(r.listener);
    spw_completions_free(r.completions);
    int after = dup(STDERR_FILENO);
    close(after);
    require(after == before);
    spw_budget_figures charged;
    spw_budget_read(budget, &charged);
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        require(charged.used_bytes[i] == 0);
    return 0;
}
