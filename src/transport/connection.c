/* Connections: how they begin and end. An end is recorded once, with its reason, and
 * told to everybody who asks from then on; a connection that has ended never moves
 * another byte. */
#include "spillway/connection.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "context/options.h"
#include "transport/connection_state.h"

/* What is smaller comes in without being asked. */
static const uint64_t HOLD_FROM_BYTES = (uint64_t)1 << 20;

spw_status spw__connection_read_options(const spw_connection_options *given,
                                        spw_connection_options *ret_options,
                                        spw_error *error)
{
    spw_connection_options options = {0};
    spw_status status =
        spw__options_read(given, "CONNECTION", &options, sizeof options, error);
    if (status != SPW_STATUS_OK)
        return status;
    const char *congestion = options.loopback_congestion;
    if (congestion != NULL && strlen(congestion) >= SPW__CONGESTION_NAME_BYTES)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "no congestion control has so long a name: %s",
                              congestion);
    *ret_options = options;
    return SPW_STATUS_OK;
}

/* A connection with everything but its stream. */
static spw_status make(spw_context *context, const spw_connection_options *options,
                       const spw__socket_address *peer, spw_connection **ret_connection,
                       spw_error *error)
{
    spw_connection *connection =
        spw__allocate(context, sizeof *connection, _Alignof(spw_connection));
    if (connection == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a connection");
    *connection = (spw_connection){.context = context,
                                   .completions = options->completions,
                                   .inline_bytes = options->inline_bytes != 0
                                                       ? options->inline_bytes
                                                       : SPW_INLINE_BYTES_DEFAULT,
                                   .user = options->user,
                                   .is_drained = true};
    if (options->loopback_congestion != NULL)
        (void)snprintf(connection->loopback_congestion,
                       sizeof connection->loopback_congestion, "%s",
                       options->loopback_congestion);
    spw__connection_init_directions(connection);
    spw_sink sink = options->sink.ops != NULL ? options->sink : spw_sink_heap(context);
    spw_status status =
        spw__message_reader_create(context, sink, &connection->reader, error);
    if (status != SPW_STATUS_OK) {
        spw__release(context, connection, sizeof *connection, _Alignof(spw_connection));
        return status;
    }
    if (options->completions != NULL)
        spw__message_reader_hold_from(connection->reader, HOLD_FROM_BYTES);
    connection->stream.descriptor = -1;
    spw_context_ref(context);
    spw__send_queue_init(&connection->queue, spw_context_budget(context));
    spw__address_host(peer, connection->peer_host, &connection->peer_port);
    *ret_connection = connection;
    return SPW_STATUS_OK;
}

/* Without counting: for one that never had a stream, or whose end is counted. */
static void release(spw_connection *connection)
{
    spw_context *context = connection->context;
    spw__connection_stop_reading(connection);
    spw__release(context, connection, sizeof *connection, _Alignof(spw_connection));
    spw_context_unref(context);
}

void spw__connection_opened(spw_connection *connection)
{
    connection->phase = CONNECTION_OPEN;
    if (connection->loopback_congestion[0] != '\0' &&
        spw__stream_tcp_tune_loopback(connection->context, &connection->stream,
                                      connection->loopback_congestion))
        spw__count(connection->context, SPW__FIGURE_CONNECTIONS_TUNED, 1);
}

spw_status spw_connection_connect(spw_context *context, const char *host, uint16_t port,
                                  const spw_connection_options *given,
                                  spw_connection **ret_connection, spw_error *error)
{
    spw__socket_address peer;
    spw_connection *connection;
    spw_connection_options options = {0};
    spw_status status = spw__connection_read_options(given, &options, error);
    if (status == SPW_STATUS_OK)
        status = spw__address_parse(host, port, &peer, error);
    if (status == SPW_STATUS_OK)
        status = make(context, &options, &peer, &connection, error);
    if (status != SPW_STATUS_OK)
        return status;
    /* Every connection that is counted as opened is counted once more at its end. */
    spw__count(context, SPW__FIGURE_CONNECTIONS_OPENED, 1);
    status = spw__stream_tcp_connect(context, &peer, options.user_timeout_ms,
                                     &connection->stream, error);
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN) {
        spw__count(context, SPW__FIGURE_CONNECTIONS_FAILED, 1);
        release(connection);
        return status;
    }
    if (status == SPW_STATUS_OK)
        spw__connection_opened(connection);
    *ret_connection = connection;
    return SPW_STATUS_OK;
}

spw_status spw__connection_adopt(spw_context *context, int descriptor,
                                 const spw__socket_address *peer,
                                 const spw_connection_options *options,
                                 spw_connection **ret_connection, spw_error *error)
{
    spw_connection *connection;
    spw_status status = make(context, options, peer, &connection, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__stream_tcp_adopt(context, descriptor, peer, options->user_timeout_ms,
                          &connection->stream);
    spw__connection_opened(connection);
    spw__count(context, SPW__FIGURE_CONNECTIONS_OPENED, 1);
    *ret_connection = connection;
    return SPW_STATUS_OK;
}

void spw_connection_free(spw_connection *connection)
{
    if (connection == NULL)
        return;
    spw_connection_close(connection);
    release(connection);
}

void spw__connection_stop_reading(spw_connection *connection)
{
    spw__message_reader_free(connection->reader);
    connection->reader = NULL;
    spw__connection_leave(connection);
    spw__connection_drop_ahead(connection);
}

void spw__connection_end(spw_connection *connection, const spw_error *why)
{
    bool is_orderly =
        why->status == SPW_STATUS_CLOSED || why->status == SPW_STATUS_PEER_CLOSED;
    spw__count(connection->context,
               is_orderly ? SPW__FIGURE_CONNECTIONS_CLOSED
                          : SPW__FIGURE_CONNECTIONS_FAILED,
               1);
    connection->phase = CONNECTION_ENDED;
    connection->end = *why;
    spw__connection_call_home(connection, &connection->receiving);
    spw__connection_call_home(connection, &connection->sending);
    spw__connection_end_host(connection);
    connection->is_wanted = false;
    spw__stream_tcp_shutdown(&connection->stream);
    spw__file_window_clear(&connection->window);
    spw__send_queue_abandon(&connection->queue);
    if (!spw__connection_forget_sink(connection))
        spw__connection_stop_reading(connection);
}

spw_status spw__connection_tell_end(const spw_connection *connection, spw_error *error)
{
    if (error != NULL)
        *error = connection->end;
    return connection->end.status;
}

void spw_connection_let_go(spw_connection *connection)
{
    if (connection->phase != CONNECTION_ENDED)
        return;
    spw__connection_forget_host(connection);
    spw__watch_forget(&connection->watch);
    spw__stream_tcp_close(&connection->stream);
    connection->completions = NULL; /* they may be freed from now on */
}

void spw_connection_close(spw_connection *connection)
{
    if (connection->phase != CONNECTION_ENDED) {
        spw_error why;
        (void)spw__error_set(&why, SPW_STATUS_CLOSED, 0,
                             "the connection was closed on this side");
        spw__connection_end(connection, &why);
    }
    spw_connection_let_go(connection);
    spw__connection_stop_reading(connection);
    /* These run release callbacks, which may come back to the connection: by now it has
     * ended, and each message is out of it before it is freed. */
    spw__ready_queue_clear(&connection->ready);
    spw__send_queue_reap(&connection->queue);
    spw__connection_free_host(connection);
}

void *spw_connection_user(const spw_connection *connection)
{
    return connection->user;
}

void spw_connection_set_user(spw_connection *connection, void *user)
{
    connection->user = user;
}

int spw_connection_descriptor(const spw_connection *connection)
{
    return connection->stream.descriptor;
}

unsigned spw_connection_interest(const spw_connection *connection)
{
    if (connection->phase == CONNECTION_ENDED)
        return 0;
    if (connection->phase == CONNECTION_CONNECTING)
        return SPW_INTEREST_WRITE;
    unsigned interest = 0;
    /* Also when nothing is announced any more: a thread may just have heard that all is
     * taken, and the owner has still to hear of it. */
    bool is_announcing = connection->announcing.is_away ||
                         spw__connection_announced_bytes(connection) > 0;
    if (connection->sending.is_away || is_announcing)
        interest |= SPW_INTEREST_COMPLETION;
    if (!connection->sending.is_away && spw__send_queue_unsent(&connection->queue) > 0)
        interest |= SPW_INTEREST_WRITE;
    if (connection->receiving.is_away)
        return interest | SPW_INTEREST_COMPLETION;
    /* Also when nobody waits for a message, for that is how an idle connection learns
     * that its peer has gone; but never while something waits to be received, or a
     * level-triggered loop would spin. */
    bool holds_something = !spw__ready_queue_is_empty(&connection->ready) ||
                           connection->ahead.start < connection->ahead.end;
    return holds_something ? interest : interest | SPW_INTEREST_READ;
}

bool spw_connection_is_connecting(const spw_connection *connection)
{
    return connection->phase == CONNECTION_CONNECTING;
}

bool spw_connection_is_open(const spw_connection *connection)
{
    return connection->phase != CONNECTION_ENDED;
}

spw_status spw_connection_local(spw_connection *connection, const char **ret_host,
                                uint16_t *ret_port, spw_error *error)
{
    if (connection->local_host[0] == '\0') {
        if (connection->phase == CONNECTION_ENDED)
            return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                                  "a closed connection has no local address");
        spw__socket_address local;
        int answer = spw__socket_local(connection->stream.descriptor, &local);
        if (answer < 0)
            return spw__stream_tcp_fault(answer, "find the local address towards",
                                         &connection->stream.peer, error);
        spw__address_host(&local, connection->local_host, &connection->local_port);
    }
    *ret_host = connection->local_host;
    *ret_port = connection->local_port;
    return SPW_STATUS_OK;
}

void spw_connection_peer(const spw_connection *connection, const char **ret_host,
                         uint16_t *ret_port)
{
    *ret_host = connection->peer_host;
    *ret_port = connection->peer_port;
}

uint64_t spw_connection_queued_bytes(const spw_connection *connection)
{
    return spw__send_queue_unsent(&connection->queue) +
           spw__connection_announced_bytes(connection);
}

void spw_connection_reap(spw_connection *connection)
{
    if (!connection->sending.is_away)
        spw__send_queue_reap(&connection->queue);
    spw__connection_reap_host(connection);
}
