/* The end of a side channel that has the bodies. See host_link.h. One thread at a time,
 * but for announcements that were taken out. */
#ifndef SPW_TRANSPORT_HOST_SENDER_H
#define SPW_TRANSPORT_HOST_SENDER_H

#include "transport/host_announcement.h"
#include "transport/host_link.h"

typedef struct spw__host_sender spw__host_sender;

typedef struct spw__host_sender_options {
    const char *path; /* where to meet, and what to say there: told by the peer */
    uint8_t nonce[SPW__HOST_NONCE_BYTES];
    uint64_t from_bytes; /* smaller bodies go in the stream; 0: SPW__HOST_FROM_BYTES */
    bool uses_descriptors; /* else what would go by descriptor goes by stream */
} spw__host_sender_options;

/* Connect to where the peer waits. Borrows: context, until the sender is freed.
 * Errors: AGAIN (more wait there than it takes: try at the next large message), REFUSED
 * (there is nobody to meet), NO_MEMORY, IO. */
spw_status spw__host_sender_create(spw_context *context,
                                   const spw__host_sender_options *options,
                                   spw__host_sender **ret_sender, spw_error *error);
/* Shuts down first. Takes: sender (NULL allowed), with everything it has announced:
 * release callbacks run. */
void spw__host_sender_free(spw__host_sender *sender);

int spw__host_sender_descriptor(const spw__host_sender *sender);
/* SPW__HOST_READ and SPW__HOST_WRITE. */
unsigned spw__host_sender_interest(const spw__host_sender *sender);
/* Hear what the receiver says, and give it what it waits for, until neither goes on
 * without waiting, or enough for one turn.
 * Errors: PEER_CLOSED, PROTOCOL, IO, NO_MEMORY: what has been announced can never be
 * had, so the connection must end. Without anything announced a link that breaks is no
 * error: the way is then by stream. */
spw_status spw__host_sender_drive(spw__host_sender *sender, spw_error *error);

/* How new messages go, and, by stream or by descriptor, why no better. */
spw__host_way spw__host_sender_way(const spw__host_sender *sender);
const spw_error *spw__host_sender_reason(const spw__host_sender *sender);
/* Whether it is for a reason of this end that they do not go as the receiver said: a
 * memfd was refused, or the link failed. Not where the peer has gone. */
bool spw__host_sender_has_given_up(const spw__host_sender *sender);

/* Whether any body of the payload is to go by reference now. */
bool spw__host_sender_wants(const spw__host_sender *sender, const spw_payload *payload);
/* Lay out a message for which that is so. Its bodies are charged QUEUED as long as the
 * announcement is there.
 * Takes: payload, on success only. Returns: a writer, and an announcement to be given
 * to announce before anything else is called here, or to be freed.
 * Errors: as spw__message_writer_create, and LIMIT_EXCEEDED. */
spw_status spw__host_sender_write(spw__host_sender *sender, spw_payload *payload,
                                  spw__message_writer **ret_writer,
                                  spw__host_announcement **ret_announcement,
                                  spw_error *error);
/* The writer is the last one in the send queue. Takes: announcement. */
void spw__host_sender_announce(spw__host_sender *sender,
                               spw__host_announcement *announcement);
/* Bytes that have been announced and not taken: so much is pinned. Thread: any. */
uint64_t spw__host_sender_announced_bytes(const spw__host_sender *sender);
/* Returns: what has been taken since the last call, NULL for nothing: to be freed, by
 * any thread. */
spw__host_announcement *spw__host_sender_take_done(spw__host_sender *sender);

/* End the link, at once and for the receiver too; everything announced is done.
 * Returns never before the receiver can see it, so that what was announced may then be
 * let go of. Allowed more than once. */
void spw__host_sender_shutdown(spw__host_sender *sender);
/* The same, and give up the descriptor, which nobody watches any more. What is done
 * stays to be taken. */
void spw__host_sender_let_go(spw__host_sender *sender);

#endif
