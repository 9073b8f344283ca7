#include "loopback.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "payloads.h"
#include "transport/connection_state.h"

/* Far more than any wait on a loopback takes: reached only when a wake-up is lost. */
enum { LOST_AFTER_MS = 20000 };

static struct {
    spw_meetings *meetings;
    unsigned news;
    spw_error last;
} watched_meetings;

static void wait_for(struct pollfd *watched, nfds_t count)
{
    int ready = poll(watched, count, LOST_AFTER_MS);
    if (ready <= 0)
        fail_msg("nothing became ready: a wake-up was lost");
}

static spw_connection_options default_options(void)
{
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    options.user_timeout_ms = 30000;
    return options;
}

spw_status loopback_accept(spw_listener *listener,
                           const spw_connection_options *options,
                           spw_connection **ret_connection, spw_error *error)
{
    spw_connection_options usual = default_options();
    spw_status status;
    do {
        struct pollfd watched = {spw_listener_descriptor(listener), POLLIN, 0};
        wait_for(&watched, 1);
        status = spw_listener_accept(listener, options != NULL ? options : &usual,
                                     ret_connection, error);
    } while (status == SPW_STATUS_AGAIN);
    return status;
}

static spw_status connect_both(spw_context *context, const char *host,
                               const spw_connection_options *options, loopback *pair,
                               spw_error *error)
{
    spw_status status =
        spw_listener_start(context, host, 0, 16, &pair->listener, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint16_t port;
    spw_listener_local(pair->listener, &host, &port);
    status = spw_connection_connect(context, host, port, options, &pair->client, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = loopback_accept(pair->listener, options, &pair->server, error);
    while (status == SPW_STATUS_OK && spw_connection_is_connecting(pair->client))
        status = loopback_step(pair->client, NULL, error);
    return status;
}

spw_status loopback_open(spw_context *context, const char *host, loopback *ret_pair,
                         spw_error *error)
{
    spw_connection_options options = default_options();
    *ret_pair = (loopback){0};
    return connect_both(context, host, &options, ret_pair, error);
}

spw_status loopback_open_with(spw_context *context, const char *host,
                              const spw_connection_options *options, loopback *ret_pair,
                              spw_error *error)
{
    *ret_pair = (loopback){0};
    return connect_both(context, host, options, ret_pair, error);
}

spw_status loopback_open_away(spw_context *context, unsigned threads,
                              uint64_t inline_bytes, loopback *ret_pair,
                              spw_error *error)
{
    *ret_pair = (loopback){0};
    spw_status status = spw_reactor_create(context, threads, &ret_pair->reactor, error);
    if (status == SPW_STATUS_OK)
        status =
            spw_completions_create(ret_pair->reactor, &ret_pair->completions, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_connection_options options = default_options();
    options.completions = ret_pair->completions;
    options.inline_bytes = inline_bytes;
    return connect_both(context, "127.0.0.1", &options, ret_pair, error);
}

void loopback_watch_meetings(spw_meetings *meetings)
{
    memset(&watched_meetings, 0, sizeof watched_meetings);
    watched_meetings.meetings = meetings;
}

unsigned loopback_news(const char **ret_last)
{
    if (ret_last != NULL)
        *ret_last = watched_meetings.last.message;
    return watched_meetings.news;
}

spw_status loopback_open_host(spw_context *context, unsigned threads,
                              const spw_meetings_options *options, loopback *ret_pair,
                              spw_error *error)
{
    static const uint8_t OF_CLIENT[SPW_NONCE_BYTES] = "the client's...";
    static const uint8_t OF_SERVER[SPW_NONCE_BYTES] = "the server's...";
    spw_meetings_options chosen = SPW_MEETINGS_OPTIONS_INIT;
    spw_status status = loopback_open_away(context, threads, 0, ret_pair, error);
    private_place_open(&ret_pair->place);
    if (options != NULL)
        chosen = *options;
    chosen.parent = ret_pair->place.directory;
    if (status == SPW_STATUS_OK)
        status = spw_meetings_create(context, &chosen, &ret_pair->meetings, error);
    loopback_watch_meetings(ret_pair->meetings);
    if (status != SPW_STATUS_OK)
        return status;
    const char *path = spw_meetings_path(ret_pair->meetings);
    status = spw_connection_meet(ret_pair->client, ret_pair->meetings, OF_CLIENT, path,
                                 OF_SERVER, error);
    if (status == SPW_STATUS_OK)
        status = spw_connection_meet(ret_pair->server, ret_pair->meetings, OF_SERVER,
                                     path, OF_CLIENT, error);
    return status;
}

spw_status loopback_settle(spw_connection *sender, spw_connection *receiver,
                           spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK && spw_connection_is_open(sender) &&
           spw_connection_queued_bytes(sender) > 0)
        status = loopback_step(sender, receiver, error);
    return status;
}

spw_status loopback_meet(torture *t, spw_connection *sender, spw_connection *receiver)
{
    static const size_t BODY[] = {300000};
    uint64_t meetings = torture_figures(t).host_meetings;
    spw_status status = loopback_send_made(t, sender, BODY, 1, 77);
    if (status == SPW_STATUS_OK)
        status = loopback_receive_made(t, receiver, sender, BODY, 1, 77);
    /* Or until nobody is let in: then it may wait for ever, and goes by the stream. */
    while (
        status == SPW_STATUS_OK && spw_connection_is_open(sender) &&
        (watched_meetings.news == 0 || torture_figures(t).host_meetings > meetings) &&
        (spw_connection_interest(sender) & SPW_INTEREST_COMPLETION))
        status = loopback_step(sender, receiver, &t->error);
    return status;
}

void loopback_close(loopback *pair)
{
    spw_connection_free(pair->client);
    spw_connection_free(pair->server);
    spw_listener_free(pair->listener);
    loopback_watch_meetings(NULL);
    spw_meetings_free(pair->meetings);
    if (pair->place.directory[0] != '\0')
        private_place_close(&pair->place);
    spw_completions_free(pair->completions);
    spw_reactor_free(pair->reactor);
    *pair = (loopback){0};
}

static struct pollfd watch(const spw_connection *connection)
{
    struct pollfd watched = {-1, 0, 0};
    if (connection == NULL || !spw_connection_is_open(connection))
        return watched;
    unsigned interest =
        spw_connection_interest(connection) & ~(unsigned)SPW_INTEREST_COMPLETION;
    if (interest == 0)
        return watched; /* poll would report a hang-up all the same */
    watched.fd = spw_connection_descriptor(connection);
    if (interest & SPW_INTEREST_READ)
        watched.events |= POLLIN;
    if (interest & SPW_INTEREST_WRITE)
        watched.events |= POLLOUT;
    return watched;
}

static spw_status act(spw_connection *connection, const struct pollfd *watched,
                      spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    if (watched->fd < 0 || watched->revents == 0)
        return status;
    if ((watched->events & POLLIN) && (watched->revents & ~POLLOUT))
        (void)!spw_connection_on_readable(connection);
    if ((watched->events & POLLOUT) && (watched->revents & ~POLLIN) &&
        spw_connection_is_open(connection))
        status = spw_connection_on_writable(connection, error);
    spw_connection_reap(connection);
    return status;
}

static struct pollfd watch_completions(const spw_connection *connection)
{
    if (connection == NULL || connection->completions == NULL)
        return (struct pollfd){-1, 0, 0};
    return (struct pollfd){spw_completions_descriptor(connection->completions), POLLIN,
                           0};
}

static void take_back(const spw_connection *connection, const struct pollfd *watched)
{
    spw_connection *back;
    if (watched->fd < 0 || watched->revents == 0)
        return;
    while ((back = spw_completions_next(connection->completions)) != NULL)
        spw_connection_reap(back);
}

static struct pollfd watch_meetings(void)
{
    const spw_meetings *meetings = watched_meetings.meetings;
    return (struct pollfd){meetings != NULL ? spw_meetings_descriptor(meetings) : -1,
                           POLLIN, 0};
}

static void let_in(const struct pollfd *watched)
{
    if (watched->revents != 0 &&
        spw_meetings_on_readable(watched_meetings.meetings, &watched_meetings.last) !=
            SPW_STATUS_OK)
        watched_meetings.news++;
}

spw_status loopback_step(spw_connection *one, spw_connection *other, spw_error *error)
{
    struct pollfd watched[5] = {watch(one), watch(other), watch_completions(one),
                                watch_completions(other), watch_meetings()};
    wait_for(watched, 5);
    let_in(&watched[4]);
    spw_status status = act(one, &watched[0], error);
    if (status == SPW_STATUS_OK)
        status = act(other, &watched[1], error);
    take_back(one, &watched[2]);
    take_back(other, &watched[3]);
    return status;
}

spw_status loopback_receive(spw_connection *receiver, spw_connection *other,
                            spw_payload **ret_payload, spw_error *error)
{
    spw_status status;
    while ((status = spw_connection_receive(receiver, ret_payload, error)) ==
           SPW_STATUS_AGAIN) {
        status = loopback_step(receiver, other, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    return status;
}

bool loopback_has_ipv6(void)
{
    spw__socket_address address;
    assert_ok(spw__address_parse("::1", 0, &address, NULL));
    int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return false;
    bool has = bind(descriptor, &address.any, address.size) == 0;
    close(descriptor);
    return has;
}

spw_status loopback_send_made(torture *t, spw_connection *sender, const size_t *sizes,
                              size_t count, unsigned seed)
{
    spw_payload *payload;
    uint64_t bytes;
    spw_status status =
        payload_make(t->context, sizes, count, seed, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_connection_send(sender, payload, &bytes, &t->error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

spw_status loopback_receive_made(torture *t, spw_connection *receiver,
                                 spw_connection *sender, const size_t *sizes,
                                 size_t count, unsigned seed)
{
    spw_payload *payload;
    spw_status status = loopback_receive(receiver, sender, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    payload_assert(payload, sizes, count, seed);
    spw_payload_free(payload);
    return status;
}

static raw_pair open_raw(spw_context *context, const spw_connection_options *options)
{
    raw_pair pair = {0};
    const char *host;
    uint16_t port;
    spw__socket_address address;
    assert_ok(spw_listener_start(context, "127.0.0.1", 0, 4, &pair.listener, NULL));
    spw_listener_local(pair.listener, &host, &port);
    assert_ok(spw__address_parse(host, port, &address, NULL));
    pair.raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(pair.raw >= 0);
    assert_int_equal(connect(pair.raw, &address.any, address.size), 0);
    assert_ok(loopback_accept(pair.listener, options, &pair.ours, NULL));
    return pair;
}

bool loopback_is_away(const spw_connection *connection)
{
    return spw_connection_interest(connection) & SPW_INTEREST_COMPLETION;
}

raw_pair raw_pair_open(spw_context *context)
{
    return open_raw(context, NULL);
}

raw_pair raw_pair_open_away(spw_context *context, uint64_t inline_bytes)
{
    spw_connection_options options = default_options();
    spw_reactor *reactor;
    assert_ok(spw_reactor_create(context, 0, &reactor, NULL));
    assert_ok(spw_completions_create(reactor, &options.completions, NULL));
    options.inline_bytes = inline_bytes;
    raw_pair pair = open_raw(context, &options);
    pair.reactor = reactor;
    pair.completions = options.completions;
    return pair;
}

void raw_pair_close(raw_pair *pair)
{
    raw_pair_close_peer(pair);
    spw_connection_free(pair->ours);
    spw_listener_free(pair->listener);
    spw_completions_free(pair->completions);
    spw_reactor_free(pair->reactor);
}

void raw_pair_send(const raw_pair *pair, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0) {
        ssize_t sent = send(pair->raw, next, size, MSG_NOSIGNAL);
        if (sent <= 0)
            fail_msg("the raw peer could not send");
        next += sent;
        size -= (size_t)sent;
    }
}

void raw_pair_begin_away(const raw_pair *pair, const char *wire, size_t part)
{
    spw_payload *none;
    raw_pair_send(pair, wire, part);
    while (!pair->ours->receiving.is_away) {
        assert_status(spw_connection_receive(pair->ours, &none, NULL), AGAIN);
        if (!pair->ours->receiving.is_away)
            assert_ok(loopback_step(pair->ours, NULL, NULL));
    }
}

void raw_pair_close_peer(raw_pair *pair)
{
    if (pair->raw >= 0)
        close(pair->raw);
    pair->raw = -1;
}

void raw_pair_reset_peer(raw_pair *pair)
{
    /* With a linger time of 0, close sends a reset. */
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(
        setsockopt(pair->raw, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    raw_pair_close_peer(pair);
}

void assert_ended_as(spw_connection *connection, spw_status expected)
{
    spw_payload *none;
    spw_error error;
    assert_int_equal(spw_connection_receive(connection, &none, &error), expected);
    assert_int_equal(spw_connection_receive(connection, &none, NULL), expected);
    assert_int_equal(error.status, expected);
    assert_int_not_equal(error.message[0], '\0');
    assert_false(spw_connection_is_open(connection));
    /* It stays until nobody watches it, whatever ended the connection. */
    if (expected != SPW_STATUS_CLOSED)
        assert_true(spw_connection_descriptor(connection) >= 0);
    spw_connection_let_go(connection);
    assert_int_equal(spw_connection_descriptor(connection), -1);
    assert_int_equal(spw_connection_interest(connection), 0);
}
