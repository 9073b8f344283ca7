/* Messages that have been received whole and not been taken yet, in order. As a rule
 * there is one at most; while nobody takes them there may be a few, and then their
 * connection reads no further. One thread at a time. */
#ifndef SPW_TRANSPORT_READY_QUEUE_H
#define SPW_TRANSPORT_READY_QUEUE_H

#include "spillway/payload.h"

enum {
    /* What a peer says before it needs an answer is a handshake and a request. */
    SPW__READY_MESSAGES = 16,
    /* With so much waiting, the next message is left to the network. The first one may
     * be of any size. */
    SPW__READY_BYTES = 1 << 20
};

/* All zero: empty. */
typedef struct spw__ready_queue {
    spw_payload *messages[SPW__READY_MESSAGES]; /* a ring */
    unsigned first, count;
    uint64_t bytes; /* the sum of theirs */
} spw__ready_queue;

static inline bool spw__ready_queue_is_empty(const spw__ready_queue *queue)
{
    return queue->count == 0;
}
bool spw__ready_queue_is_full(const spw__ready_queue *queue);
/* Takes: payload. Only while it is not full. */
void spw__ready_queue_push(spw__ready_queue *queue, spw_payload *payload);
/* Returns: the oldest message, of the caller's; NULL when there is none. */
spw_payload *spw__ready_queue_pop(spw__ready_queue *queue);
/* Free them all. Release callbacks run; safe when they come back to the queue. */
void spw__ready_queue_clear(spw__ready_queue *queue);

#endif
