/* The socket contract on real sockets. */
#include "platform/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file_payloads.h"
#include "loopback.h"
#include "transport/address.h"

static spw__socket_address parse(const char *host, uint16_t port)
{
    spw__socket_address address;
    assert_ok(spw__address_parse(host, port, &address, NULL));
    return address;
}

static int option(int descriptor, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    assert_int_equal(getsockopt(descriptor, level, name, &value, &size), 0);
    return value;
}

static void wait_for(int descriptor, short events)
{
    struct pollfd watched = {descriptor, events, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
}

typedef struct sockets {
    int listening, client, server;
} sockets;

static sockets connected(const char *host)
{
    spw__socket_address address = parse(host, 0), peer, local;
    sockets made;
    made.listening = spw__socket_open(address.any.sa_family);
    assert_true(made.listening >= 0);
    assert_int_equal(spw__socket_bind(made.listening, &address), 0);
    assert_int_equal(spw__socket_listen(made.listening, 4), 0);
    assert_int_equal(spw__socket_local(made.listening, &address), 0);
    assert_int_equal(spw__socket_accept(made.listening, &peer), -EAGAIN);
    made.client = spw__socket_open(address.any.sa_family);
    int answer = spw__socket_connect(made.client, &address);
    assert_true(answer == 0 || answer == -EINPROGRESS);
    wait_for(made.client, POLLOUT);
    /* Linux answers success once, and EISCONN from then on. */
    assert_int_equal(spw__socket_connect(made.client, &address), 0);
    assert_int_equal(spw__socket_connect(made.client, &address), 0);
    wait_for(made.listening, POLLIN);
    made.server = spw__socket_accept(made.listening, &peer);
    assert_true(made.server >= 0);
    assert_int_equal(spw__socket_local(made.client, &local), 0);
    assert_int_equal(local.size, peer.size);
    assert_memory_equal(&local.any, &peer.any, local.size);
    return made;
}

static void close_all(const sockets *made)
{
    spw__socket_close(made->client);
    spw__socket_close(made->server);
    spw__socket_close(made->listening);
}

static void assert_inherits_and_blocks_not(int descriptor)
{
    assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(descriptor, F_GETFL) & O_NONBLOCK);
}

static void sockets_neither_block_nor_leak_to_children(void **state)
{
    (void)state;
    sockets made = connected("127.0.0.1");
    assert_inherits_and_blocks_not(made.client);
    assert_inherits_and_blocks_not(made.server);
    assert_inherits_and_blocks_not(made.listening);
    close_all(&made);
}

static void moves_pieces_in_order(void **state)
{
    (void)state;
    const char *hosts[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < (loopback_has_ipv6() ? 2u : 1u); i++) {
        sockets made = connected(hosts[i]);
        char left[] = "spill", right[] = "way", head[3] = "", tail[10] = "";
        struct iovec out[] = {{left, 5}, {right, 3}};
        struct iovec in[] = {{head, 2}, {tail, 9}};
        assert_int_equal(spw__socket_receive(made.server, in, 2), -EAGAIN);
        assert_int_equal(spw__socket_receive(made.server, in, 1), -EAGAIN);
        assert_int_equal(spw__socket_send(made.client, out, 2), 8);
        wait_for(made.server, POLLIN);
        assert_int_equal(spw__socket_receive(made.server, in, 2), 8);
        assert_string_equal(head, "sp");
        assert_string_equal(tail, "illway");
        close_all(&made);
    }
}

static void the_end_of_the_stream_is_zero_bytes(void **state)
{
    (void)state;
    sockets made = connected("127.0.0.1");
    char byte;
    struct iovec piece = {&byte, 1};
    spw__socket_close(made.client);
    wait_for(made.server, POLLIN);
    assert_int_equal(spw__socket_receive(made.server, &piece, 1), 0);
    spw__socket_close(made.server);
    spw__socket_close(made.listening);
}

/* Whatever a process that was forked meanwhile does as it cleans up. */
static void a_child_does_not_end_what_is_its_parents(void **state)
{
    (void)state;
    sockets made = connected("127.0.0.1");
    int owner = spw__socket_owner();
    char byte = 7;
    struct iovec piece = {&byte, 1};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spw__socket_shutdown(made.client, owner);
        spw__socket_close(made.client);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(spw__socket_send(made.client, &piece, 1), 1);
    wait_for(made.server, POLLIN);
    assert_int_equal(spw__socket_receive(made.server, &piece, 1), 1);
    spw__socket_shutdown(made.client, owner);
    wait_for(made.server, POLLIN);
    assert_int_equal(spw__socket_receive(made.server, &piece, 1), 0);
    close_all(&made);
}

static void sending_to_nobody_raises_no_signal(void **state)
{
    (void)state;
    sockets made = connected("127.0.0.1");
    char byte = 1;
    struct iovec piece = {&byte, 1};
    spw__socket_close(made.client);
    ssize_t answer;
    /* The first byte may leave before the peer's refusal of it arrives. */
    do {
        answer = spw__socket_send(made.server, &piece, 1);
    } while (answer == 1);
    assert_true(answer == -EPIPE || answer == -ECONNRESET);
    spw__socket_close(made.server);
    spw__socket_close(made.listening);
}

static void a_full_socket_answers_again(void **state)
{
    (void)state;
    static char block[1 << 20];
    sockets made = connected("127.0.0.1");
    struct iovec pieces[] = {{block, sizeof block}, {block, sizeof block}};
    ssize_t answer;
    do {
        answer = spw__socket_send(made.client, pieces, 2);
    } while (answer > 0);
    assert_int_equal(answer, -EAGAIN);
    close_all(&made);
}

static void a_range_of_a_file_is_sent(void **state)
{
    (void)state;
    static char block[1 << 20];
    char got[10] = {0};
    sockets made = connected("127.0.0.1");
    struct iovec piece = {got, sizeof got};
    int file = file_open();
    assert_int_equal(write(file, "0123456789", 10), 10);
    assert_int_equal(spw__socket_send_file(made.client, file, 3, 4), 4);
    assert_int_equal(spw__socket_receive(made.server, &piece, 1), 4);
    assert_memory_equal(got, "3456", 4);
    /* Where it is in the file is no matter, and stays. */
    assert_int_equal(lseek(file, 0, SEEK_CUR), 10);
    assert_int_equal(spw__socket_send_file(made.client, file, 8, 4), 2);
    assert_int_equal(spw__socket_send_file(made.client, file, 10, 4), 0);
    assert_int_equal(spw__socket_send_file(made.client, -1, 0, 1), -EBADF);
    assert_int_equal(ftruncate(file, sizeof block), 0);
    ssize_t answer;
    do {
        answer = spw__socket_send_file(made.client, file, 0, sizeof block);
    } while (answer > 0);
    assert_int_equal(answer, -EAGAIN);
    close(file);
    close_all(&made);
}

static void options_reach_the_socket(void **state)
{
    (void)state;
    int v4 = spw__socket_open(AF_INET);
    assert_int_equal(spw__socket_set_reuse_address(v4), 0);
    assert_int_equal(spw__socket_set_no_delay(v4), 0);
    assert_int_equal(spw__socket_set_keep_alive(v4, 11, 3, 9), 0);
    assert_int_equal(spw__socket_set_user_timeout(v4, 41000), 0);
    assert_int_equal(option(v4, SOL_SOCKET, SO_REUSEADDR), 1);
    assert_int_equal(option(v4, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(option(v4, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(option(v4, IPPROTO_TCP, TCP_KEEPIDLE), 11);
    assert_int_equal(option(v4, IPPROTO_TCP, TCP_KEEPINTVL), 3);
    assert_int_equal(option(v4, IPPROTO_TCP, TCP_KEEPCNT), 9);
    assert_int_equal(option(v4, IPPROTO_TCP, TCP_USER_TIMEOUT), 41000);
    /* An IPv4 socket has no such option. */
    assert_true(spw__socket_set_v6_only(v4) < 0);
    spw__socket_close(v4);
    if (!loopback_has_ipv6())
        return;
    int v6 = spw__socket_open(AF_INET6);
    assert_int_equal(spw__socket_set_v6_only(v6), 0);
    assert_int_equal(option(v6, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    spw__socket_close(v6);
}

static void every_call_answers_the_negative_errno(void **state)
{
    (void)state;
    spw__socket_address address = parse("127.0.0.1", 0);
    char byte;
    struct iovec pieces[] = {{&byte, 1}, {&byte, 1}};
    assert_int_equal(spw__socket_open(-1), -EAFNOSUPPORT);
    assert_int_equal(spw__socket_connect(-1, &address), -EBADF);
    assert_int_equal(spw__socket_bind(-1, &address), -EBADF);
    assert_int_equal(spw__socket_listen(-1, 1), -EBADF);
    assert_int_equal(spw__socket_accept(-1, &address), -EBADF);
    assert_int_equal(spw__socket_local(-1, &address), -EBADF);
    assert_int_equal(spw__socket_send(-1, pieces, 1), -EBADF);
    assert_int_equal(spw__socket_receive(-1, pieces, 1), -EBADF);
    assert_int_equal(spw__socket_receive(-1, pieces, 2), -EBADF);
    assert_int_equal(spw__socket_set_reuse_address(-1), -EBADF);
    assert_int_equal(spw__socket_set_no_delay(-1), -EBADF);
    assert_int_equal(spw__socket_set_keep_alive(-1, 1, 1, 1), -EBADF);
    assert_int_equal(spw__socket_set_user_timeout(-1, 1), -EBADF);
}

static void interfaces_have_numbers_and_names(void **state)
{
    (void)state;
    char name[IF_NAMESIZE];
    int index = spw__socket_interface_index("lo");
    assert_true(index > 0);
    assert_int_equal(spw__socket_interface_name((unsigned)index, name), 0);
    assert_string_equal(name, "lo");
    assert_int_equal(spw__socket_interface_index("no-such-if"), -ENODEV);
    assert_int_equal(spw__socket_interface_name(1u << 30, name), -ENODEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_neither_block_nor_leak_to_children),
        cmocka_unit_test(moves_pieces_in_order),
        cmocka_unit_test(the_end_of_the_stream_is_zero_bytes),
        cmocka_unit_test(a_child_does_not_end_what_is_its_parents),
        cmocka_unit_test(sending_to_nobody_raises_no_signal),
        cmocka_unit_test(a_full_socket_answers_again),
        cmocka_unit_test(a_range_of_a_file_is_sent),
        cmocka_unit_test(options_reach_the_socket),
        cmocka_unit_test(every_call_answers_the_negative_errno),
        cmocka_unit_test(interfaces_have_numbers_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
