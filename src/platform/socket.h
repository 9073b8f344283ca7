/* The operating system's contract for stream sockets. Every call on a socket goes
 * through here, so that a port is one file and a test can make any call fail.
 *
 * Every function answers a value >= 0, or the negative errno of what went wrong; none
 * uses the global errno to answer. An interrupted call is repeated, nothing else is.
 * Thread: any; one descriptor is used by one thread at a time. */
#ifndef SPW_PLATFORM_SOCKET_H
#define SPW_PLATFORM_SOCKET_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The most pieces that one call takes. */
enum { SPW__SOCKET_PIECES_MAX = 1024 };
/* The most bytes that one call is asked to move: Linux moves no more than 0x7ffff000,
 * others refuse more than INT_MAX. */
#define SPW__SOCKET_BYTES_MAX ((size_t)0x7ffff000)

typedef struct spw__socket_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t size; /* of the member in use, 0: none */
} spw__socket_address;

/* A non-blocking stream socket that child processes do not inherit.
 * Returns: the descriptor. */
int spw__socket_open(int family);
/* Start to connect, or, called again, ask how far it is: 0 once connected, -EINPROGRESS
 * or -EALREADY until then, else why it failed. */
int spw__socket_connect(int descriptor, const spw__socket_address *address);
int spw__socket_bind(int descriptor, const spw__socket_address *address);
int spw__socket_listen(int descriptor, int backlog);
/* Returns: a descriptor such as spw__socket_open makes. */
int spw__socket_accept(int descriptor, spw__socket_address *ret_peer);
int spw__socket_local(int descriptor, spw__socket_address *ret_address);

/* Returns: the bytes moved; receiving 0 bytes is the end of the stream. Sending to a
 * peer that is gone answers -EPIPE and raises no signal. */
ssize_t spw__socket_send(int descriptor, const struct iovec *pieces, size_t count);
ssize_t spw__socket_receive(int descriptor, const struct iovec *pieces, size_t count);

/* Send size bytes of a file, from offset on, without bringing them into the process.
 * Waits for the disk where they are not in the system's cache, whatever the descriptor,
 * and raises SIGPIPE where the peer is gone, so it is for a thread that nobody waits
 * for and that blocks that signal.
 * Returns: the bytes moved; 0 is the end of the file. */
ssize_t spw__socket_send_file(int descriptor, int file, uint64_t offset, size_t size);

/* Let a listener bind a port whose last connections have not timed out yet. */
int spw__socket_set_reuse_address(int descriptor);
/* Keep an IPv6 listener from taking IPv4 too. */
int spw__socket_set_v6_only(int descriptor);
/* Send small pieces at once. */
int spw__socket_set_no_delay(int descriptor);
/* Probe a silent peer after idle_s, every interval_s, probes times. */
int spw__socket_set_keep_alive(int descriptor, int idle_s, int interval_s, int probes);
/* Give a peer up that acknowledges nothing for so long. */
int spw__socket_set_user_timeout(int descriptor, unsigned timeout_ms);

/* Room for such a name. */
enum { SPW__CONGESTION_NAME_BYTES = 16 };
/* How fast to send, by the name of one of the system's ways: "reno", "cubic", "bbr". */
int spw__socket_set_congestion(int descriptor, const char *name);

/* This process, as the owner of the sockets that it makes. */
int spw__socket_owner(void);
/* Say farewell, so that the peer sees it even when a forked child holds a copy of the
 * descriptor. No byte moves any more; the descriptor stays. Nothing happens in another
 * process than owner: a forked child that cleans up has nothing to end but its copy. */
void spw__socket_shutdown(int descriptor, int owner);
/* Close this process's copy. */
void spw__socket_close(int descriptor);

/* The number of a network interface; -ENODEV when there is none of that name. */
int spw__socket_interface_index(const char *name);
/* Its name; text has room for IF_NAMESIZE bytes. */
int spw__socket_interface_name(unsigned index, char *text);

#endif
