#include "transport/host_door.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "platform/unix_socket.h"
#include "private_place.h"
#include "torture.h"

typedef struct fixture {
    torture *t;
    private_place place;
} fixture;

static int set_up(void **state)
{
    fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    void *t;
    torture_setup(&t);
    at->t = t;
    private_place_open(&at->place);
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    fixture *at = *state;
    void *t = at->t;
    private_place_close(&at->place); /* fails when something is left in it */
    free(at);
    return torture_teardown(&t);
}

static void who_comes_is_let_in(void **state)
{
    fixture *at = *state;
    spw__host_door *door;
    int server;
    assert_ok(spw__host_door_create(at->t->context, at->place.directory, &door, NULL));
    assert_status(spw__host_door_accept(door, &server, NULL), AGAIN);
    int client = spw__unix_socket_connect(spw__host_door_path(door));
    assert_true(client >= 0);
    struct pollfd watched = {spw__host_door_descriptor(door), POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 20000), 1);
    assert_ok(spw__host_door_accept(door, &server, NULL));
    assert_int_equal(spw__unix_socket_is_hung_up(server), 0);
    spw__unix_socket_close(client);
    spw__unix_socket_close(server);
    spw__host_door_free(door);
}

static void doors_do_not_disturb_each_other(void **state)
{
    fixture *at = *state;
    spw__host_door *first, *second;
    assert_ok(spw__host_door_create(at->t->context, at->place.directory, &first, NULL));
    assert_ok(
        spw__host_door_create(at->t->context, at->place.directory, &second, NULL));
    assert_string_not_equal(spw__host_door_path(first), spw__host_door_path(second));
    assert_int_equal(access(spw__host_door_path(first), F_OK), 0);
    spw__host_door_free(first);
    spw__host_door_free(second);
}

/* What a child that was killed left is gone once somebody else opens a door. */
static void a_door_that_was_left_is_removed(void **state)
{
    fixture *at = *state;
    spw__host_door *door;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(spw__host_door_create(at->t->context, at->place.directory, &door, NULL));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(rmdir(at->place.directory), -1);
    assert_ok(spw__host_door_create(at->t->context, at->place.directory, &door, NULL));
    spw__host_door_free(door);
}

static void a_forked_child_leaves_its_parents_door(void **state)
{
    fixture *at = *state;
    spw__host_door *door;
    assert_ok(spw__host_door_create(at->t->context, at->place.directory, &door, NULL));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spw__host_door_free(door);
        _exit(EXIT_SUCCESS);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    int client = spw__unix_socket_connect(spw__host_door_path(door));
    assert_true(client >= 0);
    spw__unix_socket_close(client);
    spw__host_door_free(door);
}

static void a_parent_that_cannot_be_is_told(void **state)
{
    fixture *at = *state;
    spw__host_door *door = NULL;
    spw_error error;
    char parent[100];
    assert_status(
        spw__host_door_create(at->t->context, "/nowhere/at/all", &door, &error), IO);
    assert_int_equal(error.os_errno, ENOENT);
    memset(parent, 'x', sizeof parent);
    parent[0] = '/';
    parent[99] = '\0';
    assert_status(spw__host_door_create(at->t->context, parent, &door, &error),
                  ADDRESS);
    assert_null(door);
    spw__host_door_free(NULL);
}

static void a_failing_accept_is_told(void **state)
{
    fixture *at = *state;
    spw__host_door *door;
    int server = 77;
    spw_error error;
    assert_ok(spw__host_door_create(at->t->context, at->place.directory, &door, NULL));
    io_fault_arm_call("unix_accept", 1, EMFILE);
    assert_status(spw__host_door_accept(door, &server, &error), IO);
    assert_int_equal(server, 77);
    io_fault_arm_call("unix_accept", 1, ECONNABORTED);
    assert_status(spw__host_door_accept(door, &server, &error), AGAIN);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    spw__host_door_free(door);
}

static void nonces_differ(void **state)
{
    fixture *at = *state;
    uint8_t first[SPW__HOST_NONCE_BYTES], second[SPW__HOST_NONCE_BYTES];
    spw_error error;
    (void)at;
    assert_ok(spw__host_nonce(first, NULL));
    assert_ok(spw__host_nonce(second, NULL));
    assert_memory_not_equal(first, second, sizeof first);
    io_fault_arm_call("random", 1, ENOSYS);
    assert_status(spw__host_nonce(first, &error), IO);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
}

static void a_door_is_opened(void **state)
{
    torture *t = *state;
    private_place place;
    spw__host_door *door = NULL;
    private_place_open(&place);
    TRY(spw__host_door_create(t->context, place.directory, &door, &t->error));
end:
    spw__host_door_free(door);
    private_place_close(&place);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(who_comes_is_let_in),
        TEST_AT(doors_do_not_disturb_each_other),
        TEST_AT(a_door_that_was_left_is_removed),
        TEST_AT(a_forked_child_leaves_its_parents_door),
        TEST_AT(a_parent_that_cannot_be_is_told),
        TEST_AT(a_failing_accept_is_told),
        TEST_AT(nonces_differ),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(a_door_is_opened)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL);
}
