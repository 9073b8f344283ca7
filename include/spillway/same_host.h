/* Peers that run on the same host: large bodies go from one process's memory to the
 * other's, and not through a socket.
 *
 * Each owner of connections has a place to meet, a Unix socket in a directory that only
 * its user may enter. Two peers that believe to share a host tell each other, over
 * their connection, where that is and a nonce for this very connection; what they say
 * is checked when they meet, never before. The one that has something large to send
 * goes to the other's place. Until they have met, and wherever that fails, everything
 * goes by the connection's stream. */
#ifndef SPILLWAY_SAME_HOST_H
#define SPILLWAY_SAME_HOST_H

#include "spillway/connection.h"

typedef struct spw_meetings spw_meetings;

enum { SPW_NONCE_BYTES = 16 };

/* How bodies come. */
typedef enum spw_host_way {
    SPW_HOST_BY_ADDRESS = 1,    /* the receiver reads the sender's memory */
    SPW_HOST_BY_DESCRIPTOR = 2, /* sealed shared memory, passed by the sender */
    SPW_HOST_BY_STREAM = 3      /* as to any other peer */
} spw_host_way;

typedef struct spw_meetings_options {
    size_t struct_size;    /* set by SPW_MEETINGS_OPTIONS_INIT */
    const char *parent;    /* the directory to make ours in, such as "/tmp"; required */
    spw_host_way best;     /* the first to be tried when we receive; 0: BY_ADDRESS */
    bool uses_descriptors; /* send BY_DESCRIPTOR where BY_ADDRESS is refused, which is
                              slower than the stream on most machines */
} spw_meetings_options;

#define SPW_MEETINGS_OPTIONS_INIT                                                      \
    {                                                                                  \
        .struct_size = sizeof(spw_meetings_options)                                    \
    }

/* Make a place to meet.
 * Borrows: options with what they point to, during the call; context gets a reference
 * of its own. Returns: meetings to be freed by spw_meetings_free. Thread: the owner's
 * of the connections that meet there. Errors: NO_MEMORY, ADDRESS (the path is too long
 * for a socket), IO (errno tells), INVALID_ARGUMENT. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_meetings_create(spw_context *context, const spw_meetings_options *options,
                    spw_meetings **ret_meetings, spw_error *error);
/* End a place to meet.
 * Takes: meetings (NULL allowed), all of whose connections have been freed. Thread: the
 * owner's. */
SPW_EXPORT void spw_meetings_free(spw_meetings *meetings);

/* Returns: a descriptor that is readable when on_readable is to be called; it lives as
 * long as the meetings, and is only to be watched. Thread: any. */
SPW_EXPORT int spw_meetings_descriptor(const spw_meetings *meetings);
/* Where to come to, for the peer to be told.
 * Returns: a path that lives as long as the meetings. Thread: any. */
SPW_EXPORT const char *spw_meetings_path(const spw_meetings *meetings);
/* Let in who has come. Thread: the owner's. Errors: why bodies go a lesser way than the
 * best between a connection that meets its peer here and that one, in either direction:
 * news, once for each time, after which everything works all the same. The descriptor
 * stays readable while there are more. */
SPW_EXPORT SPW_NODISCARD spw_status spw_meetings_on_readable(spw_meetings *meetings,
                                                             spw_error *error);

/* The peer of an open connection is believed to share our host: expect it at meetings,
 * with own_nonce, and go to peer_path, to say peer_nonce, when there is first something
 * large to send. Once for a connection, which has completions. The two nonces are known
 * to the two peers alone.
 * Borrows: meetings, until the connection is freed, closed or let go; the rest, during
 * the call. Thread: the owner's. Errors: NO_MEMORY, INVALID_ARGUMENT (no completions, a
 * path too long, a second time), and as receive where the connection has ended. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_connection_meet(spw_connection *connection, spw_meetings *meetings,
                    const uint8_t own_nonce[SPW_NONCE_BYTES], const char *peer_path,
                    const uint8_t peer_nonce[SPW_NONCE_BYTES], spw_error *error);

#endif
