/* Where peers of this host come to meet us: a socket in a directory that only we may
 * enter. See host_link.h. One for a process; one thread at a time. */
#ifndef SPW_TRANSPORT_HOST_DOOR_H
#define SPW_TRANSPORT_HOST_DOOR_H

#include "spillway/context.h"
#include "transport/host_packet.h"

typedef struct spw__host_door spw__host_door;

/* Open one in a directory of its own in parent, a directory such as "/tmp" whose path
 * has at most 60 bytes; what killed processes of ours left there is removed.
 * Errors: NO_MEMORY, ADDRESS (parent is too long), IO. */
spw_status spw__host_door_create(spw_context *context, const char *parent,
                                 spw__host_door **ret_door, spw_error *error);
/* Closes it, and removes what it made, unless this is a forked child: it is the
 * parent's then. Takes: door (NULL allowed). */
void spw__host_door_free(spw__host_door *door);

/* The descriptor to watch: readable when somebody waits. */
int spw__host_door_descriptor(const spw__host_door *door);
/* The path to be told in the handshake, as long as the door lives. */
const char *spw__host_door_path(const spw__host_door *door);
/* Returns: the descriptor of the next who waits, for spw__host_receiver_create, the
 * caller's. Errors: AGAIN (nobody), IO. */
spw_status spw__host_door_accept(spw__host_door *door, int *ret_descriptor,
                                 spw_error *error);

/* A nonce to be told for one connection. Errors: IO. */
spw_status spw__host_nonce(uint8_t nonce[SPW__HOST_NONCE_BYTES], spw_error *error);

#endif
