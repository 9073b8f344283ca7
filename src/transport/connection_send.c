/* The sending half of a connection. */
#include "context/error.h"
#include "context/figures.h"
#include "transport/connection_state.h"

/* A message up to this size is given to the socket without a charge: most are taken
 * whole, and a worker whose budget is full must still be able to say so. */
static const uint64_t SEND_FIRST_BYTES = 64 * 1024;
/* One call sends no more than this, so that the caller's loop gets its turn even while
 * the peer takes everything. */
static const size_t SEND_TURN_BYTES = (size_t)64 << 20;
/* One system call takes about a millisecond for this, which is as long as the owner
 * waits for a direction that it calls home. */
static const size_t SEND_CALL_BYTES = (size_t)4 << 20;
/* The same for a range of a file, that comes from a disk: what is not in the system's
 * cache takes several milliseconds a megabyte. */
static const size_t SEND_FILE_CALL_BYTES = (size_t)1 << 20;
/* Messages that were sent on a thread are dropped by the owner. It gets its turn when
 * they are so many bytes, or a queue that never gets empty would keep all of them. */
static const uint64_t REAP_DUE_BYTES = (uint64_t)64 << 20;

/* One system call. Returns: in ret_given what it was given, in ret_sent what it took,
 * which may be nothing. Errors: of the stream. */
static spw_status send_pieces(spw_connection *connection, const struct iovec *pieces,
                              size_t count, size_t *ret_given, size_t *ret_sent,
                              spw_error *error)
{
    size_t given = 0;
    for (size_t i = 0; i < count; i++)
        given += pieces[i].iov_len;
    size_t sent = 0;
    spw_status status =
        spw__stream_tcp_send(&connection->stream, pieces, count, &sent, error);
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN)
        return status;
    spw__count(connection->context, SPW__FIGURE_BYTES_SENT, sent);
    *ret_given = given;
    *ret_sent = sent;
    return SPW_STATUS_OK;
}

/* The same for a range of a file; only on a thread of the reactor. */
static spw_status send_file(spw_connection *connection, const spw__file_range *range,
                            size_t *ret_given, size_t *ret_sent, spw_error *error)
{
    struct iovec piece;
    if (spw__file_window_get(&connection->window, connection->context, range, &piece)) {
        spw_status status =
            send_pieces(connection, &piece, 1, ret_given, ret_sent, error);
        if (status == SPW_STATUS_OK)
            spw__file_window_advance(&connection->window, *ret_sent);
        return status;
    }
    size_t sent = 0;
    size_t size =
        range->size < SEND_FILE_CALL_BYTES ? range->size : SEND_FILE_CALL_BYTES;
    spw_status status = spw__stream_tcp_send_file(
        &connection->stream, range->descriptor, range->offset, size, &sent, error);
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN)
        return status;
    spw__count(connection->context, SPW__FIGURE_BYTES_SENT, sent);
    *ret_given = size;
    *ret_sent = sent;
    return SPW_STATUS_OK;
}

/* Send what is next in the queue by one system call. Returns, Errors: as send_pieces.
 */
static spw_status send_next(spw_connection *connection, size_t limit, size_t *ret_given,
                            size_t *ret_sent, spw_error *error)
{
    struct iovec pieces[SPW__SOCKET_PIECES_MAX];
    spw__file_range range;
    if (spw__send_queue_next_file(&connection->queue, limit, &range))
        return send_file(connection, &range, ret_given, ret_sent, error);
    size_t count =
        spw__send_queue_pieces(&connection->queue, pieces, SPW__SOCKET_PIECES_MAX,
                               limit < SEND_CALL_BYTES ? limit : SEND_CALL_BYTES);
    return send_pieces(connection, pieces, count, ret_given, ret_sent, error);
}

/* Send from the queue until it is empty, the socket is full, the turn is over, or a
 * thread that does it is to come home. */
static spw_status send_queued(spw_connection *connection, spw_error *error)
{
    size_t turn = SEND_TURN_BYTES;
    while (connection->queue.head != NULL && turn > 0 &&
           !spw__task_is_recalled(connection->sending.task)) {
        size_t given, sent;
        spw_status status = send_next(connection, turn, &given, &sent, error);
        if (status != SPW_STATUS_OK)
            return status;
        size_t whole = spw__send_queue_advance(&connection->queue, sent);
        if (connection->queue.file_bytes == 0)
            spw__file_window_clear(&connection->window);
        spw__count(connection->context, SPW__FIGURE_MESSAGES_SENT, whole);
        if (sent < given)
            break;
        turn -= sent;
    }
    return SPW_STATUS_OK;
}

/* Send from the queue here, or have a thread do it. While there is anything of a file
 * in it, whatever the size, only a thread may: a disk can take any time. */
static spw_status send_or_go(spw_connection *connection, spw_error *error)
{
    if (connection->queue.file_bytes > 0) {
        if (spw__connection_go_send(connection))
            return SPW_STATUS_OK;
        return spw__error_set(error, SPW_STATUS_IO, 0,
                              "no thread can send a range of a file to %s",
                              connection->peer_host);
    }
    uint64_t unsent = spw__send_queue_unsent(&connection->queue);
    if (spw__connection_send_away(connection, &connection->sending, unsent))
        return SPW_STATUS_OK;
    return send_queued(connection, error);
}

static bool is_reap_due(const spw_connection *connection)
{
    return connection->completions != NULL &&
           connection->queue.done_bytes >= REAP_DUE_BYTES;
}

spw__step_answer spw__connection_send_step(spw__task *task)
{
    spw_connection *connection = task->subject;
    spw_error why;
    if (send_queued(connection, &why) != SPW_STATUS_OK)
        connection->sending.fault = why;
    else if (connection->queue.head != NULL && !is_reap_due(connection))
        return SPW__STEP_WRITE;
    return SPW__STEP_DONE;
}

/* Give a small message to the socket at once; what it leaves is queued. */
static spw_status send_first(spw_connection *connection, spw__message_writer *writer,
                             spw_error *error)
{
    struct iovec pieces[SPW__SOCKET_PIECES_MAX];
    size_t given, sent;
    size_t count = spw__message_writer_pieces(writer, pieces, SPW__SOCKET_PIECES_MAX,
                                              SPW__SOCKET_BYTES_MAX);
    spw_status status = send_pieces(connection, pieces, count, &given, &sent, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__message_writer_advance(writer, sent);
    if (spw__message_writer_unsent(writer) > 0)
        return spw__send_queue_push(&connection->queue, writer, error);
    spw__send_queue_retire(&connection->queue, writer);
    spw__count(connection->context, SPW__FIGURE_MESSAGES_SENT, 1);
    return SPW_STATUS_OK;
}

/* The message failed and its payload stays the caller's. The connection survives only
 * when the budget refused a message of which nothing had been sent. */
static spw_status refuse(spw_connection *connection, spw__message_writer *writer,
                         const spw_error *why, spw_error *error)
{
    bool is_cut =
        spw__message_writer_unsent(writer) < spw__message_writer_total(writer);
    bool is_queued = connection->queue.tail == writer;
    (void)spw__message_writer_give_back(writer);
    if (!is_queued)
        spw__message_writer_free(writer);
    if (why->status != SPW_STATUS_LIMIT_EXCEEDED || is_cut)
        spw__connection_end(connection, why);
    spw__connection_keep_announcing(connection);
    if (error != NULL)
        *error = *why;
    return why->status;
}

static bool has_file(const spw_payload *payload)
{
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < spw_payload_count(payload); i++)
        if (slices[i].kind == SPW_MEMORY_FILE)
            return true;
    return false;
}

spw_status spw_connection_send(spw_connection *connection, spw_payload *payload,
                               uint64_t *ret_bytes, spw_error *error)
{
    if (connection->phase == CONNECTION_ENDED)
        return spw__connection_tell_end(connection, error);
    spw__connection_call_home(connection, &connection->sending);
    if (connection->phase == CONNECTION_ENDED)
        return spw__connection_tell_end(connection, error);
    if (connection->completions == NULL && has_file(payload))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "ranges of files are sent by threads: the connection "
                              "needs completions");
    spw__message_writer *writer;
    spw__host_announcement *announcement;
    spw_status status =
        spw__connection_lay_out(connection, payload, &writer, &announcement, error);
    if (status != SPW_STATUS_OK) {
        spw__connection_keep_announcing(connection);
        return status;
    }
    spw_error why;
    uint64_t total = spw__message_writer_total(writer);
    bool is_open = connection->phase == CONNECTION_OPEN;
    if (is_open && connection->queue.head == NULL && total <= SEND_FIRST_BYTES &&
        spw__message_writer_unsent_in_files(writer) == 0) {
        status = send_first(connection, writer, &why);
    } else {
        status = spw__send_queue_push(&connection->queue, writer, &why);
        /* Also behind a queue: a caller that writes one message after another without
         * giving its loop a turn would otherwise send nothing until it is done. Unless
         * it is to reap first, for which the direction has to be home. */
        if (status == SPW_STATUS_OK && is_open && !is_reap_due(connection))
            status = send_or_go(connection, &why);
    }
    if (status != SPW_STATUS_OK) {
        spw__host_announcement_free(announcement);
        return refuse(connection, writer, &why, error);
    }
    *ret_bytes = total;
    if (announcement != NULL) {
        *ret_bytes += announcement->bytes;
        spw__connection_announced(connection, announcement);
    }
    return SPW_STATUS_OK;
}

spw_status spw_connection_on_writable(spw_connection *connection, spw_error *error)
{
    spw_error why;
    spw_status status = SPW_STATUS_OK;
    if (connection->phase == CONNECTION_ENDED)
        return spw__connection_tell_end(connection, error);
    if (connection->sending.is_away)
        return SPW_STATUS_OK;
    if (connection->phase == CONNECTION_CONNECTING) {
        status = spw__stream_tcp_finish_connect(&connection->stream, &why);
        if (status == SPW_STATUS_AGAIN)
            return SPW_STATUS_OK;
        if (status == SPW_STATUS_OK)
            spw__connection_opened(connection);
    }
    if (status == SPW_STATUS_OK)
        status = send_or_go(connection, &why);
    if (status == SPW_STATUS_OK)
        return SPW_STATUS_OK;
    spw__connection_end(connection, &why);
    return spw__connection_tell_end(connection, error);
}
