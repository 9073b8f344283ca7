/* The inside of a connection, shared by its files: connection.c (birth, end, what can
 * be asked), connection_send.c and connection_receive.c. */
#ifndef SPW_TRANSPORT_CONNECTION_STATE_H
#define SPW_TRANSPORT_CONNECTION_STATE_H

#include <stdatomic.h>

#include "framing/message_reader.h"
#include "spillway/connection.h"
#include "transport/address.h"
#include "transport/send_queue.h"
#include "transport/stream_tcp.h"

typedef enum connection_phase {
    CONNECTION_CONNECTING,
    CONNECTION_OPEN,
    CONNECTION_ENDED
} connection_phase;

/* What has been read from the socket and not yet parsed. */
typedef struct read_ahead {
    char *data; /* SPW__READ_AHEAD_BYTES once the first byte is read, else NULL */
    size_t start, end;
} read_ahead;

/* Invariants: the stream is open unless the phase is ENDED, and only then end says why.
 * At most one message is ready. While the reader is inside a message, the read-ahead is
 * empty: the socket is read only when nothing read before is left to parse. The reader
 * is NULL only after the end, when nothing is left to parse. */
struct spw_connection {
    spw_context *context; /* one reference */
    connection_phase phase;
    bool is_wanted;  /* receive answered AGAIN and nothing has come of it yet */
    bool is_drained; /* the last read left nothing in the socket, as far as it showed */
    spw__stream_tcp stream;
    spw__send_queue queue;
    spw__message_reader *reader;
    spw_payload *ready;
    read_ahead ahead;
    spw_error end;
    atomic_uint_least64_t offload_bytes; /* any thread; see connection_offload.c */
    uint16_t local_port, peer_port;
    char local_host[SPW__ADDRESS_HOST_BYTES], peer_host[SPW__ADDRESS_HOST_BYTES];
};

/* 64 KiB take a burst of small messages in one call and stay in the cache. */
enum { SPW__READ_AHEAD_BYTES = 64 * 1024 };

/* Make an open connection of an accepted descriptor.
 * Takes: descriptor, on success only. Errors: NO_MEMORY, INVALID_ARGUMENT. */
spw_status spw__connection_adopt(spw_context *context, int descriptor,
                                 const spw__socket_address *peer,
                                 const spw_connection_options *options,
                                 spw_connection **ret_connection, spw_error *error);

/* The connection has ended because of why: close the stream, give up the message under
 * way and the send queue. No release callback runs. Messages that are here already can
 * still be received. Only while not ENDED. */
void spw__connection_end(spw_connection *connection, const spw_error *why);
/* Tell error (NULL allowed) why the connection has ended. Returns: that status. */
spw_status spw__connection_tell_end(const spw_connection *connection, spw_error *error);
/* Drop what was read ahead and the reader, whose message under way is aborted. */
void spw__connection_stop_reading(spw_connection *connection);

#endif
