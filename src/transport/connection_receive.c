/* The receiving half of a connection. Bodies are read straight to where they stay; only
 * what comes together with an earlier piece passes through the read-ahead. */
#include <inttypes.h>
#include <stddef.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "transport/connection_state.h"

/* A body's rest below this is cheaper copied than named in a vectored read. */
static const size_t DIRECT_FROM_BYTES = 4096;
/* One system call takes a millisecond or two for this, which is as long as the owner
 * waits for a direction that it calls home. */
static const size_t DIRECT_MAX_BYTES = (size_t)4 << 20;
/* With this much of a body missing, a short read is not taken for the last one. */
static const uint64_t ASK_AGAIN_BYTES = 64 * 1024;
/* One call reads no more of a body than this, so that the owner's loop, or what else
 * waits for the thread, gets its turn even while the peer sends as fast as we read. */
static const uint64_t RECEIVE_TURN_BYTES = (uint64_t)64 << 20;
/* The same while nobody has taken the connection, in calls of the system or messages.
 */
static const int UNTAKEN_TURN_CALLS = 16;

static bool has_read_ahead(const spw_connection *connection)
{
    return connection->ahead.start < connection->ahead.end;
}

void spw__connection_drop_ahead(spw_connection *connection)
{
    spw__release(connection->context, connection->ahead.data,
                 connection->ahead.capacity, _Alignof(max_align_t));
    connection->ahead = (read_ahead){0};
}

/* Have memory to read ahead: more of it once what there was has been filled, unless
 * what follows is a body that is read to its place. Only when nothing is read ahead.
 * Returns: false when there is none. */
static bool prepare_ahead(spw_connection *connection)
{
    read_ahead *ahead = &connection->ahead;
    size_t capacity = SPW__READ_AHEAD_LEAST, direct;
    if (ahead->data != NULL) {
        if (connection->is_drained || ahead->capacity == SPW__READ_AHEAD_MOST)
            return true;
        (void)spw__message_reader_direct(connection->reader, &direct);
        if (direct >= DIRECT_FROM_BYTES)
            return true;
        capacity = SPW__READ_AHEAD_MOST;
    }
    char *data = spw__allocate(connection->context, capacity, _Alignof(max_align_t));
    if (data == NULL)
        return false;
    spw__connection_drop_ahead(connection);
    *ahead = (read_ahead){.data = data, .capacity = capacity};
    return true;
}

/* Nothing is under way: what a burst needed is not kept until the next. */
static void give_back_ahead(spw_connection *connection)
{
    if (connection->ahead.capacity > SPW__READ_AHEAD_LEAST &&
        spw__message_reader_is_idle(connection->reader))
        spw__connection_drop_ahead(connection);
}

static void take_whole(spw_connection *connection)
{
    if (!spw__message_reader_is_whole(connection->reader))
        return;
    spw__ready_queue_push(&connection->ready,
                          spw__message_reader_take(connection->reader));
    spw__connection_leave(connection); /* only now is it in flight no more */
    connection->is_wanted = false;
    spw__count(connection->context, SPW__FIGURE_MESSAGES_RECEIVED, 1);
}

/* Parse the read-ahead until a message is ready or nothing is left. */
static spw_status parse(spw_connection *connection, spw_error *error)
{
    read_ahead *ahead = &connection->ahead;
    size_t consumed;
    spw_status status =
        spw__message_reader_feed(connection->reader, ahead->data + ahead->start,
                                 ahead->end - ahead->start, &consumed, error);
    if (status != SPW_STATUS_OK)
        return status;
    ahead->start += consumed;
    spw_context_count_copy(connection->context, SPW_COPY_READ_AHEAD, consumed);
    take_whole(connection);
    return SPW_STATUS_OK;
}

static spw_status tell_peer_closed(const spw_connection *connection, spw_error *error)
{
    char peer[SPW__ADDRESS_TEXT_BYTES];
    spw__address_text(&connection->stream.peer, peer);
    if (spw__message_reader_is_idle(connection->reader))
        return spw__error_set(error, SPW_STATUS_PEER_CLOSED, 0,
                              "%s closed the connection", peer);
    return spw__error_set(
        error, SPW_STATUS_TRUNCATED, 0,
        "%s closed the connection in the middle of a message of which "
        "at least %" PRIu64 " bytes are missing",
        peer, spw__message_reader_missing(connection->reader));
}

/* Where one system call reads to: the body under way, if it is worth it, and then the
 * read-ahead, unless that would be more of a body on its way to disk. Returns: how many
 * pieces; how many bytes they are, and of those the body's. */
static size_t plan_read(spw_connection *connection, struct iovec pieces[2],
                        size_t *ret_given, size_t *ret_direct)
{
    size_t count = 0, given = 0, size;
    void *direct = spw__message_reader_direct(connection->reader, &size);
    if (size >= DIRECT_FROM_BYTES) {
        given = size < DIRECT_MAX_BYTES ? size : DIRECT_MAX_BYTES;
        pieces[count++] = (struct iovec){direct, given};
    }
    *ret_given = *ret_direct = given;
    if (count > 0 && spw__message_reader_is_windowed(connection->reader))
        return count;
    const read_ahead *ahead = &connection->ahead;
    pieces[count++] = (struct iovec){ahead->data, ahead->capacity};
    *ret_given += ahead->capacity;
    return count;
}

/* What nobody waits for stays unparsed, and so no memory is taken for its body. But
 * what a new peer says first is made whole before its owner comes round to taking it.
 */
static bool wants_message(const spw_connection *connection)
{
    const spw__ready_queue *ready = &connection->ready;
    return connection->is_untaken
               ? !spw__ready_queue_is_full(ready)
               : connection->is_wanted && spw__ready_queue_is_empty(ready);
}

/* One system call, and what follows from it. Only when nothing is read ahead, and there
 * is room for what is made whole.
 * Errors: AGAIN, why the connection has ended. */
static spw_status read_once(spw_connection *connection, spw_error *error)
{
    read_ahead *ahead = &connection->ahead;
    if (!prepare_ahead(connection))
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory to receive from %s", connection->peer_host);
    struct iovec pieces[2];
    size_t given, direct, received;
    size_t count = plan_read(connection, pieces, &given, &direct);
    spw_status status =
        spw__stream_tcp_receive(&connection->stream, pieces, count, &received, error);
    connection->is_drained = status != SPW_STATUS_OK || received < given;
    if (status == SPW_STATUS_PEER_CLOSED)
        return tell_peer_closed(connection, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__count(connection->context, SPW__FIGURE_BYTES_RECEIVED, received);
    spw__connection_tell_moved(connection);
    if (direct > received)
        direct = received;
    ahead->start = 0;
    ahead->end = received - direct;
    if (direct > 0) {
        status = spw__message_reader_advance(connection->reader, direct, error);
        if (status != SPW_STATUS_OK)
            return status;
        take_whole(connection);
    }
    if (wants_message(connection) && has_read_ahead(connection))
        status = parse(connection, error);
    return status;
}

void spw__connection_fail_receiving(spw_connection *connection, const spw_error *why)
{
    if (connection->phase != CONNECTION_ENDED)
        spw__connection_end(connection, why);
    spw__connection_stop_reading(connection);
}

/* Nothing can be read, nor parsed, until somebody else has done something. */
static bool has_to_stand(const spw_connection *connection)
{
    return spw__connection_is_held(connection) ||
           spw__connection_is_stalled(connection);
}

/* What comes after a body that does not come in the stream has to wait for that, and
 * what comes after the head of a message that is held, for that. */
static bool has_to_parse(const spw_connection *connection)
{
    return has_read_ahead(connection) && !spw__connection_is_remote(connection) &&
           !has_to_stand(connection);
}

/* Of a message that has to stand: let it in, or see whether its sink goes on, and parse
 * what has come of it. Errors: as parse, and AGAIN when it has to wait. */
static spw_status let_in(spw_connection *connection, bool can_wait, spw_error *error)
{
    spw_status status = spw__connection_is_held(connection)
                            ? spw__connection_let_in(connection, can_wait, error)
                            : spw__connection_look_again(connection, error);
    if (status == SPW_STATUS_OK)
        take_whole(connection);
    if (status == SPW_STATUS_OK && spw__ready_queue_is_empty(&connection->ready) &&
        has_to_parse(connection))
        status = parse(connection, error);
    return status;
}

static bool has_news(const spw_connection *connection)
{
    return !spw__ready_queue_is_empty(&connection->ready) || has_to_parse(connection);
}

/* Some of a body that does not come in the stream, and what follows from it. Errors: as
 * read_once. */
static spw_status fetch_once(spw_connection *connection, spw_error *error)
{
    spw_status status = spw__connection_fetch(connection, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__connection_tell_moved(connection);
    take_whole(connection);
    if (spw__ready_queue_is_empty(&connection->ready) && has_to_parse(connection))
        status = parse(connection, error);
    return status;
}

static uint64_t missing(const spw_connection *connection)
{
    return connection->reader != NULL ? spw__message_reader_missing(connection->reader)
                                      : 0;
}

static bool is_recalled(const spw_connection *connection)
{
    return spw__task_is_recalled(connection->receiving.task);
}

/* Read until there are news, the socket is empty or the turn is over; and at home
 * only what is for the owner's thread. Returns: AGAIN when there are no
 * news. Errors: why the connection has ended. */
static spw_status read_turn(spw_connection *connection, spw_error *error)
{
    uint64_t before = missing(connection);
    while (!has_news(connection)) {
        if (has_to_stand(connection)) {
            spw_status status = let_in(connection, true, error);
            if (status != SPW_STATUS_OK)
                return status;
            continue;
        }
        bool is_remote = spw__connection_is_remote(connection);
        if (is_remote && !spw__connection_may_fetch(connection))
            break;
        spw_status status =
            is_remote ? fetch_once(connection, error) : read_once(connection, error);
        if (status != SPW_STATUS_OK)
            return status;
        uint64_t lacks = missing(connection);
        if (lacks < before && before - lacks >= RECEIVE_TURN_BYTES)
            break;
        if (is_recalled(connection))
            break;
        /* In the middle of a large body more arrives while this is copied, and to ask
         * in vain costs less than a turn of the owner's loop. What does not come in
         * the stream is there. */
        if (spw__connection_is_remote(connection))
            continue;
        if (connection->is_drained && lacks < ASK_AGAIN_BYTES)
            break;
        if (!connection->receiving.is_away &&
            !spw_connection_is_inline(connection, lacks))
            break;
    }
    return has_news(connection) ? SPW_STATUS_OK : SPW_STATUS_AGAIN;
}

/* The message under way is held, and nothing is taken for it before its owner comes. */
static bool waits_for_owner(const spw_connection *connection)
{
    return connection->untaken_hold_from > 0 && spw__connection_is_held(connection) &&
           missing(connection) >= connection->untaken_hold_from;
}

/* Read ahead of the owner. Returns: OK when enough waits for it, AGAIN when the socket
 * is empty or the turn is over. Errors: why the connection has ended. */
static spw_status read_untaken(spw_connection *connection, spw_error *error)
{
    for (int i = 0; i < UNTAKEN_TURN_CALLS && wants_message(connection); i++) {
        if (waits_for_owner(connection))
            return SPW_STATUS_OK;
        spw_status status = spw__connection_is_held(connection)
                                ? let_in(connection, true, error)
                            : has_read_ahead(connection) ? parse(connection, error)
                                                         : read_once(connection, error);
        if (status != SPW_STATUS_OK)
            return status;
        if (spw__task_is_recalled(connection->receiving.task))
            break;
    }
    return wants_message(connection) ? SPW_STATUS_AGAIN : SPW_STATUS_OK;
}

/* What ended the stream on a thread is told when the messages before it are taken. */
static bool is_fault_due(const spw_connection *connection)
{
    return connection->receiving.fault.status != SPW_STATUS_OK &&
           spw__ready_queue_is_empty(&connection->ready);
}

void spw__connection_receiving_arrived(spw_connection *connection)
{
    if (is_fault_due(connection))
        spw__connection_fail_receiving(connection, &connection->receiving.fault);
}

/* There are no news for the owner's thread, and perhaps what is to come is not for it.
 * Returns: AGAIN. Errors: why a body cannot be brought. */
static spw_status go_on_away(spw_connection *connection, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    /* Where nobody else can wait for it, a message is not held. */
    if (spw__connection_is_held(connection))
        return spw__connection_go_now(connection) ? SPW_STATUS_AGAIN
                                                  : let_in(connection, false, error);
    if (spw__connection_is_stalled(connection))
        return spw__connection_go_now(connection)
                   ? SPW_STATUS_AGAIN
                   : spw__error_set(error, SPW_STATUS_IO, 0,
                                    "no thread can wait for the disk to which a "
                                    "message of %s goes",
                                    connection->peer_host);
    if (spw__connection_is_remote(connection))
        status = spw__connection_go_fetch(connection, error);
    else
        (void)spw__connection_send_away(connection, &connection->receiving,
                                        missing(connection));
    return status == SPW_STATUS_OK ? SPW_STATUS_AGAIN : status;
}

spw_status spw_connection_on_readable(spw_connection *connection)
{
    if (connection->phase == CONNECTION_ENDED)
        return SPW_STATUS_OK;
    if (connection->phase == CONNECTION_CONNECTING || connection->receiving.is_away)
        return SPW_STATUS_AGAIN;
    spw__connection_receiving_arrived(connection);
    if (connection->phase == CONNECTION_ENDED)
        return SPW_STATUS_OK;
    spw_error why;
    spw_status status = read_turn(connection, &why);
    if (status == SPW_STATUS_AGAIN)
        status = go_on_away(connection, &why);
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN)
        spw__connection_fail_receiving(connection, &why);
    return status == SPW_STATUS_AGAIN ? SPW_STATUS_AGAIN : SPW_STATUS_OK;
}

spw__step_answer spw__connection_receive_step(spw__task *task)
{
    spw_connection *connection = task->subject;
    spw_error why;
    spw_status status = connection->is_untaken ? read_untaken(connection, &why)
                                               : read_turn(connection, &why);
    if (status == SPW_STATUS_AGAIN)
        return spw__connection_receive_next(connection);
    if (status != SPW_STATUS_OK)
        connection->receiving.fault = why;
    return SPW__STEP_DONE;
}

/* Let in what is held, and bring what does not come in the stream as far as that is for
 * the owner's thread. Errors: as let_in and fetch_once. */
static spw_status fetch_here(spw_connection *connection, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    if (has_to_stand(connection))
        status = let_in(connection, true, error);
    while (status == SPW_STATUS_OK && spw__ready_queue_is_empty(&connection->ready) &&
           spw__connection_is_remote(connection) &&
           spw__connection_may_fetch(connection))
        status = fetch_once(connection, error);
    return status;
}

spw_status spw_connection_receive(spw_connection *connection, spw_payload **ret_payload,
                                  spw_error *error)
{
    if (connection->receiving.is_away)
        return SPW_STATUS_AGAIN;
    spw__ready_queue *ready = &connection->ready;
    spw_error why;
    spw_status status = SPW_STATUS_OK;
    spw__connection_receiving_arrived(connection);
    if (spw__ready_queue_is_empty(ready) && has_to_parse(connection))
        status = parse(connection, &why);
    if (status == SPW_STATUS_OK)
        status = fetch_here(connection, &why);
    /* The last read was filled to the brim: most likely there is more. */
    if (spw__ready_queue_is_empty(ready) && status == SPW_STATUS_OK &&
        connection->phase == CONNECTION_OPEN && !connection->is_drained &&
        !spw__connection_is_remote(connection) && !has_to_stand(connection)) {
        connection->is_wanted = true;
        status = read_once(connection, &why);
        if (status == SPW_STATUS_OK)
            status = fetch_here(connection, &why);
    }
    spw__connection_say_rest(connection);
    bool has_to_wait = spw__ready_queue_is_empty(ready) &&
                       connection->phase == CONNECTION_OPEN &&
                       (status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN);
    connection->is_wanted |= has_to_wait;
    if (has_to_wait)
        status = go_on_away(connection, &why);
    if (connection->receiving.is_away)
        return SPW_STATUS_AGAIN; /* from here on all of it is a thread's */
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN)
        spw__connection_fail_receiving(connection, &why);
    if (!spw__ready_queue_is_empty(ready)) {
        *ret_payload = spw__ready_queue_pop(ready);
        return SPW_STATUS_OK;
    }
    if (connection->phase == CONNECTION_ENDED) {
        spw__connection_stop_reading(connection);
        return spw__connection_tell_end(connection, error);
    }
    give_back_ahead(connection);
    return SPW_STATUS_AGAIN;
}

uint64_t spw_connection_missing_bytes(const spw_connection *connection)
{
    return connection->receiving.is_away ? 0 : missing(connection);
}
