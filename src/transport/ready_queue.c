/* Messages that wait to be taken. */
#include "transport/ready_queue.h"

#include <assert.h>

bool spw__ready_queue_is_full(const spw__ready_queue *queue)
{
    return queue->count == SPW__READY_MESSAGES || queue->bytes >= SPW__READY_BYTES;
}

void spw__ready_queue_push(spw__ready_queue *queue, spw_payload *payload)
{
    assert(!spw__ready_queue_is_full(queue));
    queue->messages[(queue->first + queue->count) % SPW__READY_MESSAGES] = payload;
    queue->count++;
    queue->bytes += spw_payload_bytes(payload);
}

spw_payload *spw__ready_queue_pop(spw__ready_queue *queue)
{
    if (queue->count == 0)
        return NULL;
    spw_payload *payload = queue->messages[queue->first];
    queue->first = (queue->first + 1) % SPW__READY_MESSAGES;
    queue->count--;
    queue->bytes -= spw_payload_bytes(payload);
    return payload;
}

void spw__ready_queue_clear(spw__ready_queue *queue)
{
    spw_payload *payload;
    while ((payload = spw__ready_queue_pop(queue)) != NULL)
        spw_payload_free(payload);
}
