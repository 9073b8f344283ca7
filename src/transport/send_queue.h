/* Messages on their way out, in order. Those sent whole wait on a second list until the
 * owner drops them, since dropping runs release callbacks. One thread at a time, but
 * for unsent_bytes. */
#ifndef SPW_TRANSPORT_SEND_QUEUE_H
#define SPW_TRANSPORT_SEND_QUEUE_H

#include <stdatomic.h>

#include "framing/message_writer.h"

/* Invariant: every writer from head to tail has unsent bytes; unsent_bytes is their sum
 * and file_bytes that of those in files. The others are charged QUEUED in the budget,
 * since they pin memory. Nothing on done is charged. */
typedef struct spw__send_queue {
    spw_budget *budget; /* borrowed */
    spw__message_writer *head, *tail;
    spw__message_writer *done;
    uint64_t done_bytes; /* of the messages on done */
    uint64_t file_bytes;
    _Atomic uint64_t unsent_bytes; /* read by any thread */
} spw__send_queue;

void spw__send_queue_init(spw__send_queue *queue, spw_budget *budget);
/* Drops everything: release callbacks run. Safe when they come back to the queue. */
void spw__send_queue_clear(spw__send_queue *queue);

/* Thread: any. */
static inline uint64_t spw__send_queue_unsent(const spw__send_queue *queue)
{
    return atomic_load_explicit(&queue->unsent_bytes, memory_order_relaxed);
}

/* Takes: writer, on success only. Errors: LIMIT_EXCEEDED. */
spw_status spw__send_queue_push(spw__send_queue *queue, spw__message_writer *writer,
                                spw_error *error);
/* Takes: writer, which has nothing left to send. */
void spw__send_queue_retire(spw__send_queue *queue, spw__message_writer *writer);

/* What to send next, across messages: at most limit pieces and limit_bytes, none of
 * them behind the next range of a file.
 * Borrows: the memory, until advance. Returns: how many pieces. */
size_t spw__send_queue_pieces(const spw__send_queue *queue, struct iovec *pieces,
                              size_t limit, size_t limit_bytes);
/* If a range of a file is next, at most limit_bytes of it; else false. Borrows: the
 * descriptor, until advance. */
bool spw__send_queue_next_file(const spw__send_queue *queue, size_t limit_bytes,
                               spw__file_range *ret_range);
/* bytes of what these gave have been sent. Returns: how many messages became whole by
 * that. */
size_t spw__send_queue_advance(spw__send_queue *queue, uint64_t bytes);

/* Give up what is unsent: it is no longer charged, and waits on done to be dropped. */
void spw__send_queue_abandon(spw__send_queue *queue);
/* Drop the messages on done: release callbacks run. */
void spw__send_queue_reap(spw__send_queue *queue);

#endif
