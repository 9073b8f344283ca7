/* The inside of a receiver, shared by its files: host_receiver.c (birth, end, what is
 * said and heard) and host_receiver_fetch.c (how bodies come). */
#ifndef SPW_TRANSPORT_HOST_RECEIVER_STATE_H
#define SPW_TRANSPORT_HOST_RECEIVER_STATE_H

#include "platform/peer_process.h"
#include "transport/host_receiver.h"

/* Invariants: taken bodies have come whole. A way that was refused is never tried
 * again. While is_over nothing moves any more. */
struct spw__host_receiver {
    spw_context *context; /* borrowed */
    int descriptor;
    pid_t owner; /* see spw__unix_socket_shutdown */
    spw__peer_process peer;
    bool is_greeted, is_over;
    bool is_waiting; /* for something that the sender gives */
    uint8_t nonce[SPW__HOST_NONCE_BYTES], secret[SPW__HOST_SECRET_BYTES];
    uint64_t secret_address;
    spw__host_way way;
    uint64_t epoch;
    spw_error reason; /* of the way, or, once is_over, of that */
    /* A packet of the kind WAY that is still to be sent, if has_way. */
    spw__host_packet way_packet;
    bool has_way;
    uint64_t taken, untold_bytes;
    bool has_to_tell;
    int memfd; /* of the body under way, -1: none */
    uint64_t bytes[SPW__HOST_BY_STREAM + 1];
};

/* Some of the sender's memory, and then its secret. */
typedef struct spw__host_reading {
    const spw__host_receiver *receiver;
    void *to;
    uint64_t address;
    size_t size;
    int answer;
} spw__host_reading;

/* Read it. The secret comes last, so that it tells for all that was read before it
 * whose memory that was: a process that took over the pid does not have it, nor does a
 * program that the sender has become, nor a sender that has begun to let go of what it
 * announced. argument is a reading, whose answer becomes 0 or a negative errno, -ESTALE
 * when the secret was not there. */
void spw__host_receiver_read(void *argument);
/* From body taken on, and from filled in it, bodies are to come by a lesser way,
 * because of answer. */
void spw__host_receiver_step_down(spw__host_receiver *receiver, spw__host_way way,
                                  int answer, uint64_t filled, const char *what);
/* Say what is to be said, unless the socket is full: then later. */
spw_status spw__host_receiver_say(spw__host_receiver *receiver, spw_error *error);
/* From now on every call answers why (or what ended it before). */
spw_status spw__host_receiver_end(spw__host_receiver *receiver, const spw_error *why,
                                  spw_error *error);
/* Errors: PEER_CLOSED or IO, by what the socket answered (0: it has hung up). */
spw_status spw__host_receiver_tell_gone(int answer, spw_error *error);
void spw__host_receiver_drop_memfd(spw__host_receiver *receiver);

#endif
