/* A connection: whole messages in both directions over one TCP stream, driven by the
 * readiness of its descriptor. No call here blocks.
 *
 * The owner's loop: watch descriptor() for interest(); call on_readable or
 * on_writable when it is ready; look at interest() again after each call. One thread
 * at a time, which is called the owner's below. */
#ifndef SPILLWAY_CONNECTION_H
#define SPILLWAY_CONNECTION_H

#include "spillway/sink.h"

typedef struct spw_connection spw_connection;
/* Where directions that went to a thread come back; see reactor.h. */
typedef struct spw_completions spw_completions;

enum {
    SPW_INTEREST_READ = 1u << 0,
    SPW_INTEREST_WRITE = 1u << 1,
    /* A thread moves a large body: the completions will say when that is done. */
    SPW_INTEREST_COMPLETION = 1u << 2
};

typedef struct spw_connection_options {
    size_t struct_size;           /* set by SPW_CONNECTION_OPTIONS_INIT */
    uint32_t user_timeout_ms;     /* keep-alive and TCP_USER_TIMEOUT; 0: the system's */
    spw_sink sink;                /* all zero: spw_sink_heap */
    spw_completions *completions; /* NULL: everything is moved by the owner's thread.
                                     Borrowed until close, or free. */
    uint64_t inline_bytes; /* with completions, at most so much of one message is moved
                              by the owner's thread; 0: SPW_INLINE_BYTES_DEFAULT */
    void *user;            /* for spw_connection_user */
    const char *loopback_congestion; /* congestion control towards peers on this very
                                        machine; NULL: the system's */
} spw_connection_options;

/* Going to a thread and back takes about as long as copying 200 KiB (docs/decisions,
 * 0005). */
#define SPW_INLINE_BYTES_DEFAULT ((uint64_t)256 * 1024)

#define SPW_CONNECTION_OPTIONS_INIT                                                    \
    {                                                                                  \
        .struct_size = sizeof(spw_connection_options)                                  \
    }

/* Start to connect to a numeric IPv4 or IPv6 host ("fe80::1%eth0" allowed). The
 * outcome shows when the descriptor becomes writable (see is_connecting).
 * Borrows: host and options, during the call, but completions until the connection is
 * freed, closed or let go, and what the sink points to until it is freed; context gets
 * a reference of its own. Returns: a connection to be freed by spw_connection_free.
 * Thread: the owner's. Errors: ADDRESS, REFUSED, UNREACHABLE, IO, NO_MEMORY,
 * INVALID_ARGUMENT. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_connection_connect(spw_context *context, const char *host, uint16_t port,
                       const spw_connection_options *options,
                       spw_connection **ret_connection, spw_error *error);
/* End a connection; closes it first if it is still open.
 * Takes: connection (NULL allowed). Thread: the owner's; release callbacks run. */
SPW_EXPORT void spw_connection_free(spw_connection *connection);

/* The descriptor to watch, -1 once closed. It outlives the end of the connection until
 * close or let_go, so that the loop can stop watching it before its number is used for
 * something else: a watched socket that a forked child shares would stay watched for
 * ever if it were closed first.
 * Borrows: the descriptor, to be watched. Returns: it, or -1. Thread: the owner's. */
SPW_EXPORT int spw_connection_descriptor(const spw_connection *connection);
/* Close the descriptor of a connection that has ended and that no loop watches any
 * more, and give up its completions and meetings, which may be freed from now on.
 * Messages that had arrived whole can still be received. Nothing while open.
 * Thread: the owner's. */
SPW_EXPORT void spw_connection_let_go(spw_connection *connection);
/* Returns: what the owner gave it. Thread: the owner's. */
SPW_EXPORT void *spw_connection_user(const spw_connection *connection);
/* Give it something else. The library does not look at it. Thread: the owner's. */
SPW_EXPORT void spw_connection_set_user(spw_connection *connection, void *user);
/* Returns: whether a call that is to move so many bytes more would move them itself.
 * Thread: any. */
SPW_EXPORT bool spw_connection_is_inline(const spw_connection *connection,
                                         uint64_t bytes);
/* What to watch it for, as it is now.
 * Returns: SPW_INTEREST_... together, 0 once it has ended. Thread: the owner's. */
SPW_EXPORT unsigned spw_connection_interest(const spw_connection *connection);
/* Returns: whether it is not known yet if it can be connected. Thread: the owner's. */
SPW_EXPORT bool spw_connection_is_connecting(const spw_connection *connection);
/* Whether it has not ended. A message that had arrived whole before the peer closed can
 * still be received afterwards.
 * Returns: false once closed here, closed by the peer, or failed. Thread: the owner's.
 */
SPW_EXPORT bool spw_connection_is_open(const spw_connection *connection);

/* The local address.
 * Returns: the host's numeric text, which lives as long as the connection, and the
 * port. Thread: the owner's. Errors: IO, CLOSED (local only: there is no descriptor any
 * more, and nobody asked before). */
SPW_EXPORT SPW_NODISCARD spw_status spw_connection_local(spw_connection *connection,
                                                         const char **ret_host,
                                                         uint16_t *ret_port,
                                                         spw_error *error);
/* The peer's address.
 * Returns: as spw_connection_local. Thread: any. */
SPW_EXPORT void spw_connection_peer(const spw_connection *connection,
                                    const char **ret_host, uint16_t *ret_port);

/* Queue a message, each slice a frame, and send as much of it as the socket takes now.
 * Ranges of files are sent by threads alone, by sendfile or, where the system does not
 * have them in its cache, through memory of the connection's, so that no disk keeps the
 * owner waiting; the connection ends with IO, later, if a file cannot be read or has
 * become shorter than its range.
 * Takes: payload, on success only. Its buffers are pinned (and its unsent bytes that
 * are in memory charged QUEUED) until sent; they are dropped by spw_connection_reap or
 * close.
 * Returns: bytes of the message on the wire, headers included. Thread: the owner's.
 * Errors: the connection's own end, as receive tells it; RESET, TIMED_OUT, UNREACHABLE,
 * IO (also: no thread to send a range of a file), which end it; LIMIT_EXCEEDED,
 * NO_MEMORY, INVALID_ARGUMENT (no frames; ranges of files without completions), after
 * which it goes on unless is_open says otherwise (a message cut short by the limit ends
 * it). */
SPW_EXPORT SPW_NODISCARD spw_status spw_connection_send(spw_connection *connection,
                                                        spw_payload *payload,
                                                        uint64_t *ret_bytes,
                                                        spw_error *error);
/* Returns: bytes that wait in the send queue, those of files and of the message that a
 * thread sends among them, and what a peer of the same host has not taken. Thread: the
 * owner's. */
SPW_EXPORT uint64_t spw_connection_queued_bytes(const spw_connection *connection);
/* Drop the buffers of messages that have been sent whole. Release callbacks run here
 * and in close, never inside send or on_writable. Thread: the owner's. */
SPW_EXPORT void spw_connection_reap(spw_connection *connection);

/* Take the next whole message. AGAIN marks the connection as wanted: only then is
 * more than one read-ahead taken from the socket.
 * Returns: a payload of the caller's. Thread: the owner's. Errors: AGAIN; the
 * connection's own end, again at each call (CLOSED, PEER_CLOSED, TRUNCATED, RESET,
 * PROTOCOL, LIMIT_EXCEEDED...). */
SPW_EXPORT SPW_NODISCARD spw_status spw_connection_receive(spw_connection *connection,
                                                           spw_payload **ret_payload,
                                                           spw_error *error);
/* Have a sink decide where the values of the message go that is received next, of that
 * one alone: those that it takes to disk come as ranges of files, with the value's
 * header in memory before them. Large bodies wait with the sink's disk, and so does
 * their sender. Nothing is asked, and all comes to memory, without completions, and
 * when a message has begun to arrive already.
 * Takes: sink. Thread: the owner's. */
SPW_EXPORT void spw_connection_receive_values(spw_connection *connection,
                                              spw_value_sink *sink);
/* Lets the owner decide whether on_readable is worth releasing a lock for.
 * Returns: bytes of the message under way that are still to come, as far as is known; 0
 * between messages. Thread: the owner's. */
SPW_EXPORT uint64_t spw_connection_missing_bytes(const spw_connection *connection);

/* From how many bytes on the owner does work on this connection's messages (encoding,
 * compression, and the reverse) on another thread than the one that drives it; 0, as at
 * first, for never. The library stores it, so that whoever holds the connection can set
 * or ask it, and does no such work itself. Thread: any. */
SPW_EXPORT void spw_connection_set_offload_bytes(spw_connection *connection,
                                                 uint64_t bytes);
/* Returns: what was set last. Thread: any. */
SPW_EXPORT uint64_t spw_connection_offload_bytes(const spw_connection *connection);

/* Read what is there. OK: call receive again (a message may be whole, or the connection
 * has ended, which receive then reports). AGAIN: not yet. Thread: the owner's.
 * Errors: none beside AGAIN; ends are reported by receive and is_open. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_connection_on_readable(spw_connection *connection);
/* Finish connecting, or send from the queue. Thread: the owner's. Errors: as
 * spw_connection_send, and REFUSED, TIMED_OUT, UNREACHABLE while connecting. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_connection_on_writable(spw_connection *connection, spw_error *error);
/* Close at once: unsent messages are dropped, a half-read one is aborted, every buffer
 * is released. The descriptor goes too: stop watching it first. Allowed at any time and
 * more than once. Thread: the owner's; release callbacks run. */
SPW_EXPORT void spw_connection_close(spw_connection *connection);

#endif
