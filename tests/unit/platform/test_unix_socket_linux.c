/* The contract of Unix sockets, on real ones. */
#include "platform/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "private_place.h"
#include "testing.h"

typedef struct fixture {
    private_place place;
    int listening, client, server, before;
} fixture;

static int set_up(void **state)
{
    fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    private_place_open(&at->place);
    at->before = private_place_descriptors();
    at->listening = spw__unix_socket_listen(at->place.path, 2);
    assert_true(at->listening >= 0);
    assert_int_equal(spw__unix_socket_accept(at->listening), -EAGAIN);
    at->client = spw__unix_socket_connect(at->place.path);
    assert_true(at->client >= 0);
    at->server = spw__unix_socket_accept(at->listening);
    assert_true(at->server >= 0);
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    fixture *at = *state;
    spw__unix_socket_close(at->client);
    spw__unix_socket_close(at->server);
    spw__unix_socket_close(at->listening);
    assert_int_equal(private_place_descriptors(), at->before);
    private_place_close(&at->place);
    free(at);
    return 0;
}

static void send_text(int descriptor, const char *text, int passed)
{
    struct iovec pieces[2] = {{(char *)text, 1}, {(char *)text + 1, strlen(text) - 1}};
    assert_int_equal(spw__unix_socket_send(descriptor, pieces, 2, passed),
                     strlen(text));
}

static ssize_t receive(int descriptor, char *text, size_t room, int *ret_passed,
                       bool *ret_is_lost)
{
    struct iovec pieces[2] = {{text, 1}, {text + 1, room - 1}};
    return spw__unix_socket_receive(descriptor, pieces, 2, ret_passed, ret_is_lost);
}

static void sockets_neither_block_nor_leak_to_children(void **state)
{
    fixture *at = *state;
    const int all[] = {at->listening, at->client, at->server};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        assert_true(fcntl(all[i], F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(all[i], F_GETFL) & O_NONBLOCK);
    }
}

static void packets_stay_apart(void **state)
{
    fixture *at = *state;
    char text[16] = "";
    int passed = 77;
    bool is_lost = true;
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost),
                     -EAGAIN);
    assert_int_equal(passed, 77);
    send_text(at->client, "one", -1);
    send_text(at->client, "three", -1);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost), 3);
    assert_memory_equal(text, "one", 3);
    assert_int_equal(passed, -1);
    assert_false(is_lost);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost), 5);
    assert_memory_equal(text, "three", 5);
}

static void a_packet_that_is_too_large_is_told(void **state)
{
    fixture *at = *state;
    char text[4];
    int passed, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool is_lost;
    int before = private_place_descriptors();
    send_text(at->client, "five!", null);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost),
                     -EMSGSIZE);
    assert_int_equal(private_place_descriptors(), before);
    close(null);
}

static void a_descriptor_comes_with_its_packet(void **state)
{
    fixture *at = *state;
    char text[8];
    int passed = -1, ends[2];
    bool is_lost;
    assert_int_equal(pipe(ends), 0);
    send_text(at->client, "end", ends[1]);
    close(ends[1]);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost), 3);
    assert_true(passed >= 0);
    assert_true(fcntl(passed, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(passed, "x", 1), 1);
    close(passed);
    assert_int_equal(read(ends[0], text, 8), 1);
    assert_int_equal(read(ends[0], text, 8), 0); /* that was the last copy */
    close(ends[0]);
}

/* Found by the fuzzer of side channels: it stayed open. */
static void the_descriptor_of_an_empty_packet_is_dropped(void **state)
{
    fixture *at = *state;
    char text[8];
    int passed = -2;
    bool is_lost;
    int before = private_place_descriptors();
    struct iovec nothing = {text, 0};
    assert_int_equal(spw__unix_socket_send(at->client, &nothing, 1, at->listening), 0);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost), 0);
    assert_int_equal(passed, -1);
    assert_int_equal(private_place_descriptors(), before);
}

static void more_than_one_descriptor_is_refused(void **state)
{
    fixture *at = *state;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(3 * sizeof(int))];
    } control = {.room = {0}};
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(head), (int[3]){null, null, null}, 3 * sizeof(int));
    assert_int_equal(sendmsg(at->client, &message, 0), 1);
    int before = private_place_descriptors(), passed;
    bool is_lost;
    char text[8];
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost),
                     -EMSGSIZE);
    assert_int_equal(private_place_descriptors(), before);
    close(null);
}

/* Where a process may have no more descriptors the kernel drops what comes. */
static void a_lost_descriptor_is_told(void **state)
{
    fixture *at = *state;
    struct rlimit before, none;
    char text[8];
    int passed = 77;
    bool is_lost = false;
    send_text(at->client, "null", at->client);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ssize_t size = receive(at->server, text, sizeof text, &passed, &is_lost);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(size, 4);
    assert_int_equal(passed, -1);
    assert_true(is_lost);
}

static void a_shutdown_is_seen_whoever_has_a_copy(void **state)
{
    fixture *at = *state;
    char text[8];
    int passed, copy = dup(at->client);
    bool is_lost;
    assert_int_equal(spw__unix_socket_is_hung_up(at->server), 0);
    send_text(at->client, "last", -1);
    assert_int_equal(spw__unix_socket_is_hung_up(at->server), 0);
    spw__unix_socket_shutdown(at->client, spw__unix_socket_owner() + 1);
    assert_int_equal(spw__unix_socket_is_hung_up(at->server), 0);
    spw__unix_socket_shutdown(at->client, spw__unix_socket_owner());
    assert_int_equal(spw__unix_socket_is_hung_up(at->server), 1);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost), 4);
    assert_int_equal(receive(at->server, text, sizeof text, &passed, &is_lost), 0);
    struct iovec piece = {"x", 1};
    assert_int_equal(spw__unix_socket_send(at->server, &piece, 1, -1), -EPIPE);
    close(copy);
}

static void a_peer_that_dies_is_seen(void **state)
{
    fixture *at = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)spw__unix_socket_connect(at->place.path);
        _exit(EXIT_SUCCESS);
    }
    struct pollfd watched = {at->listening, POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
    int server = spw__unix_socket_accept(at->listening);
    assert_true(server >= 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(spw__unix_socket_is_hung_up(server), 1);
    spw__unix_socket_close(server);
}

static void others_may_not_enter_the_directory(void **state)
{
    fixture *at = *state;
    char path[128], link_path[100];
    snprintf(path, sizeof path, "%s/other", at->place.directory);
    static const mode_t OPEN[] = {0701, 0710, 0755, 0777, 01777};
    for (size_t i = 0; i < COUNT_OF(OPEN); i++) {
        assert_int_equal(chmod(at->place.directory, OPEN[i]), 0);
        assert_int_equal(spw__unix_socket_listen(path, 1), -EACCES);
    }
    assert_int_equal(chmod(at->place.directory, 0700), 0);
    snprintf(link_path, sizeof link_path, "%s_link", at->place.directory);
    assert_int_equal(symlink(at->place.directory, link_path), 0);
    snprintf(path, sizeof path, "%s/other", link_path);
    assert_int_equal(spw__unix_socket_listen(path, 1), -EACCES);
    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(spw__unix_socket_listen("other", 1), -EACCES);
    assert_int_equal(spw__unix_socket_listen(at->place.path, 1), -EADDRINUSE);
}

static void paths_are_as_long_as_an_address_holds(void **state)
{
    (void)state;
    char path[SPW__UNIX_PATH_BYTES + 1];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[SPW__UNIX_PATH_BYTES] = '\0';
    assert_int_equal(spw__unix_socket_listen(path, 1), -ENAMETOOLONG);
    assert_int_equal(spw__unix_socket_connect(path), -ENAMETOOLONG);
    path[SPW__UNIX_PATH_BYTES - 1] = '\0';
    assert_int_equal(spw__unix_socket_connect(path), -ENOENT);
}

static void nobody_to_meet_is_told(void **state)
{
    fixture *at = *state;
    char path[100];
    snprintf(path, sizeof path, "%s/other", at->place.directory);
    assert_int_equal(spw__unix_socket_connect(path), -ENOENT);
    int listening = spw__unix_socket_listen(path, 1);
    spw__unix_socket_close(listening);
    assert_int_equal(spw__unix_socket_connect(path), -ECONNREFUSED);
    assert_int_equal(unlink(path), 0);
    /* Somebody else's service is most likely a stream. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stream, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(stream, 1), 0);
    assert_int_equal(spw__unix_socket_connect(path), -EPROTOTYPE);
    close(stream);
    assert_int_equal(unlink(path), 0);
}

static void a_full_backlog_does_not_block(void **state)
{
    fixture *at = *state;
    int waiting[8], count = 0;
    while (count < 8) {
        int client = spw__unix_socket_connect(at->place.path);
        if (client < 0) {
            assert_int_equal(client, -EAGAIN);
            break;
        }
        waiting[count++] = client;
    }
    assert_in_range(count, 2, 7);
    while (count > 0)
        spw__unix_socket_close(waiting[--count]);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(sockets_neither_block_nor_leak_to_children),
        TEST_AT(packets_stay_apart),
        TEST_AT(a_packet_that_is_too_large_is_told),
        TEST_AT(a_descriptor_comes_with_its_packet),
        TEST_AT(the_descriptor_of_an_empty_packet_is_dropped),
        TEST_AT(more_than_one_descriptor_is_refused),
        TEST_AT(a_lost_descriptor_is_told),
        TEST_AT(a_shutdown_is_seen_whoever_has_a_copy),
        TEST_AT(a_peer_that_dies_is_seen),
        TEST_AT(others_may_not_enter_the_directory),
        TEST_AT(paths_are_as_long_as_an_address_holds),
        TEST_AT(nobody_to_meet_is_told),
        TEST_AT(a_full_backlog_does_not_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
