/* A storm: threads that each own connections send, receive, cut and drop them at
 * random, while the threads of one reactor move what is large, by the stream or, where
 * both ends have met, from memory to memory. Every byte that arrives
 * is checked, and in the end everything that was not cut has arrived and all is given
 * back.
 *
 *     storm [SECONDS [SEED]]
 *
 * The actions follow from the seed; how the threads meet does not. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <zlib.h>

#include "counting_allocator.h"
#include "io_fault.h"
#include "spillway/listener.h"
#include "private_place.h"
#include "spillway/reactor.h"
#include "spillway/same_host.h"

enum {
    OWNERS = 3,
    PAIRS = 5, /* of each owner */
    REACTOR_THREADS = 3,
    SOURCE_BYTES = 8 << 20,
    LARGE_BYTES = 3 << 20,
    QUEUED_BYTES = 16 << 20, /* with more than that an end sends nothing new */
    IDLE_MS = 1,
    LOST_AFTER_MS = 30000
};

/* What a message says of itself, in its first frame. */
typedef struct label {
    uint64_t number, bytes;
    uint64_t crc;
} label;

typedef struct end {
    spw_connection *connection;
    bool is_reading; /* else it lets the peer wait */
    uint64_t sent, received;
} end;

/* Invariant: both ends are there. */
typedef struct pair {
    end ends[2];
} pair;

typedef struct owner {
    unsigned number;
    uint64_t random;
    spw_context *context;
    spw_reactor *reactor;
    spw_completions *completions;
    spw_listener *listener;
    private_place place;
    spw_meetings *meetings;
    pair pairs[PAIRS];
    uint64_t messages, bytes, cuts;
    time_t until;
} owner;

static unsigned char source[SOURCE_BYTES]; /* what all bodies are pieces of */
static _Atomic uint64_t wrapped, released;

#define die(...)                                                                       \
    do {                                                                               \
        fprintf(stderr, "storm: " __VA_ARGS__);                                        \
        fputc('\n', stderr);                                                           \
        abort();                                                                       \
    } while (0)

#define must(expression)                                                               \
    do {                                                                               \
        spw_status status_ = (expression);                                             \
        if (status_ != SPW_STATUS_OK)                                                  \
            die("%s: %s", #expression, spw_status_name(status_));                      \
    } while (0)

/* xorshift64*: enough for choices, and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static uint64_t below(owner *o, uint64_t limit)
{
    return (next_random(&o->random) >> 16) % limit;
}

static bool in_percent(owner *o, unsigned percent)
{
    return below(o, 100) < percent;
}

/* ---- pairs ---- */

static void meet(owner *o, const pair *p);

static void open_pair(owner *o, pair *p)
{
    static const uint64_t INLINE[] = {1, 16 * 1024, 0};
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    options.completions = o->completions;
    options.inline_bytes = INLINE[below(o, 3)];
    const char *host;
    uint16_t port;
    spw_connection *client, *server;
    spw_listener_local(o->listener, &host, &port);
    must(spw_connection_connect(o->context, host, port, &options, &client, NULL));
    options.inline_bytes = INLINE[below(o, 3)];
    struct pollfd waiting = {spw_listener_descriptor(o->listener), POLLIN, 0};
    if (poll(&waiting, 1, LOST_AFTER_MS) != 1)
        die("nobody came to be accepted");
    must(spw_listener_accept(o->listener, &options, &server, NULL));
    *p = (pair){.ends = {{.connection = client, .is_reading = true},
                         {.connection = server, .is_reading = true}}};
    spw_connection_set_user(client, &p->ends[0]);
    spw_connection_set_user(server, &p->ends[1]);
    if (in_percent(o, 70))
        meet(o, p);
}

/* Have both ends expect each other. */
static void meet(owner *o, const pair *p)
{
    uint64_t nonces[2][SPW_NONCE_BYTES / sizeof(uint64_t)];
    const char *path = spw_meetings_path(o->meetings);
    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < SPW_NONCE_BYTES / sizeof(uint64_t); j++)
            nonces[i][j] = next_random(&o->random);
    for (int i = 0; i < 2; i++) {
        spw_status status = spw_connection_meet(p->ends[i].connection, o->meetings,
                                                (const uint8_t *)nonces[i], path,
                                                (const uint8_t *)nonces[!i], NULL);
        if (status != SPW_STATUS_OK && spw_connection_is_open(p->ends[i].connection))
            die("a connection cannot meet: %s", spw_status_name(status));
    }
}

static void drop_pair(owner *o, pair *p)
{
    unsigned first = (unsigned)below(o, 2);
    spw_connection_free(p->ends[first].connection);
    spw_connection_free(p->ends[!first].connection);
}

/* ---- messages ---- */

static void count_release(void *ignored)
{
    (void)ignored;
    released++;
}

static void append(owner *o, spw_payload *payload, size_t from, size_t size)
{
    spw_slice slice = {.size = size, .plain_size = size};
    must(spw_buffer_wrap(o->context, source + from, size, true, count_release, NULL,
                         &slice.buffer, NULL));
    wrapped++;
    must(spw_payload_append(payload, &slice, NULL));
}

static size_t choose_size(owner *o)
{
    if (in_percent(o, 50))
        return (size_t)below(o, 2000);
    return (size_t)below(o, in_percent(o, 75) ? 100000 : LARGE_BYTES);
}

static void send_one(owner *o, end *e)
{
    spw_payload *payload;
    spw_slice first = {.size = sizeof(label), .plain_size = sizeof(label)};
    label l = {.number = e->sent, .crc = crc32(0, NULL, 0)};
    must(spw_payload_create(o->context, 4, &payload, NULL));
    must(spw_buffer_create(o->context, sizeof l, SPW_CHARGE_HELD, &first.buffer, NULL));
    label *written = spw_buffer_data(first.buffer);
    must(spw_payload_append(payload, &first, NULL));
    for (uint64_t frames = below(o, 3) + 1; frames > 0; frames--) {
        size_t size = choose_size(o);
        size_t from = (size_t)below(o, SOURCE_BYTES - size);
        append(o, payload, from, size);
        l.crc = crc32((uLong)l.crc, source + from, (uInt)size);
        l.bytes += size;
    }
    memcpy(written, &l, sizeof l);
    uint64_t bytes;
    if (spw_connection_send(e->connection, payload, &bytes, NULL) == SPW_STATUS_OK)
        e->sent++;
    else
        spw_payload_free(payload);
}

static void check(owner *o, end *e, const spw_payload *payload)
{
    const spw_slice *slices = spw_payload_slices(payload);
    label l, found = {.number = e->received++, .crc = crc32(0, NULL, 0)};
    if (spw_payload_count(payload) < 2 || slices[0].size != sizeof l)
        die("a message without its label");
    memcpy(&l, spw_slice_data(&slices[0]), sizeof l);
    for (size_t i = 1; i < spw_payload_count(payload); i++) {
        found.crc =
            crc32((uLong)found.crc, spw_slice_data(&slices[i]), (uInt)slices[i].size);
        found.bytes += slices[i].size;
    }
    if (memcmp(&l, &found, sizeof l) != 0)
        die("message %llu of %llu bytes came as number %llu of %llu bytes, CRC "
            "%llx/%llx",
            (unsigned long long)l.number, (unsigned long long)l.bytes,
            (unsigned long long)found.number, (unsigned long long)found.bytes,
            (unsigned long long)l.crc, (unsigned long long)found.crc);
    o->messages++;
    o->bytes += found.bytes;
}

/* Take what has arrived. */
static void receive_all(owner *o, end *e)
{
    spw_payload *payload;
    spw_error error;
    spw_status status;
    while ((status = spw_connection_receive(e->connection, &payload, &error)) ==
           SPW_STATUS_OK) {
        check(o, e, payload);
        spw_payload_free(payload);
    }
    switch (status) {
    case SPW_STATUS_AGAIN:
    case SPW_STATUS_CLOSED:
    case SPW_STATUS_PEER_CLOSED:
    case SPW_STATUS_TRUNCATED:
    case SPW_STATUS_RESET:
        break;
    default:
        die("a connection ended with %s: %s", spw_status_name(status), error.message);
    }
}

/* ---- what happens to connections ---- */

static void cut(owner *o, pair *p)
{
    static const struct linger AT_ONCE = {.l_onoff = 1, .l_linger = 0};
    end *e = &p->ends[below(o, 2)];
    int descriptor = spw_connection_descriptor(e->connection);
    o->cuts++;
    switch (below(o, 5)) {
    case 0: /* as by a killed peer with unread data */
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &AT_ONCE, sizeof AT_ONCE);
        spw_connection_close(e->connection);
        break;
    case 1:
        shutdown(descriptor, SHUT_WR);
        break;
    case 2:
        shutdown(descriptor, SHUT_RDWR);
        break;
    case 3:
        spw_connection_close(e->connection);
        spw_connection_close(e->connection);
        break;
    default: /* freed while anything is under way */
        drop_pair(o, p);
        open_pair(o, p);
        break;
    }
}

static void act_at_random(owner *o)
{
    pair *p = &o->pairs[below(o, PAIRS)];
    end *e = &p->ends[below(o, 2)];
    if (in_percent(o, 3))
        cut(o, p);
    else if (in_percent(o, 10))
        e->is_reading = !e->is_reading;
    else if (spw_connection_is_open(e->connection) &&
             spw_connection_queued_bytes(e->connection) < QUEUED_BYTES)
        send_one(o, e);
}

/* ---- the loop ---- */

static struct pollfd watch(const end *e)
{
    unsigned interest = spw_connection_interest(e->connection);
    struct pollfd watched = {-1, 0, 0};
    if (interest & (SPW_INTEREST_READ | SPW_INTEREST_WRITE))
        watched.fd = spw_connection_descriptor(e->connection);
    if (interest & SPW_INTEREST_READ)
        watched.events |= POLLIN;
    if (interest & SPW_INTEREST_WRITE)
        watched.events |= POLLOUT;
    return watched;
}

static void serve(owner *o, end *e, const struct pollfd *watched)
{
    if (watched->fd >= 0 && watched->revents != 0) {
        if (watched->events & POLLIN)
            (void)!spw_connection_on_readable(e->connection);
        if (watched->events & POLLOUT)
            (void)!spw_connection_on_writable(e->connection, NULL);
    }
    if (e->is_reading)
        receive_all(o, e);
    spw_connection_reap(e->connection);
}

/* Returns: how many descriptors were ready. */
static int turn(owner *o, int timeout_ms)
{
    struct pollfd watched[2 * PAIRS + 2];
    for (int i = 0; i < 2 * PAIRS; i++)
        watched[i] = watch(&o->pairs[i / 2].ends[i % 2]);
    watched[2 * PAIRS] =
        (struct pollfd){spw_completions_descriptor(o->completions), POLLIN, 0};
    watched[2 * PAIRS + 1] =
        (struct pollfd){spw_meetings_descriptor(o->meetings), POLLIN, 0};
    int ready = poll(watched, 2 * PAIRS + 2, timeout_ms);
    must(spw_meetings_on_readable(o->meetings, NULL));
    spw_connection *back;
    while ((back = spw_completions_next(o->completions)) != NULL) {
        end *e = spw_connection_user(back);
        if (e < o->pairs[0].ends || e > &o->pairs[PAIRS - 1].ends[1])
            die("a connection came back to somebody else");
        spw_connection_reap(back);
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        serve(o, &o->pairs[i / 2].ends[i % 2], &watched[i]);
    for (int i = 0; i < PAIRS; i++) {
        pair *p = &o->pairs[i];
        if (spw_connection_is_open(p->ends[0].connection) &&
            spw_connection_is_open(p->ends[1].connection))
            continue;
        drop_pair(o, p);
        open_pair(o, p);
    }
    return ready;
}

static bool is_all_here(const owner *o)
{
    for (int i = 0; i < PAIRS; i++) {
        const end *ends = o->pairs[i].ends;
        if (ends[0].sent != ends[1].received || ends[1].sent != ends[0].received)
            return false;
    }
    return true;
}

static void *storm(void *argument)
{
    owner *o = argument;
    must(spw_completions_create(o->reactor, &o->completions, NULL));
    must(spw_listener_start(o->context, "127.0.0.1", 0, 16, &o->listener, NULL));
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.parent = o->place.directory;
    options.best = (spw_host_way)(o->number % 2 + 1); /* by address, or descriptor */
    options.uses_descriptors = true;
    must(spw_meetings_create(o->context, &options, &o->meetings, NULL));
    for (int i = 0; i < PAIRS; i++)
        open_pair(o, &o->pairs[i]);
    while (time(NULL) < o->until) {
        for (uint64_t actions = below(o, 16); actions > 0; actions--)
            act_at_random(o);
        (void)turn(o, IDLE_MS);
    }
    /* The calm: whatever is on its way arrives, or a wake-up has been lost. */
    for (int i = 0; i < 2 * PAIRS; i++)
        o->pairs[i / 2].ends[i % 2].is_reading = true;
    (void)turn(o, 0);
    while (!is_all_here(o))
        if (turn(o, LOST_AFTER_MS) <= 0)
            die("owner %u: something is under way and nobody says when: a wake-up was "
                "lost",
                o->number);
    for (int i = 0; i < PAIRS; i++)
        drop_pair(o, &o->pairs[i]);
    spw_listener_free(o->listener);
    spw_meetings_free(o->meetings);
    spw_completions_free(o->completions);
    return NULL;
}

static void check_nothing_left(const counting_allocator *allocator, spw_budget *budget)
{
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        if (figures.used_bytes[i] != 0)
            die("%lld bytes stay charged in account %d",
                (long long)figures.used_bytes[i], i);
    if (allocator->live_blocks != 0)
        die("%llu blocks leaked", (unsigned long long)allocator->live_blocks);
    if (io_fault_mapped_bytes() != 0)
        die("%lld bytes stay mapped", (long long)io_fault_mapped_bytes());
    if (io_fault_open_descriptors() != 0)
        die("%d descriptors stay open", io_fault_open_descriptors());
    if (wrapped != released)
        die("%llu buffers were lent and %llu given back", (unsigned long long)wrapped,
            (unsigned long long)released);
}

int main(int argc, char **argv)
{
    uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 2;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    printf("storm: %llu seconds, seed %llu\n", (unsigned long long)seconds,
           (unsigned long long)seed);
    fflush(stdout);
    uint64_t random = seed * 2 + 1;
    for (size_t i = 0; i < SOURCE_BYTES; i++)
        source[i] = (unsigned char)(next_random(&random) >> 56);
    counting_allocator allocator = {0};
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    spw_reactor *reactor;
    spw_context *context;
    must(spw_budget_create(0, &options.budget, NULL));
    options.allocator = counting_allocator_hook(&allocator);
    options.pool = seed % 2 == 0 ? SPW_POOL_ON : SPW_POOL_OFF;
    must(spw_context_create(&options, &context, NULL));
    must(spw_reactor_create(context, REACTOR_THREADS, &reactor, NULL));
    static owner owners[OWNERS];
    pthread_t threads[OWNERS];
    for (unsigned i = 0; i < OWNERS; i++) {
        owners[i] = (owner){.number = i,
                            .random = next_random(&random) | 1,
                            .context = context,
                            .reactor = reactor,
                            .until = time(NULL) + (time_t)seconds};
        private_place_open(&owners[i].place);
        if (pthread_create(&threads[i], NULL, storm, &owners[i]) != 0)
            die("no thread for an owner");
    }
    uint64_t messages = 0, bytes = 0, cuts = 0;
    for (unsigned i = 0; i < OWNERS; i++) {
        pthread_join(threads[i], NULL);
        private_place_close(&owners[i].place);
        messages += owners[i].messages;
        bytes += owners[i].bytes;
        cuts += owners[i].cuts;
    }
    spw_reactor_free(reactor);
    spw_figures figures;
    spw_context_read_figures(context, &figures);
    spw_context_unref(context);
    check_nothing_left(&allocator, options.budget);
    spw_budget_free(options.budget);
    if (figures.host_bytes_by_address == 0 || figures.host_bytes_by_descriptor == 0)
        die("nothing went from memory to memory");
    printf("storm: %llu messages of %llu MB, of which %llu by address and %llu by "
           "descriptor, %llu cuts; all that arrived was right\n",
           (unsigned long long)messages, (unsigned long long)(bytes / 1000000),
           (unsigned long long)(figures.host_bytes_by_address / 1000000),
           (unsigned long long)(figures.host_bytes_by_descriptor / 1000000),
           (unsigned long long)cuts);
    return 0;
}
