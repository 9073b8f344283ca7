/* One TCP stream: what each errno becomes, and the options that Dask sets. */
#include "transport/stream_tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "file_payloads.h"
#include "io_fault.h"
#include "torture.h"
#include "transport/address.h"

static const struct {
    int os_errno;
    spw_status status;
} MEANINGS[] = {
    {ECONNREFUSED, SPW_STATUS_REFUSED},
    {ECONNRESET, SPW_STATUS_RESET},
    {EPIPE, SPW_STATUS_RESET},
    {ECONNABORTED, SPW_STATUS_RESET},
    {ETIMEDOUT, SPW_STATUS_TIMED_OUT},
    {EHOSTUNREACH, SPW_STATUS_UNREACHABLE},
    {ENETUNREACH, SPW_STATUS_UNREACHABLE},
    {EHOSTDOWN, SPW_STATUS_UNREACHABLE},
    {ENETDOWN, SPW_STATUS_UNREACHABLE},
    {EADDRINUSE, SPW_STATUS_ADDRESS},
    {EADDRNOTAVAIL, SPW_STATUS_ADDRESS},
    {EACCES, SPW_STATUS_ADDRESS},
    {EAFNOSUPPORT, SPW_STATUS_ADDRESS},
    {EINVAL, SPW_STATUS_ADDRESS},
    {ENOMEM, SPW_STATUS_NO_MEMORY},
    {ENOBUFS, SPW_STATUS_NO_MEMORY},
    {EMFILE, SPW_STATUS_IO},
    {ENFILE, SPW_STATUS_IO},
    {EIO, SPW_STATUS_IO},
    {EBADF, SPW_STATUS_IO},
};

static spw__socket_address parse(const char *host, uint16_t port)
{
    spw__socket_address address;
    assert_ok(spw__address_parse(host, port, &address, NULL));
    return address;
}

/* Something that accepts, so that a stream can be opened. */
static int listen_somewhere(spw__socket_address *ret_address)
{
    spw__socket_address address = parse("127.0.0.1", 0);
    int descriptor = spw__socket_open(AF_INET);
    assert_true(descriptor >= 0);
    assert_int_equal(spw__socket_bind(descriptor, &address), 0);
    assert_int_equal(spw__socket_listen(descriptor, 4), 0);
    assert_int_equal(spw__socket_local(descriptor, ret_address), 0);
    return descriptor;
}

static void assert_told(const torture *t, spw_status status, size_t meaning)
{
    if (status != MEANINGS[meaning].status)
        fail_msg("errno %d: %s instead of %s", MEANINGS[meaning].os_errno,
                 spw_status_name(status), spw_status_name(MEANINGS[meaning].status));
    assert_int_equal(t->error.status, status);
    assert_int_equal(t->error.os_errno, MEANINGS[meaning].os_errno);
    assert_non_null(strstr(t->error.message, "127.0.0.1:"));
    assert_non_null(strstr(t->error.message, strerror(MEANINGS[meaning].os_errno)));
}

static void every_errno_of_connect_has_a_status(void **state)
{
    torture *t = *state;
    spw__socket_address peer = parse("127.0.0.1", 9);
    for (size_t i = 0; i < COUNT_OF(MEANINGS); i++) {
        spw__stream_tcp stream = {.descriptor = 77};
        io_fault_arm_call("connect", 1, MEANINGS[i].os_errno);
        assert_told(
            t, spw__stream_tcp_connect(t->context, &peer, 0, &stream, &t->error), i);
        assert_int_equal(stream.descriptor, 77);
        assert_int_equal(io_fault_open_descriptors(), 0);
    }
}

static void every_errno_of_moving_has_a_status(void **state)
{
    torture *t = *state;
    char byte = 0;
    size_t moved = 77;
    struct iovec piece = {&byte, 1};
    spw__stream_tcp stream;
    spw__socket_address address;
    int listening = listen_somewhere(&address);
    spw_status status =
        spw__stream_tcp_connect(t->context, &address, 0, &stream, &t->error);
    assert_true(status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN);
    for (size_t i = 0; i < COUNT_OF(MEANINGS); i++) {
        io_fault_arm_call("send", 1, MEANINGS[i].os_errno);
        assert_told(t, spw__stream_tcp_send(&stream, &piece, 1, &moved, &t->error), i);
        io_fault_arm_call("receive", 1, MEANINGS[i].os_errno);
        assert_told(t, spw__stream_tcp_receive(&stream, &piece, 1, &moved, &t->error),
                    i);
        assert_int_equal(moved, 77);
    }
    spw__stream_tcp_close(&stream);
    spw__stream_tcp_close(&stream);
    assert_int_equal(stream.descriptor, -1);
    spw__socket_close(listening);
}

/* What sendfile says may be meant of the file as well. */
static void every_errno_of_a_file_has_a_status(void **state)
{
    static const struct {
        int os_errno;
        spw_status status;
    } FAULTS[] = {{EPIPE, SPW_STATUS_RESET},
                  {ECONNRESET, SPW_STATUS_RESET},
                  {ETIMEDOUT, SPW_STATUS_TIMED_OUT},
                  {EHOSTUNREACH, SPW_STATUS_UNREACHABLE},
                  {ENOMEM, SPW_STATUS_NO_MEMORY},
                  {ENOTCONN, SPW_STATUS_IO},
                  {EIO, SPW_STATUS_IO},
                  {EINVAL, SPW_STATUS_IO},
                  {EBADF, SPW_STATUS_IO},
                  {EACCES, SPW_STATUS_IO},
                  {ESTALE, SPW_STATUS_IO}};
    torture *t = *state;
    spw__stream_tcp stream;
    spw__socket_address address;
    size_t sent = 77;
    int listening = listen_somewhere(&address), file = file_open();
    spw_status status =
        spw__stream_tcp_connect(t->context, &address, 0, &stream, &t->error);
    assert_true(status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN);
    for (size_t i = 0; i < COUNT_OF(FAULTS); i++) {
        io_fault_arm_call("send_file", 1, FAULTS[i].os_errno);
        status = spw__stream_tcp_send_file(&stream, file, 5, 10, &sent, &t->error);
        assert_int_equal(status, FAULTS[i].status);
        assert_int_equal(t->error.os_errno, FAULTS[i].os_errno);
        assert_non_null(strstr(t->error.message, "127.0.0.1:"));
        assert_int_equal(strstr(t->error.message, "a file") != NULL,
                         status == SPW_STATUS_IO && FAULTS[i].os_errno != ENOTCONN);
    }
    io_fault_arm_call("send_file", 1, EAGAIN);
    assert_status(spw__stream_tcp_send_file(&stream, file, 5, 10, &sent, NULL), AGAIN);
    assert_int_equal(sent, 77);
    spw__stream_tcp_close(&stream);
    spw__socket_close(listening);
    close(file);
}

static void a_file_that_ends_too_early_is_told(void **state)
{
    torture *t = *state;
    spw__stream_tcp stream;
    spw__socket_address address;
    size_t sent = 77;
    int listening = listen_somewhere(&address), file = file_open();
    spw_status status =
        spw__stream_tcp_connect(t->context, &address, 0, &stream, &t->error);
    while (status == SPW_STATUS_AGAIN)
        status = spw__stream_tcp_finish_connect(&stream, &t->error);
    assert_int_equal(status, SPW_STATUS_OK);
    assert_int_equal(ftruncate(file, 12), 0);
    assert_ok(spw__stream_tcp_send_file(&stream, file, 5, 10, &sent, &t->error));
    assert_int_equal(sent, 7);
    assert_status(spw__stream_tcp_send_file(&stream, file, 12, 3, &sent, &t->error),
                  IO);
    assert_int_equal(sent, 7);
    assert_int_equal(t->error.os_errno, 0);
    assert_non_null(strstr(t->error.message, "has no byte 12"));
    spw__stream_tcp_close(&stream);
    spw__socket_close(listening);
    close(file);
}

static void a_connect_under_way_is_asked_again(void **state)
{
    torture *t = *state;
    spw__stream_tcp stream;
    spw__socket_address address;
    int listening = listen_somewhere(&address);
    spw_status status =
        spw__stream_tcp_connect(t->context, &address, 0, &stream, &t->error);
    assert_true(status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN);
    io_fault_arm_call("connect", 1, EALREADY);
    assert_status(spw__stream_tcp_finish_connect(&stream, &t->error), AGAIN);
    io_fault_arm_call("connect", 1, ETIMEDOUT);
    assert_status(spw__stream_tcp_finish_connect(&stream, &t->error), TIMED_OUT);
    do { /* over a loopback it is done before it can be waited for */
        status = spw__stream_tcp_finish_connect(&stream, &t->error);
    } while (status == SPW_STATUS_AGAIN);
    assert_int_equal(status, SPW_STATUS_OK);
    spw__stream_tcp_close(&stream);
    spw__socket_close(listening);
}

static void tells_what_would_help(void **state)
{
    torture *t = *state;
    spw__socket_address v4 = parse("127.0.0.1", 9), v6 = parse("fe80::1", 9);
    (void)spw__stream_tcp_fault(-EMFILE, "open a socket for", &v4, &t->error);
    assert_non_null(strstr(t->error.message, "ulimit -n"));
    (void)spw__stream_tcp_fault(-EINVAL, "connect to", &v6, &t->error);
    assert_non_null(strstr(t->error.message, "fe80::1%eth0"));
    (void)spw__stream_tcp_fault(-EINVAL, "connect to", &v4, &t->error);
    assert_null(strstr(t->error.message, "eth0"));
    assert_status(spw__stream_tcp_fault(-EINVAL, "connect to", &v4, NULL), ADDRESS);
}

static int option(int descriptor, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    assert_int_equal(getsockopt(descriptor, level, name, &value, &size), 0);
    return value;
}

/* The numbers follow from Dask's rule: 10 probes that end with the time-out. */
static void time_outs_are_set_as_dask_sets_them(void **state)
{
    static const struct {
        uint32_t timeout_ms;
        int idle_s, interval_s;
    } RULES[] = {{30000, 10, 2}, {300000, 80, 22}, {11000, 1, 1}, {2000, 1, 1}};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(RULES); i++) {
        spw__socket_address peer = parse("127.0.0.1", 9);
        spw__stream_tcp stream;
        spw__stream_tcp_adopt(t->context, spw__socket_open(AF_INET), &peer,
                              RULES[i].timeout_ms, &stream);
        int fd = stream.descriptor;
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
        assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 10);
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), RULES[i].idle_s);
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), RULES[i].interval_s);
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT),
                         RULES[i].timeout_ms);
        spw__stream_tcp_close(&stream);
    }
    assert_int_equal(t->log_lines, 0);
}

static void no_time_out_leaves_the_systems(void **state)
{
    torture *t = *state;
    spw__socket_address peer = parse("127.0.0.1", 9);
    spw__stream_tcp stream;
    spw__stream_tcp_adopt(t->context, spw__socket_open(AF_INET), &peer, 0, &stream);
    assert_int_equal(option(stream.descriptor, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(option(stream.descriptor, SOL_SOCKET, SO_KEEPALIVE), 0);
    assert_int_equal(option(stream.descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    spw__stream_tcp_close(&stream);
}

static void an_option_that_cannot_be_set_is_only_logged(void **state)
{
    static const char *const CALLS[][2] = {{"set_no_delay", "TCP_NODELAY"},
                                           {"set_keep_alive", "keep-alive"},
                                           {"set_user_timeout", "TCP_USER_TIMEOUT"}};
    torture *t = *state;
    spw__socket_address peer = parse("127.0.0.1", 9);
    for (unsigned i = 0; i < COUNT_OF(CALLS); i++) {
        spw__stream_tcp stream;
        io_fault_arm_call(CALLS[i][0], 1, ENOPROTOOPT);
        spw__stream_tcp_adopt(t->context, spw__socket_open(AF_INET), &peer, 30000,
                              &stream);
        assert_int_equal(t->log_lines, i + 1);
        assert_non_null(strstr(t->last_log_line, CALLS[i][1]));
        assert_non_null(strstr(t->last_log_line, "127.0.0.1:9"));
        assert_true(stream.descriptor >= 0);
        spw__stream_tcp_close(&stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(every_errno_of_connect_has_a_status),
        SCENARIO(every_errno_of_moving_has_a_status),
        SCENARIO(every_errno_of_a_file_has_a_status),
        SCENARIO(a_file_that_ends_too_early_is_told),
        SCENARIO(a_connect_under_way_is_asked_again),
        SCENARIO(tells_what_would_help),
        SCENARIO(time_outs_are_set_as_dask_sets_them),
        SCENARIO(no_time_out_leaves_the_systems),
        SCENARIO(an_option_that_cannot_be_set_is_only_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
