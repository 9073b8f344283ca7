/* The send queue. It decides nothing about when to send: the connection does. */
#include "transport/send_queue.h"

void spw__send_queue_init(spw__send_queue *queue, spw_budget *budget)
{
    *queue = (spw__send_queue){.budget = budget};
}

/* Only one thread at a time changes it, so that it need not be added to in one step. */
static void set_unsent(spw__send_queue *queue, uint64_t bytes)
{
    atomic_store_explicit(&queue->unsent_bytes, bytes, memory_order_relaxed);
}

static void add_unsent(spw__send_queue *queue, uint64_t bytes)
{
    set_unsent(queue, spw__send_queue_unsent(queue) + bytes);
}

static void drop_unsent(spw__send_queue *queue, uint64_t bytes, uint64_t in_files)
{
    set_unsent(queue, spw__send_queue_unsent(queue) - bytes);
    queue->file_bytes -= in_files;
    spw_budget_release(queue->budget, SPW_CHARGE_QUEUED, bytes - in_files);
}

void spw__send_queue_clear(spw__send_queue *queue)
{
    spw__send_queue_abandon(queue);
    spw__send_queue_reap(queue);
}

spw_status spw__send_queue_push(spw__send_queue *queue, spw__message_writer *writer,
                                spw_error *error)
{
    uint64_t unsent = spw__message_writer_unsent(writer);
    uint64_t in_files = spw__message_writer_unsent_in_files(writer);
    spw_status status =
        spw_budget_charge(queue->budget, SPW_CHARGE_QUEUED, unsent - in_files, error);
    if (status != SPW_STATUS_OK)
        return status;
    add_unsent(queue, unsent);
    queue->file_bytes += in_files;
    spw__message_writer_set_next(writer, NULL);
    if (queue->tail != NULL)
        spw__message_writer_set_next(queue->tail, writer);
    else
        queue->head = writer;
    queue->tail = writer;
    return SPW_STATUS_OK;
}

void spw__send_queue_retire(spw__send_queue *queue, spw__message_writer *writer)
{
    spw__message_writer_set_next(writer, queue->done);
    queue->done = writer;
    queue->done_bytes += spw__message_writer_total(writer);
}

static spw__message_writer *pop(spw__send_queue *queue)
{
    spw__message_writer *writer = queue->head;
    queue->head = spw__message_writer_next(writer);
    if (queue->head == NULL)
        queue->tail = NULL;
    return writer;
}

size_t spw__send_queue_pieces(const spw__send_queue *queue, struct iovec *pieces,
                              size_t limit, size_t limit_bytes)
{
    size_t count = 0;
    const spw__message_writer *writer = queue->head;
    while (writer != NULL && count < limit && limit_bytes > 0) {
        size_t added = spw__message_writer_pieces(writer, pieces + count, limit - count,
                                                  limit_bytes);
        uint64_t given = 0;
        for (size_t i = 0; i < added; i++)
            given += pieces[count + i].iov_len;
        limit_bytes -= (size_t)given;
        count += added;
        if (given < spw__message_writer_unsent(writer))
            break; /* nothing goes before the rest of it */
        writer = spw__message_writer_next(writer);
    }
    return count;
}

bool spw__send_queue_next_file(const spw__send_queue *queue, size_t limit_bytes,
                               spw__file_range *ret_range)
{
    return queue->head != NULL &&
           spw__message_writer_next_file(queue->head, limit_bytes, ret_range);
}

size_t spw__send_queue_advance(spw__send_queue *queue, uint64_t bytes)
{
    const uint64_t sent = bytes;
    uint64_t in_files = 0;
    size_t whole = 0;
    while (bytes > 0) {
        uint64_t unsent = spw__message_writer_unsent(queue->head);
        uint64_t step = bytes < unsent ? bytes : unsent;
        in_files += spw__message_writer_unsent_in_files(queue->head);
        spw__message_writer_advance(queue->head, step);
        in_files -= spw__message_writer_unsent_in_files(queue->head);
        bytes -= step;
        if (step == unsent) {
            spw__send_queue_retire(queue, pop(queue));
            whole++;
        }
    }
    drop_unsent(queue, sent, in_files);
    return whole;
}

void spw__send_queue_abandon(spw__send_queue *queue)
{
    drop_unsent(queue, spw__send_queue_unsent(queue), queue->file_bytes);
    while (queue->head != NULL)
        spw__send_queue_retire(queue, pop(queue));
}

void spw__send_queue_reap(spw__send_queue *queue)
{
    /* A release callback may come back here: each writer is off the list before it is
     * freed. */
    queue->done_bytes = 0;
    while (queue->done != NULL) {
        spw__message_writer *writer = queue->done;
        queue->done = spw__message_writer_next(writer);
        spw__message_writer_free(writer);
    }
}
