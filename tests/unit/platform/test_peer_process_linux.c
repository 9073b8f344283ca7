/* The peer's process, on real ones: children that connect to us. */
#include "platform/peer_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file_payloads.h"
#include "platform/unix_socket.h"
#include "private_place.h"
#include "testing.h"

static const char OURS[] = "what the parent has", THEIRS[] = "what the child has!";
static char memory[sizeof OURS]; /* at the same address in parent and child */

typedef struct fixture {
    private_place place;
    int listening, accepted;
    pid_t child;
    spw__peer_process peer;
} fixture;

static void wait_for(int descriptor)
{
    struct pollfd watched = {descriptor, POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
}

/* A child that connects, with other memory than we have, and waits to be killed. */
static int set_up(void **state)
{
    fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    private_place_open(&at->place);
    memcpy(memory, OURS, sizeof OURS);
    at->listening = spw__unix_socket_listen(at->place.path, 4);
    assert_true(at->listening >= 0);
    at->child = fork();
    assert_true(at->child >= 0);
    if (at->child == 0) {
        memcpy(memory, THEIRS, sizeof THEIRS);
        if (spw__unix_socket_connect(at->place.path) < 0)
            _exit(EXIT_FAILURE);
        for (;;)
            pause();
    }
    wait_for(at->listening);
    at->accepted = spw__unix_socket_accept(at->listening);
    assert_true(at->accepted >= 0);
    assert_int_equal(spw__peer_process_identify(at->accepted, &at->peer), 0);
    *state = at;
    return 0;
}

static void kill_child(fixture *at)
{
    if (at->child == 0)
        return;
    assert_int_equal(kill(at->child, SIGKILL), 0);
    assert_int_equal(waitpid(at->child, NULL, 0), at->child);
    at->child = 0;
}

static int tear_down(void **state)
{
    fixture *at = *state;
    kill_child(at);
    spw__peer_process_release(&at->peer);
    spw__unix_socket_close(at->accepted);
    spw__unix_socket_close(at->listening);
    private_place_close(&at->place);
    free(at);
    return 0;
}

static void a_peer_is_who_connected(void **state)
{
    fixture *at = *state;
    assert_int_equal(at->peer.pid, at->child);
    assert_int_equal(at->peer.uid, geteuid());
    assert_int_equal(at->peer.uid, spw__peer_process_own_user());
    assert_int_equal(at->peer.descriptor, -1);
}

static void a_peer_is_alive_until_it_ends(void **state)
{
    fixture *at = *state;
    assert_int_equal(spw__peer_process_hold(at->accepted, &at->peer), 0);
    assert_true(at->peer.descriptor >= 0);
    assert_true(fcntl(at->peer.descriptor, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(spw__peer_process_is_alive(&at->peer), 1);
    kill_child(at);
    assert_int_equal(spw__peer_process_is_alive(&at->peer), 0);
}

static void a_peer_that_has_ended_cannot_be_read(void **state)
{
    fixture *at = *state;
    char got[sizeof memory];
    spw__peer_piece piece = {got, (uint64_t)(uintptr_t)memory, sizeof got};
    kill_child(at);
    assert_int_equal(spw__peer_process_read(&at->peer, &piece, 1), -ESRCH);
}

static void a_descriptor_is_taken_and_outlives_the_process(void **state)
{
    (void)state;
    char got[sizeof OURS];
    int descriptor = file_open();
    assert_int_equal(write(descriptor, OURS, sizeof OURS), sizeof OURS);
    pid_t child = fork(); /* which has it open under the same number */
    assert_true(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    assert_int_equal(close(descriptor), 0);
    int taken = spw__peer_process_take_descriptor(child, descriptor);
    assert_true(taken >= 0);
    assert_true(fcntl(taken, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(pread(taken, got, sizeof got, 0), sizeof got);
    assert_memory_equal(got, OURS, sizeof got);
    assert_int_equal(spw__peer_process_take_descriptor(child, descriptor), -ESRCH);
    assert_int_equal(close(taken), 0);
}

static void what_is_not_open_is_not_taken(void **state)
{
    (void)state;
    unsigned open = file_count_descriptors();
    assert_int_equal(spw__peer_process_take_descriptor(getpid(), 1 << 20), -EBADF);
    assert_int_equal(file_count_descriptors(), open);
}

static void a_peer_without_a_pid_is_not_held(void **state)
{
    fixture *at = *state;
    spw__peer_process stranger = {.pid = 0, .descriptor = -1};
    assert_int_equal(spw__peer_process_hold(at->accepted, &stranger), -ESRCH);
    assert_int_equal(stranger.descriptor, -1);
    spw__peer_process_release(&stranger);
}

static void memory_is_the_peers(void **state)
{
    fixture *at = *state;
    char got[sizeof memory] = "";
    spw__peer_piece piece = {got, (uint64_t)(uintptr_t)memory, sizeof got};
    assert_int_equal(spw__peer_process_read(&at->peer, &piece, 1), 0);
    assert_string_equal(got, THEIRS);
    assert_string_equal(memory, OURS);
}

static void pieces_are_read_in_order_however_many(void **state)
{
    fixture *at = *state;
    enum { PIECES = 1500 };
    unsigned char got[PIECES];
    spw__peer_piece pieces[PIECES];
    memset(got, 0, sizeof got);
    size_t wanted = 0;
    for (size_t i = 0; i < PIECES; i++) {
        size_t size = i % 3 == 2 ? 0 : 1;
        pieces[i] = (spw__peer_piece){got + wanted,
                                      (uint64_t)(uintptr_t)memory + wanted % 10, size};
        wanted += size;
    }
    assert_int_equal(spw__peer_process_read(&at->peer, pieces, PIECES), 0);
    for (size_t i = 0; i < PIECES; i++)
        assert_int_equal(got[i], i < wanted ? THEIRS[i % 10] : 0);
    assert_int_equal(spw__peer_process_read(&at->peer, pieces, 0), 0);
    assert_int_equal(spw__peer_process_read(&at->peer, &pieces[2], 1), 0);
}

static void memory_that_is_not_there_is_told(void **state)
{
    fixture *at = *state;
    char got[32] = "";
    spw__peer_piece pieces[] = {{got, (uint64_t)(uintptr_t)memory, 10},
                                {got + 10, 4096, 10},
                                {got + 20, (uint64_t)(uintptr_t)memory, 10}};
    assert_int_equal(spw__peer_process_read(&at->peer, pieces, 3), -EFAULT);
    assert_memory_equal(got, THEIRS, 10);
}

/* A call stops where a page is missing, in the middle of a piece. */
static void a_piece_that_runs_into_nothing_is_told(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(munmap(pages + page, page), 0);
    char *got = malloc(2 * page);
    assert_non_null(got);
    pages[page - 1] = 'x';
    spw__peer_process self = {.pid = getpid()};
    spw__peer_piece piece = {got, (uint64_t)(uintptr_t)pages, page + 1};
    assert_int_equal(spw__peer_process_read(&self, &piece, 1), -EFAULT);
    assert_int_equal(got[page - 1], 'x');
    free(got);
    assert_int_equal(munmap(pages, page), 0);
}

static void one_pid_at_a_time_is_allowed(void **state)
{
    (void)state;
    pid_t pid = getpid();
    assert_int_equal(spw__peer_process_allow(pid), 0);
    assert_int_equal(spw__peer_process_allow(pid), 0);
    assert_int_equal(spw__peer_process_allow(pid + 1), -EBUSY);
    spw__peer_process_disallow(pid + 1); /* which was not allowed */
    spw__peer_process_disallow(pid);
    assert_int_equal(spw__peer_process_allow(pid + 1), -EBUSY);
    spw__peer_process_disallow(pid);
    assert_int_equal(spw__peer_process_allow(pid), 0);
    spw__peer_process_disallow(pid);
    spw__peer_process_disallow(pid);
}

static void the_boot_has_an_id(void **state)
{
    (void)state;
    char first[SPW__BOOT_ID_BYTES], second[SPW__BOOT_ID_BYTES];
    assert_int_equal(spw__boot_id(first), 0);
    assert_int_equal(spw__boot_id(second), 0);
    assert_string_equal(first, second);
    assert_int_equal(strlen(first), 36);
    assert_int_equal(strspn(first, "0123456789abcdef-"), 36);
}

static void random_bytes_differ(void **state)
{
    (void)state;
    unsigned char first[32] = {0}, second[32] = {0};
    assert_int_equal(spw__random_bytes(first, sizeof first), 0);
    assert_int_equal(spw__random_bytes(second, sizeof second), 0);
    assert_memory_not_equal(first, second, sizeof first);
    assert_int_equal(spw__random_bytes(first, 0), 0);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(a_peer_is_who_connected),
        TEST_AT(a_peer_is_alive_until_it_ends),
        TEST_AT(a_peer_that_has_ended_cannot_be_read),
        TEST_AT(a_peer_without_a_pid_is_not_held),
        cmocka_unit_test(a_descriptor_is_taken_and_outlives_the_process),
        cmocka_unit_test(what_is_not_open_is_not_taken),
        TEST_AT(memory_is_the_peers),
        TEST_AT(pieces_are_read_in_order_however_many),
        TEST_AT(memory_that_is_not_there_is_told),
        cmocka_unit_test(a_piece_that_runs_into_nothing_is_told),
        cmocka_unit_test(one_pid_at_a_time_is_allowed),
        cmocka_unit_test(the_boot_has_an_id),
        cmocka_unit_test(random_bytes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
