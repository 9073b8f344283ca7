/* The end of a side channel that takes the bodies. See host_link.h. One thread at a
 * time. */
#ifndef SPW_TRANSPORT_HOST_RECEIVER_H
#define SPW_TRANSPORT_HOST_RECEIVER_H

#include "framing/message_reader.h"
#include "transport/host_link.h"

typedef struct spw__host_receiver spw__host_receiver;

/* Somebody who may have time to read the second half of a body. Threading contract:
 * start and join are called in pairs by the thread that calls fetch. */
typedef struct spw__host_helper {
    /* Have work(argument) called on another thread at once. Returns: false when there
     * is none free, and then nothing happens. */
    bool (*start)(void *self, void (*work)(void *argument), void *argument);
    /* Wait until it has returned. */
    void (*join)(void *self);
    void *self;
} spw__host_helper;

/* One that has been accepted. Takes: descriptor, on success only. Borrows: context,
 * until the receiver is freed. Errors: NO_MEMORY. */
spw_status spw__host_receiver_create(spw_context *context, int descriptor,
                                     spw__host_receiver **ret_receiver,
                                     spw_error *error);
/* Takes: receiver (NULL allowed). */
void spw__host_receiver_free(spw__host_receiver *receiver);

int spw__host_receiver_descriptor(const spw__host_receiver *receiver);
/* SPW__HOST_READ and SPW__HOST_WRITE; nothing while all is said and no body is waited
 * for. */
unsigned spw__host_receiver_interest(const spw__host_receiver *receiver);
/* Hear the sender's hello; then, until it is admitted, that it waits; after that say
 * what is still to be said.
 * Errors: AGAIN (no hello yet), PEER_CLOSED, PROTOCOL, IO: whoever this was, free it.
 */
spw_status spw__host_receiver_drive(spw__host_receiver *receiver, spw_error *error);
/* The nonce of the hello, of SPW__HOST_NONCE_BYTES; NULL before it. */
const uint8_t *spw__host_receiver_nonce(const spw__host_receiver *receiver);
/* The nonce is one that we told: find out by which way bodies can come, best being the
 * best that is allowed, and say so. Once, after the hello.
 * Errors: PEER_CLOSED, IO. */
spw_status spw__host_receiver_admit(spw__host_receiver *receiver, spw__host_way best,
                                    spw_error *error);

/* How bodies come, and, by descriptor or by stream, why no better. */
spw__host_way spw__host_receiver_way(const spw__host_receiver *receiver);
const spw_error *spw__host_receiver_reason(const spw__host_receiver *receiver);

/* Bring at most limit bytes of the body at which reader stands (is_remote), or adopt it
 * whole. helper (NULL allowed) may get half of a large piece.
 * Errors: AGAIN (the descriptor tells when to call again); PEER_CLOSED, PROTOCOL, IO,
 * after which the message can never be had; those of the reader. */
spw_status spw__host_receiver_fetch(spw__host_receiver *receiver,
                                    spw__message_reader *reader, size_t limit,
                                    const spw__host_helper *helper, spw_error *error);
/* Bodies and bytes that came, by the way they came. */
uint64_t spw__host_receiver_bytes(const spw__host_receiver *receiver,
                                  spw__host_way way);

#endif
