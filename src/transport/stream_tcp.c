/* TCP streams. The only place that knows what a socket's errno means for a connection.
 */
#include "transport/stream_tcp.h"

#include <errno.h>
#include <string.h>

#include "context/error.h"
#include "context/log.h"
#include "transport/address.h"

/* How often Dask probes a silent peer within its time-out (distributed/comm/tcp.py). */
static const int KEEP_ALIVE_PROBES = 10;

static spw_status status_of(int os_errno)
{
    switch (os_errno) {
    case ECONNREFUSED:
        return SPW_STATUS_REFUSED;
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
        return SPW_STATUS_RESET;
    case ETIMEDOUT:
        return SPW_STATUS_TIMED_OUT;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
        return SPW_STATUS_UNREACHABLE;
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EACCES:
    case EAFNOSUPPORT:
    case EINVAL:
        return SPW_STATUS_ADDRESS;
    case ENOMEM:
    case ENOBUFS:
        return SPW_STATUS_NO_MEMORY;
    default:
        return SPW_STATUS_IO;
    }
}

static const char *advice_for(int os_errno, const spw__socket_address *address)
{
    switch (os_errno) {
    case ECONNREFUSED:
        return " (nothing listens there, or a firewall refuses)";
    case EMFILE:
        return " (raise this process's limit of open files, ulimit -n)";
    case ENFILE:
        return " (raise the system's limit of open files, fs.file-max)";
    case EADDRINUSE:
        return " (choose another port, or 0 for any)";
    case EADDRNOTAVAIL:
        return " (not an address of this machine, or its ports are used up)";
    case EINVAL:
        return address->any.sa_family == AF_INET6 && address->v6.sin6_scope_id == 0 &&
                       IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr)
                   ? " (a link-local address needs its interface, as in fe80::1%eth0)"
                   : "";
    default:
        return "";
    }
}

spw_status spw__stream_tcp_fault(int answer, const char *what,
                                 const spw__socket_address *address, spw_error *error)
{
    char text[SPW__ADDRESS_TEXT_BYTES];
    spw__address_text(address, text);
    return spw__error_set(error, status_of(-answer), -answer, "cannot %s %s%s", what,
                          text, advice_for(-answer, address));
}

/* Takes an answer of a set call; without the option a connection works all the same. */
static void warn_unless_set(spw_context *context, int answer, const char *what,
                            const spw__socket_address *peer)
{
    spw_error fault;
    if (answer >= 0)
        return;
    (void)spw__stream_tcp_fault(answer, what, peer, &fault);
    spw__log(context, SPW_LOG_WARNING, "%s", fault.message);
}

static int at_least(int value, int least)
{
    return value > least ? value : least;
}

/* The peer counts as dead user_timeout_ms after it fell silent, probed or sent to; the
 * probes are spread over that time as Dask does. */
static void set_options(spw_context *context, const spw__stream_tcp *stream,
                        uint32_t user_timeout_ms)
{
    int descriptor = stream->descriptor;
    warn_unless_set(context, spw__socket_set_no_delay(descriptor),
                    "set TCP_NODELAY towards", &stream->peer);
    if (user_timeout_ms == 0)
        return;
    int timeout_s = at_least((int)(user_timeout_ms / 1000), 1);
    int idle_s = at_least(timeout_s / 4, 2);
    int interval_s = at_least((timeout_s - idle_s) / KEEP_ALIVE_PROBES, 1);
    /* Dask refuses time-outs for which this would not be positive. */
    idle_s = at_least(timeout_s - interval_s * KEEP_ALIVE_PROBES, 1);
    warn_unless_set(
        context,
        spw__socket_set_keep_alive(descriptor, idle_s, interval_s, KEEP_ALIVE_PROBES),
        "set keep-alive towards", &stream->peer);
    warn_unless_set(context, spw__socket_set_user_timeout(descriptor, user_timeout_ms),
                    "set TCP_USER_TIMEOUT towards", &stream->peer);
}

static spw_status try_connect(const spw__stream_tcp *stream, spw_error *error)
{
    int answer = spw__socket_connect(stream->descriptor, &stream->peer);
    if (answer == 0)
        return SPW_STATUS_OK;
    if (answer == -EINPROGRESS || answer == -EALREADY)
        return SPW_STATUS_AGAIN;
    return spw__stream_tcp_fault(answer, "connect to", &stream->peer, error);
}

spw_status spw__stream_tcp_connect(spw_context *context,
                                   const spw__socket_address *peer,
                                   uint32_t user_timeout_ms,
                                   spw__stream_tcp *ret_stream, spw_error *error)
{
    int descriptor = spw__socket_open(peer->any.sa_family);
    if (descriptor < 0)
        return spw__stream_tcp_fault(descriptor, "open a socket for", peer, error);
    spw__stream_tcp stream;
    spw__stream_tcp_adopt(context, descriptor, peer, user_timeout_ms, &stream);
    spw_status status = try_connect(&stream, error);
    if (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN) {
        spw__stream_tcp_close(&stream);
        return status;
    }
    *ret_stream = stream;
    return status;
}

spw_status spw__stream_tcp_finish_connect(const spw__stream_tcp *stream,
                                          spw_error *error)
{
    return try_connect(stream, error);
}

void spw__stream_tcp_adopt(spw_context *context, int descriptor,
                           const spw__socket_address *peer, uint32_t user_timeout_ms,
                           spw__stream_tcp *ret_stream)
{
    *ret_stream = (spw__stream_tcp){
        .descriptor = descriptor, .owner = spw__socket_owner(), .peer = *peer};
    set_options(context, ret_stream, user_timeout_ms);
}

/* What is sent from an address to itself never leaves the machine. */
static bool is_loopback(const spw__stream_tcp *stream)
{
    spw__socket_address local;
    const spw__socket_address *peer = &stream->peer;
    if (spw__socket_local(stream->descriptor, &local) < 0 ||
        local.any.sa_family != peer->any.sa_family)
        return false;
    if (local.any.sa_family == AF_INET6)
        return IN6_ARE_ADDR_EQUAL(&local.v6.sin6_addr, &peer->v6.sin6_addr);
    return local.v4.sin_addr.s_addr == peer->v4.sin_addr.s_addr ||
           ntohl(peer->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool spw__stream_tcp_tune_loopback(spw_context *context, const spw__stream_tcp *stream,
                                   const char *congestion)
{
    if (!is_loopback(stream))
        return false;
    int answer = spw__socket_set_congestion(stream->descriptor, congestion);
    warn_unless_set(context, answer, "set TCP_CONGESTION towards", &stream->peer);
    return answer >= 0;
}

void spw__stream_tcp_shutdown(const spw__stream_tcp *stream)
{
    spw__socket_shutdown(stream->descriptor, stream->owner);
}

void spw__stream_tcp_close(spw__stream_tcp *stream)
{
    if (stream->descriptor < 0)
        return;
    spw__socket_close(stream->descriptor);
    stream->descriptor = -1;
}

static bool is_would_block(ssize_t answer)
{
    return answer == -EAGAIN || answer == -EWOULDBLOCK;
}

spw_status spw__stream_tcp_send(const spw__stream_tcp *stream,
                                const struct iovec *pieces, size_t count,
                                size_t *ret_sent, spw_error *error)
{
    ssize_t sent = spw__socket_send(stream->descriptor, pieces, count);
    if (is_would_block(sent))
        return SPW_STATUS_AGAIN;
    if (sent < 0)
        return spw__stream_tcp_fault((int)sent, "send to", &stream->peer, error);
    *ret_sent = (size_t)sent;
    return SPW_STATUS_OK;
}

/* Of sendfile, which tells what is wrong with either side by the same number. */
static bool is_of_socket(int os_errno)
{
    switch (status_of(os_errno)) {
    case SPW_STATUS_RESET:
    case SPW_STATUS_TIMED_OUT:
    case SPW_STATUS_UNREACHABLE:
    case SPW_STATUS_NO_MEMORY:
        return true;
    default:
        return os_errno == ENOTCONN;
    }
}

spw_status spw__stream_tcp_send_file(const spw__stream_tcp *stream, int file,
                                     uint64_t offset, size_t size, size_t *ret_sent,
                                     spw_error *error)
{
    ssize_t sent = spw__socket_send_file(stream->descriptor, file, offset, size);
    if (is_would_block(sent))
        return SPW_STATUS_AGAIN;
    if (sent < 0 && is_of_socket((int)-sent))
        return spw__stream_tcp_fault((int)sent, "send to", &stream->peer, error);
    if (sent > 0) {
        *ret_sent = (size_t)sent;
        return SPW_STATUS_OK;
    }
    char text[SPW__ADDRESS_TEXT_BYTES];
    spw__address_text(&stream->peer, text);
    if (sent == 0)
        return spw__error_set(error, SPW_STATUS_IO, 0,
                              "a file that is being sent to %s has no byte %llu: it is "
                              "shorter than its range, or was cut meanwhile",
                              text, (unsigned long long)offset);
    return spw__error_set(error, SPW_STATUS_IO, (int)-sent,
                          "cannot read a file that is being sent to %s, at byte %llu",
                          text, (unsigned long long)offset);
}

spw_status spw__stream_tcp_receive(const spw__stream_tcp *stream,
                                   const struct iovec *pieces, size_t count,
                                   size_t *ret_received, spw_error *error)
{
    ssize_t received = spw__socket_receive(stream->descriptor, pieces, count);
    if (received == 0)
        return SPW_STATUS_PEER_CLOSED;
    if (is_would_block(received))
        return SPW_STATUS_AGAIN;
    if (received < 0)
        return spw__stream_tcp_fault((int)received, "receive from", &stream->peer,
                                     error);
    *ret_received = (size_t)received;
    return SPW_STATUS_OK;
}
