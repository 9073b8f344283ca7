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

static void drop_unsent(spw__send_queue *queue, uint64_t bytes)
{
    set_unsent(queue, spw__send_queue_unsent(queue) - bytes);
    spw_budget_release(queue->budget, SPW_CHARGE_QUEUED, bytes);
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
    spw_status status =
        spw_budget_charge(queue->budget, SPW_CHARGE_QUEUED, unsent, error);
    if (status != SPW_STATUS_OK)
        return status;
    add_unsent(queue, unsent);
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
        for (size_t i = 0; i < added; i++)
            limit_bytes -= pieces[count + i].iov_len;
        count += added;
        writer = spw__message_writer_next(writer);
    }
    return count;
}

size_t spw__send_queue_advance(spw__send_queue *queue, uint64_t bytes)
{
    size_t whole = 0;
    drop_unsent(queue, bytes);
    while (bytes > 0) {
        uint64_t unsent = spw__message_writer_unsent(queue->head);
        uint64_t step = bytes < unsent ? bytes : unsent;
        spw__message_writer_advance(queue->head, step);
        bytes -= step;
        if (step == unsent) {
            spw__send_queue_retire(queue, pop(queue));
            whole++;
        }
    }
    return whole;
}

void spw__send_queue_abandon(spw__send_queue *queue)
{
    drop_unsent(queue, spw__send_queue_unsent(queue));
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
