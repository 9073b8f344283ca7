/* One non-blocking TCP stream: bytes only, no messages. What went wrong is told with
 * the peer's address; the stream then only waits to be closed. One thread at a time. */
#ifndef SPW_TRANSPORT_STREAM_TCP_H
#define SPW_TRANSPORT_STREAM_TCP_H

#include <stdbool.h>

#include "platform/socket.h"
#include "spillway/context.h"

typedef struct spw__stream_tcp {
    int descriptor; /* -1 once closed */
    int owner;      /* see spw__socket_shutdown */
    spw__socket_address peer;
} spw__stream_tcp;

/* Start to connect. user_timeout_ms 0 leaves keep-alive and time-out to the system;
 * where an option cannot be set, the context's log says so.
 * Returns: OK when connected at once, AGAIN when finish_connect is to be called once
 * the descriptor is writable; the stream is open in both cases. Errors: ADDRESS,
 * REFUSED, UNREACHABLE, TIMED_OUT, RESET, NO_MEMORY, IO; the stream is not open then.
 */
spw_status spw__stream_tcp_connect(spw_context *context,
                                   const spw__socket_address *peer,
                                   uint32_t user_timeout_ms,
                                   spw__stream_tcp *ret_stream, spw_error *error);
/* Errors: AGAIN, and those of connect. */
spw_status spw__stream_tcp_finish_connect(const spw__stream_tcp *stream,
                                          spw_error *error);
/* Make a stream of an accepted descriptor. Takes: descriptor. */
void spw__stream_tcp_adopt(spw_context *context, int descriptor,
                           const spw__socket_address *peer, uint32_t user_timeout_ms,
                           spw__stream_tcp *ret_stream);
/* Of a connected stream: if its peer is on this machine, so that no network lies
 * between them, use that way of congestion control. Where that cannot be had, the
 * context's log says so. Returns: whether it is used. */
bool spw__stream_tcp_tune_loopback(spw_context *context, const spw__stream_tcp *stream,
                                   const char *congestion);
/* No byte moves any more; the descriptor stays until close. */
void spw__stream_tcp_shutdown(const spw__stream_tcp *stream);
/* Close the descriptor. */
void spw__stream_tcp_close(spw__stream_tcp *stream);

/* Errors: AGAIN (error untouched), RESET, TIMED_OUT, UNREACHABLE, NO_MEMORY, IO. */
spw_status spw__stream_tcp_send(const spw__stream_tcp *stream,
                                const struct iovec *pieces, size_t count,
                                size_t *ret_sent, spw_error *error);
/* The same for a range of a file, of at least one byte, with one system call. It may
 * wait for the disk, and raises a signal: see spw__socket_send_file.
 * Returns: at least one byte. Errors: as send, and IO where the file cannot be read or
 * has no byte at offset. */
spw_status spw__stream_tcp_send_file(const spw__stream_tcp *stream, int file,
                                     uint64_t offset, size_t size, size_t *ret_sent,
                                     spw_error *error);
/* Returns: at least one byte. Errors: as send, and PEER_CLOSED (error untouched, for
 * only the caller knows what that means). */
spw_status spw__stream_tcp_receive(const spw__stream_tcp *stream,
                                   const struct iovec *pieces, size_t count,
                                   size_t *ret_received, spw_error *error);

/* The status that a negative errno of a socket call stands for; error gets what, the
 * address's text and what would help where that is known. */
spw_status spw__stream_tcp_fault(int answer, const char *what,
                                 const spw__socket_address *address, spw_error *error);

#endif
