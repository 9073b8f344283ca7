/* The inside of a connection's same-host side, shared by its files: connection_host.c
 * (beginning and end), connection_announce.c (bodies that the peer is to take) and
 * connection_fetch.c (bodies that the peer has). */
#ifndef SPW_TRANSPORT_CONNECTION_HOST_STATE_H
#define SPW_TRANSPORT_CONNECTION_HOST_STATE_H

#include "transport/connection_state.h"

struct spw__connection_host {
    /* Of the owner. */
    spw_meetings *meetings; /* borrowed */
    spw__expected expected;
    char peer_path[SPW__UNIX_PATH_BYTES];
    uint8_t peer_nonce[SPW_NONCE_BYTES];
    bool uses_descriptors;
    bool is_refused; /* nobody is there to be met */
    /* Of announcing. */
    spw__host_sender *sender; /* NULL: not met yet */
    spw__watch sender_watch;
    /* Of receiving. */
    /* NULL: it has not come; set by the owner */
    _Atomic(spw__host_receiver *) receiver;
    /* Its reading task is the one by which receiving goes; the other reads half of a
     * large piece meanwhile, or, while receiving is home, says what could not be said
     * when it was due. */
    spw__watch receiver_watch;
    bool is_saying; /* the latter */
    void (*half)(void *argument);
    void *half_argument;
};

/* What the threads run for it. */
spw__step_answer spw__connection_announce_step(spw__task *task);
/* Another thread does half of a large piece, or says what is left to say. */
spw__step_answer spw__connection_aside_step(spw__task *task);

#endif
