/* What a connection has for a peer of the same host; connection_state.h has it as host,
 * NULL until spw_connection_meet. The rules of the two links are in host_link.h. */
#ifndef SPW_TRANSPORT_CONNECTION_HOST_H
#define SPW_TRANSPORT_CONNECTION_HOST_H

#include "platform/unix_socket.h"
#include "reactor/task.h"
#include "spillway/same_host.h"
#include "transport/host_receiver.h"
#include "transport/host_sender.h"

typedef struct spw__connection_host spw__connection_host;

/* A connection that expects its peer at some meetings, on their list. */
typedef struct spw__expected {
    spw_meetings *meetings; /* NULL: not on the list */
    struct spw_connection *next, *previous;
    uint8_t nonce[SPW_NONCE_BYTES];
} spw__expected;

/* Let the peer in that said the nonce: bodies may come by receiver from now on, unless
 * something keeps them from that, of which the meetings are told.
 * Takes: receiver. */
void spw__connection_admit(spw_connection *connection, spw__host_receiver *receiver,
                           spw_host_way best);

/* Of a connection that has a host side. */
spw__expected *spw__connection_expected(spw_connection *connection);
/* Of spw_meetings: a connection is on the list until it is removed. */
bool spw__meetings_use_descriptors(const spw_meetings *meetings);
void spw__meetings_add(spw_meetings *meetings, spw_connection *connection);
void spw__meetings_remove(spw_connection *connection);
/* A better way than the one that bodies go now was refused, because of why: it is
 * counted, logged, and told to whoever calls on_readable. Thread: any. */
void spw__meetings_tell(spw_meetings *meetings, const spw_error *why);

/* Bodies that the peer is to take, connection_announce.c. */

/* Lay out a message, by reference if the peer is there for that; else, if it has
 * something large, go and meet the peer. Only while sending is home.
 * Takes: payload, on success only. Returns: a writer, and an announcement (NULL:
 * everything is in the stream) for announced or, if the writer is not queued, refused.
 * Errors: those of spw__message_writer_create and of a link that broke, which has ended
 * the connection. */
spw_status spw__connection_lay_out(spw_connection *connection, spw_payload *payload,
                                   spw__message_writer **ret_writer,
                                   spw__host_announcement **ret_announcement,
                                   spw_error *error);
void spw__connection_announced(spw_connection *connection,
                               spw__host_announcement *announcement);
/* A message was not sent after all; what was announced before is still to be heard of.
 */
void spw__connection_keep_announcing(spw_connection *connection);

/* Bodies that the peer has, connection_fetch.c. */

/* What is next of a message does not come in the stream: send receiving away to bring
 * it. Errors: PROTOCOL, IO (there is no thread). */
spw_status spw__connection_go_fetch(spw_connection *connection, spw_error *error);
/* Whether the message under way waits for a body that does not come in the stream. Of
 * receiving. */
bool spw__connection_is_remote(const spw_connection *connection);
/* Whether who has receiving now may do it: on the owner's thread only what takes less
 * time than to go to another and back. */
bool spw__connection_may_fetch(spw_connection *connection);
/* Bring some of it. Of receiving. Errors: AGAIN, why the connection has to end. */
spw_status spw__connection_fetch(spw_connection *connection, spw_error *error);
/* Receiving is away and there are no news. Returns: what it waits for. */
spw__step_answer spw__connection_receive_next(const spw_connection *connection);

/* Receiving is home: have a thread say what could not be said to the peer yet. */
void spw__connection_say_rest(spw_connection *connection);
/* Whoever has receiving may want the link to the receiver: what says the rest of what
 * is to be said there comes home. Does nothing where nothing does. */
void spw__connection_stop_saying(spw_connection *connection);

/* The parts of the connection's own: of its end, before the stream is shut; of reap; of
 * let_go; of free. */
void spw__connection_end_host(spw_connection *connection);
void spw__connection_reap_host(spw_connection *connection);
void spw__connection_forget_host(spw_connection *connection);
void spw__connection_free_host(spw_connection *connection);
/* Bytes that the peer has yet to take. Thread: any. */
uint64_t spw__connection_announced_bytes(const spw_connection *connection);
/* Of a forked child, whose parent's thread had them: leave them alone for good. */
void spw__connection_abandon_sender(spw_connection *connection);
void spw__connection_abandon_receiver(spw_connection *connection);

#endif
