/* The inside of a sender, shared by its files: host_sender.c (birth, end, what is said
 * and heard) and host_sender_give.c (bodies that the receiver does not read itself). */
#ifndef SPW_TRANSPORT_HOST_SENDER_STATE_H
#define SPW_TRANSPORT_HOST_SENDER_STATE_H

#include <sys/uio.h>

#include "platform/peer_process.h"
#include "transport/host_sender.h"

/* Invariants: announcements from first to last have bodies that were not taken,
 * numbered without a gap up to next_number; their bytes are charged QUEUED and are
 * announced_bytes; those on done are not charged. taken <= next_number, and taken <=
 * given <= next_number where is_giving. While is_over nothing moves any more. */
struct spw__host_sender {
    spw_context *context; /* borrowed */
    uint64_t from_bytes;
    bool uses_descriptors;
    int descriptor;
    pid_t owner; /* see spw__unix_socket_shutdown */
    spw__peer_process peer;
    bool is_allowed, is_greeted, is_over;
    spw__host_way said; /* by the receiver */
    spw__host_way way;  /* in force: the same, or a later one that we fell back to */
    uint64_t epoch;
    spw_error reason;
    uint8_t nonce[SPW__HOST_NONCE_BYTES];
    /* The receiver reads it here as the proof that this is the memory it means. */
    uint8_t secret[SPW__HOST_SECRET_BYTES];
    spw__host_announcement *first, *last, *done;
    _Atomic uint64_t announced_bytes; /* read by any thread */
    uint64_t next_number, taken;
    /* Giving, once the receiver does not read any more: body given is next, from
     * offset on, where bodies from given_from on were given in this epoch. */
    bool is_giving;
    uint64_t given_from, given, offset;
    uint64_t in_flight;         /* bytes passed in descriptors and not taken */
    spw__host_announcement *at; /* where given was last found; NULL: from the first */
    int memfd;                  /* being filled for body given, or -1 */
    uint64_t filled;
};

/* The body of a number that is announced and not taken. */
spw__host_body *spw__host_sender_body(spw__host_sender *sender, uint64_t number);
/* Send a packet with at most two pieces behind its head, and a descriptor unless that
 * is -1. Returns: its bytes, or a negative errno. */
int spw__host_sender_say(spw__host_sender *sender, const spw__host_packet *packet,
                         const struct iovec *behind, size_t count, int passed);
/* Whether there is something to give that the receiver has room for. */
bool spw__host_sender_has_to_give(const spw__host_sender *sender);
/* Give until the receiver takes no more, or for one turn. Returns: 0, or a negative
 * errno of the socket. */
int spw__host_sender_give(spw__host_sender *sender);
/* Begin again to give from a body on, and from an offset into it. */
void spw__host_sender_give_from(spw__host_sender *sender, uint64_t number,
                                uint64_t offset);
/* Give up a memfd that is half filled. */
void spw__host_sender_drop_memfd(spw__host_sender *sender);

#endif
