/* The operating system's contract for Unix sockets: packets that arrive whole or not
 * at all, in order, some of them with a descriptor. None of these calls blocks.
 *
 * Every function answers a value >= 0, or the negative errno of what went wrong. An
 * interrupted call is repeated, nothing else is. Thread: any; one descriptor is used by
 * one thread at a time, but for shutdown and is_hung_up. */
#ifndef SPW_PLATFORM_UNIX_SOCKET_H
#define SPW_PLATFORM_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The longest path of a socket, with the zero at its end. */
enum { SPW__UNIX_PATH_BYTES = 108 };

/* Listen at path, in a directory that is ours and that nobody else may enter.
 * Returns: the descriptor. Errors: EACCES (such a directory it is not), ENAMETOOLONG,
 * EADDRINUSE and others. */
int spw__unix_socket_listen(const char *path, int backlog);
/* Returns: the descriptor, connected. Errors: EAGAIN (more wait than the backlog
 * allows), ENOENT, ECONNREFUSED (nobody listens), EPROTOTYPE (somebody else does). */
int spw__unix_socket_connect(const char *path);
/* Returns: a descriptor. */
int spw__unix_socket_accept(int descriptor);

/* Send a packet, with a copy of the descriptor passed unless that is -1. A peer that is
 * gone answers -EPIPE and raises no signal. Returns: the bytes, which are all. */
ssize_t spw__unix_socket_send(int descriptor, const struct iovec *pieces, size_t count,
                              int passed);
/* Receive a packet. Returns: its bytes, 0 at the end and for an empty packet, whose
 * descriptor is dropped; the descriptor that came with it,
 * -1 if none, which child processes do not inherit; and whether one was lost, because
 * the process may have no more. Errors: EMSGSIZE (the packet is larger than the pieces,
 * or has more than one descriptor: the pieces have its beginning, and the rest and all
 * descriptors are dropped). */
ssize_t spw__unix_socket_receive(int descriptor, const struct iovec *pieces,
                                 size_t count, int *ret_passed, bool *ret_is_lost);
/* Returns: 1 once the peer has shut down or closed its end, or ours is shut down. */
int spw__unix_socket_is_hung_up(int descriptor);

/* This process, as the owner of what it makes here. */
pid_t spw__unix_socket_owner(void);
/* End both directions, for the peer too, at once and whoever holds a copy; the
 * descriptor stays. Nothing happens in another process than owner: a forked child has
 * nothing to end but its copy. */
void spw__unix_socket_shutdown(int descriptor, pid_t owner);
/* Close this process's copy. */
void spw__unix_socket_close(int descriptor);

#endif
