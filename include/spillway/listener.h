/* A listener: accepts connections on one numeric address.
 *
 * As it starts, its owner accepts: watch descriptor() for reading, and call accept.
 * Once it serves, threads of a reactor accept, greet and begin to receive, however long
 * the owner does something else; the descriptor is then another one, readable while
 * there is something for accept to tell. */
#ifndef SPILLWAY_LISTENER_H
#define SPILLWAY_LISTENER_H

#include "spillway/connection.h"

typedef struct spw_listener spw_listener;

enum { SPW_GREETING_BYTES_MAX = 64 * 1024 };

/* A greeting is the one frame of a message that is sent to each peer as soon as it is
 * accepted; 0 bytes: none is. */
typedef struct spw_listener_options {
    size_t struct_size;                       /* set by SPW_LISTENER_OPTIONS_INIT */
    const spw_connection_options *connection; /* required, with completions; user is of
                                                 no use */
    const void *greeting;
    size_t greeting_bytes;
    const void *greeting_same_host; /* in its place, for a peer whose address is the one
                                       that it connected to */
    size_t greeting_same_host_bytes;
} spw_listener_options;

#define SPW_LISTENER_OPTIONS_INIT                                                      \
    {                                                                                  \
        .struct_size = sizeof(spw_listener_options)                                    \
    }

/* Bind and listen on a numeric host. An IPv6 listener takes IPv6 only, so that both
 * families can share a port.
 * Borrows: host, during the call; context gets a reference of its own. Returns: a
 * listener to be freed by spw_listener_free. Thread: the owner's.
 * Errors: ADDRESS (in use, not ours; errno tells), NO_MEMORY, IO. */
SPW_EXPORT SPW_NODISCARD spw_status spw_listener_start(spw_context *context,
                                                       const char *host, uint16_t port,
                                                       int backlog,
                                                       spw_listener **ret_listener,
                                                       spw_error *error);
/* Stop listening, and close what was accepted and not taken.
 * Takes: listener (NULL allowed). Thread: the owner's. */
SPW_EXPORT void spw_listener_free(spw_listener *listener);

/* Let the threads behind the completions accept, until the listener is freed.
 * Borrows: what options point to, during the call, but completions and sink until the
 * listener is freed. Thread: the owner's. Errors: INVALID_ARGUMENT (no completions, a
 * greeting too long, serves already), NO_MEMORY, IO (no descriptor, no thread), after
 * which the owner accepts as before. */
SPW_EXPORT SPW_NODISCARD spw_status spw_listener_serve(
    spw_listener *listener, const spw_listener_options *options, spw_error *error);

/* What a peer says while nobody has taken its connection: let a message of so many
 * bytes wait, before anything is taken for its body, until that is done, so that
 * spw_connection_receive_values is in time for it. Less than 1 MiB is as 1 MiB; 0, as
 * at first: none waits. Of connections that are accepted from now on, by threads.
 * Thread: the owner's. */
SPW_EXPORT void spw_listener_hold_from(spw_listener *listener, uint64_t bytes);
/* Returns: the descriptor to watch for reading, another one once the listener serves;
 * it lives as long as the listener. Thread: the owner's. */
SPW_EXPORT int spw_listener_descriptor(const spw_listener *listener);
/* The bound address.
 * Returns: text that lives as long as the listener, and the port. Thread: any. */
SPW_EXPORT void spw_listener_local(const spw_listener *listener, const char **ret_host,
                                   uint16_t *ret_port);
/* Accept one connection, or take one that a thread accepted: what its peer has said
 * since is received as usual, also when the peer has closed the connection meanwhile.
 * A listener that serves does not look at options (NULL allowed), and after an error it
 * accepts no more until this is called once again.
 * Borrows: what options point to, as spw_connection_connect. Returns: an open
 * connection to be freed by spw_connection_free. Thread: the owner's.
 * Errors: AGAIN when none waits; IO (out of descriptors: errno tells), NO_MEMORY,
 * INVALID_ARGUMENT; CLOSED (the listener of a parent process serves there). */
SPW_EXPORT SPW_NODISCARD spw_status
spw_listener_accept(spw_listener *listener, const spw_connection_options *options,
                    spw_connection **ret_connection, spw_error *error);

#endif
