/* Accepting on a thread of a reactor, so that a peer gets its connection, and its
 * greeting, however long the owner does something else. What the peer says is read by
 * the threads too, until the owner takes the connection.
 *
 * A listener has one task, which belongs to the owner or to a thread, never to both: to
 * take connections the owner recalls it, moves what is on its list to a list of its
 * own, and sends it away again. */
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/options.h"
#include "transport/listener_state.h"

/* Accepting one takes some 50 us, and others wait for the thread. */
enum { ACCEPT_BATCH = 16 };
/* Who comes while so many wait for the owner stays in the system's backlog. */
enum { UNTAKEN_MAX = 1024 };

static void append(untaken_list *list, spw_connection *connection)
{
    connection->next_untaken = NULL;
    if (list->last != NULL)
        list->last->next_untaken = connection;
    else
        list->first = connection;
    list->last = connection;
    list->count++;
}

static spw_connection *pop(untaken_list *list)
{
    spw_connection *connection = list->first;
    if (connection == NULL)
        return NULL;
    list->first = connection->next_untaken;
    if (list->first == NULL)
        list->last = NULL;
    list->count--;
    return connection;
}

/* The greeting. Its memory goes with the last connection that still sends it. */

typedef struct greeting_block {
    spw_context *context; /* one reference */
    size_t size;          /* of the block */
    char frame[];
} greeting_block;

static void release_block(void *user)
{
    greeting_block *block = user;
    spw_context *context = block->context;
    spw__release(context, block, block->size, _Alignof(greeting_block));
    spw_context_unref(context);
}

static spw_status make_greeting(spw_context *context, const void *frame, size_t size,
                                spw_buffer **ret_greeting, spw_error *error)
{
    if (size == 0)
        return SPW_STATUS_OK;
    if (size > SPW_GREETING_BYTES_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a greeting has at most %d bytes, not %zu",
                              SPW_GREETING_BYTES_MAX, size);
    size_t block_size = sizeof(greeting_block) + size;
    greeting_block *block =
        spw__allocate(context, block_size, _Alignof(greeting_block));
    if (block == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a greeting");
    *block = (greeting_block){.context = spw_context_ref(context), .size = block_size};
    memcpy(block->frame, frame, size);
    spw_status status = spw_buffer_wrap(context, block->frame, size, false,
                                        release_block, block, ret_greeting, error);
    if (status != SPW_STATUS_OK)
        release_block(block);
    return status;
}

static spw_status send_greeting(spw_connection *connection, spw_buffer *greeting,
                                spw_error *error)
{
    size_t size = spw_buffer_size(greeting);
    spw_slice slice = {.kind = SPW_MEMORY_HOST,
                       .flags = SPW_SLICE_TRANSIENT,
                       .buffer = greeting,
                       .size = size,
                       .plain_size = size};
    spw_payload *payload;
    uint64_t bytes;
    spw_status status = spw_payload_create(connection->context, 1, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_buffer_ref(greeting);
    status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(greeting);
    else
        status = spw_connection_send(connection, payload, &bytes, error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

/* Say the greeting that is for such a peer. That its end has come already is for the
 * connection to tell. Errors: NO_MEMORY and others that are not the peer's fault. */
static spw_status greet(const away_listener *away, spw_connection *connection,
                        spw_error *error)
{
    const char *local, *peer;
    uint16_t port;
    /* Asked for now, so that it can be told even when the peer is gone by then. */
    spw_status status = spw_connection_local(connection, &local, &port, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_connection_peer(connection, &peer, &port);
    spw_buffer *greeting =
        strcmp(local, peer) == 0 ? away->greeting_same_host : away->greeting;
    if (greeting != NULL)
        status = send_greeting(connection, greeting, error);
    return spw_connection_is_open(connection) ? status : SPW_STATUS_OK;
}

void spw_listener_hold_from(spw_listener *listener, uint64_t bytes)
{
    atomic_store(&listener->away.hold_from, bytes);
}

/* What a thread does. */

static spw_status accept_one(spw_listener *listener, spw_error *error)
{
    away_listener *away = &listener->away;
    spw_connection *connection;
    spw_status status =
        spw__listener_accept_here(listener, &away->options, &connection, error);
    if (status != SPW_STATUS_OK)
        return status;
    connection->is_untaken = true;
    connection->untaken_hold_from = atomic_load(&away->hold_from);
    status = greet(away, connection, error);
    if (status != SPW_STATUS_OK) {
        spw_connection_free(connection);
        return status;
    }
    spw__connection_go_untaken(connection);
    append(&away->untaken, connection);
    return SPW_STATUS_OK;
}

static spw__step_answer accept_step(spw__task *task)
{
    spw_listener *listener = task->subject;
    away_listener *away = &listener->away;
    unsigned before = away->untaken.count;
    spw_error why;
    spw_status status = SPW_STATUS_OK;
    for (unsigned i = 0;
         i < ACCEPT_BATCH && status == SPW_STATUS_OK &&
         away->untaken.count < UNTAKEN_MAX && !spw__task_is_recalled(task);
         i++)
        status = accept_one(listener, &why);
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN) {
        away->fault = why;
        return SPW__STEP_DONE; /* which raises the sign */
    }
    if (away->untaken.count == UNTAKEN_MAX)
        return SPW__STEP_DONE;
    if (away->untaken.count > before)
        spw__sign_raise(away->sign);
    return SPW__STEP_READ;
}

/* What the owner does. */

static bool send_away(spw_listener *listener)
{
    away_listener *away = &listener->away;
    away->fault.status = SPW_STATUS_OK;
    away->is_away = spw__task_arm_apart(away->options.completions, &away->watch,
                                        listener->descriptor, &away->watch.reading,
                                        SPW__STEP_READ, away->sign);
    return away->is_away;
}

static spw_status no_thread(const spw_listener *listener, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_IO, 0,
                          "no thread accepts connections on %s port %u: there is none, "
                          "or it cannot wait for them",
                          listener->host, (unsigned)listener->port);
}

/* Set everything up that serving needs. */
static spw_status prepare(spw_listener *listener, const spw_listener_options *options,
                          const spw_connection_options *connection, spw_error *error)
{
    away_listener *away = &listener->away;
    spw_status status = make_greeting(listener->context, options->greeting,
                                      options->greeting_bytes, &away->greeting, error);
    if (status == SPW_STATUS_OK)
        status = make_greeting(listener->context, options->greeting_same_host,
                               options->greeting_same_host_bytes,
                               &away->greeting_same_host, error);
    if (status != SPW_STATUS_OK)
        return status;
    away->options = *connection;
    if (away->options.loopback_congestion != NULL) {
        /* It is no longer than that: the options have been checked. */
        (void)strncpy(away->loopback_congestion, away->options.loopback_congestion,
                      sizeof away->loopback_congestion - 1);
        away->options.loopback_congestion = away->loopback_congestion;
    }
    away->watch.reading = (spw__task){.step = accept_step, .subject = listener};
    away->sign = spw__sign_open();
    if (away->sign < 0)
        return spw__stream_tcp_fault(away->sign,
                                     "open a descriptor for the listener on",
                                     &listener->local, error);
    return send_away(listener) ? SPW_STATUS_OK : no_thread(listener, error);
}

spw_status spw_listener_serve(spw_listener *listener, const spw_listener_options *given,
                              spw_error *error)
{
    spw_listener_options options = {0};
    spw_connection_options connection = {0};
    spw_status status =
        spw__options_read(given, "LISTENER", &options, sizeof options, error);
    if (status == SPW_STATUS_OK)
        status = spw__connection_read_options(options.connection, &connection, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (connection.completions == NULL || listener->away.sign >= 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "serving takes completions, and is begun once");
    status = prepare(listener, &options, &connection, error);
    if (status != SPW_STATUS_OK)
        spw__listener_stop_serving(listener);
    return status;
}

/* Have the thread's list, and let it go on; unless it stopped because of a fault, which
 * is to be told first. Errors: CLOSED in a forked child, whose parent accepts. */
static spw_status fetch(spw_listener *listener, spw_error *error)
{
    away_listener *away = &listener->away;
    if (away->is_away) {
        if (!spw__task_recall(&away->watch, &away->watch.reading))
            return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                                  "the listener on %s port %u belongs to the parent "
                                  "process",
                                  listener->host, (unsigned)listener->port);
        away->is_away = false;
        away->arrived = away->untaken;
        away->untaken = (untaken_list){0};
    }
    if (away->arrived.first == NULL)
        spw__sign_clear(away->sign);
    if (away->fault.status != SPW_STATUS_OK) {
        if (away->arrived.first != NULL)
            return SPW_STATUS_OK;
        if (error != NULL)
            *error = away->fault;
        spw_status status = away->fault.status;
        away->fault.status = SPW_STATUS_OK;
        return status;
    }
    bool is_away = send_away(listener);
    return is_away || away->arrived.first != NULL ? SPW_STATUS_OK
                                                  : no_thread(listener, error);
}

spw_status spw__listener_take(spw_listener *listener, spw_connection **ret_connection,
                              spw_error *error)
{
    away_listener *away = &listener->away;
    if (away->arrived.first == NULL) {
        spw_status status = fetch(listener, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    spw_connection *connection = pop(&away->arrived);
    if (connection == NULL)
        return SPW_STATUS_AGAIN;
    spw__connection_take(connection);
    *ret_connection = connection;
    return SPW_STATUS_OK;
}

static void free_all(untaken_list *list)
{
    spw_connection *connection;
    while ((connection = pop(list)) != NULL)
        spw_connection_free(connection);
}

void spw__listener_stop_serving(spw_listener *listener)
{
    away_listener *away = &listener->away;
    /* In a forked child a thread of the parent's may have been in the middle of it. */
    bool is_whole =
        !away->is_away || spw__task_recall(&away->watch, &away->watch.reading);
    away->is_away = false;
    spw__watch_forget(&away->watch);
    if (is_whole)
        free_all(&away->untaken);
    free_all(&away->arrived);
    spw_buffer_unref(away->greeting);
    spw_buffer_unref(away->greeting_same_host);
    if (away->sign >= 0)
        spw__poller_close(away->sign);
    *away = (away_listener){.sign = -1};
}
