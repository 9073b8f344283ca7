/* Sockets on Linux. */
#include "platform/socket.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

int spw__socket_open(int family)
{
    int descriptor = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return descriptor >= 0 ? descriptor : -errno;
}

int spw__socket_connect(int descriptor, const spw__socket_address *address)
{
    if (connect(descriptor, &address->any, address->size) == 0 || errno == EISCONN)
        return 0;
    /* An interrupted connect goes on in the background; calling it again would answer
     * EALREADY. */
    return errno == EINTR ? -EINPROGRESS : -errno;
}

int spw__socket_bind(int descriptor, const spw__socket_address *address)
{
    return bind(descriptor, &address->any, address->size) == 0 ? 0 : -errno;
}

int spw__socket_listen(int descriptor, int backlog)
{
    return listen(descriptor, backlog) == 0 ? 0 : -errno;
}

int spw__socket_accept(int descriptor, spw__socket_address *ret_peer)
{
    spw__socket_address peer = {.size = sizeof peer.v6};
    int accepted;
    do {
        accepted =
            accept4(descriptor, &peer.any, &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (accepted < 0 && errno == EINTR);
    if (accepted < 0)
        return -errno;
    *ret_peer = peer;
    return accepted;
}

int spw__socket_local(int descriptor, spw__socket_address *ret_address)
{
    spw__socket_address address = {.size = sizeof address.v6};
    if (getsockname(descriptor, &address.any, &address.size) != 0)
        return -errno;
    *ret_address = address;
    return 0;
}

ssize_t spw__socket_send(int descriptor, const struct iovec *pieces, size_t count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = count};
    ssize_t sent;
    do {
        sent = sendmsg(descriptor, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : -errno;
}

ssize_t spw__socket_receive(int descriptor, const struct iovec *pieces, size_t count)
{
    ssize_t received;
    do {
        /* The common case, one piece, is spared the kernel's copy of the list. */
        received = count == 1
                       ? recv(descriptor, pieces[0].iov_base, pieces[0].iov_len, 0)
                       : readv(descriptor, pieces, (int)count);
    } while (received < 0 && errno == EINTR);
    return received >= 0 ? received : -errno;
}

ssize_t spw__socket_send_file(int descriptor, int file, uint64_t offset, size_t size)
{
    ssize_t sent;
    do {
        off_t from = (off_t)offset;
        sent = sendfile(descriptor, file, &from, size);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : -errno;
}

static int set_option(int descriptor, int level, int name, int value)
{
    int answer = setsockopt(descriptor, level, name, &value, sizeof value);
    return answer == 0 ? 0 : -errno;
}

int spw__socket_set_reuse_address(int descriptor)
{
    return set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
}

int spw__socket_set_v6_only(int descriptor)
{
    return set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
}

int spw__socket_set_no_delay(int descriptor)
{
    return set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
}

int spw__socket_set_keep_alive(int descriptor, int idle_s, int interval_s, int probes)
{
    int answer = set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
    if (answer == 0)
        answer = set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, probes);
    if (answer == 0)
        answer = set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    if (answer == 0)
        answer = set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
    return answer;
}

int spw__socket_set_user_timeout(int descriptor, unsigned timeout_ms)
{
    int answer = setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
                            sizeof timeout_ms);
    return answer == 0 ? 0 : -errno;
}

int spw__socket_set_congestion(int descriptor, const char *name)
{
    int answer = setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name,
                            (socklen_t)strlen(name));
    return answer == 0 ? 0 : -errno;
}

int spw__socket_owner(void)
{
    return getpid();
}

/* Neither of these can fail in a way that leaves something to do: the peer may be gone
 * already, and Linux frees the descriptor whatever close answers. */
void spw__socket_shutdown(int descriptor, int owner)
{
    if (owner == getpid())
        (void)shutdown(descriptor, SHUT_RDWR);
}

void spw__socket_close(int descriptor)
{
    (void)close(descriptor);
}

int spw__socket_interface_index(const char *name)
{
    unsigned index = if_nametoindex(name);
    return index != 0 ? (int)index : -ENODEV;
}

int spw__socket_interface_name(unsigned index, char *text)
{
    return if_indextoname(index, text) != NULL ? 0 : -ENODEV;
}
