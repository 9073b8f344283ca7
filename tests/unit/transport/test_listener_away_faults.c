/* Connections that a thread accepts, whose peers misbehave, or where something fails or
 * ends meanwhile: nothing is lost, kept or told twice. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "payloads.h"
#include "served_peers.h"

/* ---- peers that misbehave ---- */

static void what_came_before_the_peer_closed_is_received(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 1);
    raw_send_made(t, raw, LARGE, COUNT_OF(LARGE), 2);
    served_peers_end(&f, 0);
    wait_for_figure(t, messages_received, 2);
    spw_connection *connection = served_peers_take(&f);
    const char *host;
    uint16_t port;
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    assert_true(spw_connection_is_open(connection));
    assert_waits(connection, LARGE, COUNT_OF(LARGE), 2);
    spw_payload *none;
    assert_status(loopback_receive(connection, NULL, &none, NULL), PEER_CLOSED);
    assert_ended(connection, PEER_CLOSED);
    assert_ok(spw_connection_local(connection, &host, &port, NULL));
    assert_string_equal(host, "127.0.0.1");
    spw_connection_free(connection);
    served_peers_close(&f);
}

static void the_end_shows_to_a_loop_that_only_watches(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 1);
    served_peers_end(&f, 0);
    wait_for_figure(t, messages_received, 1);
    spw_connection *connection = served_peers_take(&f);
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    while (spw_connection_is_open(connection))
        assert_ok(loopback_step(connection, NULL, NULL));
    assert_ended(connection, PEER_CLOSED);
    spw_connection_free(connection);
    served_peers_close(&f);
}

static void a_peer_that_is_gone_at_once(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    for (size_t i = 0; i < 20; i++) {
        struct linger at_once = {.l_onoff = (int)i % 2, .l_linger = 0};
        int raw = served_peers_connect(&f);
        assert_int_equal(
            setsockopt(raw, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        served_peers_end(&f, i);
    }
    for (size_t i = 0; i < 20; i++) {
        spw_connection *connection = served_peers_take(&f);
        spw_payload *none;
        spw_status status = loopback_receive(connection, NULL, &none, NULL);
        assert_true(status == SPW_STATUS_PEER_CLOSED || status == SPW_STATUS_RESET);
        spw_connection_free(connection);
    }
    served_peers_close(&f);
}

static void garbage_ends_the_connection_alone(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    assert_int_equal(send(raw, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    wait_for_figure(t, bytes_received, 18);
    spw_connection *connection = served_peers_take(&f);
    spw_payload *none;
    assert_status(loopback_receive(connection, NULL, &none, NULL), LIMIT_EXCEEDED);
    assert_ended(connection, LIMIT_EXCEEDED);
    spw_connection_free(connection);
    assert_greeted(t, served_peers_connect(&f), GREETING, NEAR_SEED);
    served_peers_close(&f);
}

static void who_says_nothing_is_given_to_its_owner_too(void **state)
{
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    spw_connection *connection = served_peers_take(&f);
    spw_payload *payload;
    assert_status(spw_connection_receive(connection, &payload, NULL), AGAIN);
    assert_int_equal(spw_connection_interest(connection), SPW_INTEREST_READ);
    raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 3);
    assert_ok(loopback_receive(connection, NULL, &payload, NULL));
    payload_assert(payload, SMALL, COUNT_OF(SMALL), 3);
    spw_payload_free(payload);
    spw_connection_free(connection);
    served_peers_close(&f);
}

/* ---- many ---- */

static void ends_what_nobody_has_taken(void **state)
{
    enum { PEERS = 40 };
    torture *t = *state;
    served_peers f;
    served_peers_open(t, &f);
    for (unsigned i = 0; i < PEERS; i++)
        raw_send_made(t, served_peers_connect(&f), SMALL, COUNT_OF(SMALL), i);
    wait_for_figure(t, connections_opened, PEERS / 2);
    spw_connection *connection =
        served_peers_take(&f); /* some have arrived, and some have not */
    spw_listener_free(f.listener);
    f.listener = NULL;
    for (size_t i = 1; i < PEERS; i++) {
        char byte;
        struct pollfd watched = {f.raw[i], POLLIN, 0};
        do
            assert_int_equal(poll(&watched, 1, LOST_AFTER_S * 1000), 1);
        while (recv(f.raw[i], &byte, 1, 0) > 0);
    }
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 0);
    spw_connection_free(connection);
    served_peers_close(&f);
}

/* ---- what fails ---- */

static void a_fault_is_told_once_and_accepting_goes_on(void **state)
{
    torture *t = *state;
    served_peers f;
    spw_connection *connection;
    assert_ok(served_peers_listen(t, &f, 4));
    io_fault_arm_call("accept", 1, EMFILE);
    assert_ok(served_peers_begin(t, &f));
    int raw = served_peers_connect(&f);
    assert_status(loopback_accept(f.listener, NULL, &connection, &t->error), IO);
    assert_int_equal(t->error.os_errno, EMFILE);
    assert_non_null(strstr(t->error.message, "ulimit -n"));
    struct pollfd watched = {spw_listener_descriptor(f.listener), POLLIN, 0};
    assert_int_equal(poll(&watched, 1, 0), 0);
    assert_int_equal(io_fault_calls_of("accept"), 1); /* nobody spins */
    assert_status(spw_listener_accept(f.listener, NULL, &connection, NULL), AGAIN);
    assert_greeted(t, raw, GREETING, NEAR_SEED);
    spw_connection_free(served_peers_take(&f));
    served_peers_close(&f);
}

static void who_came_before_a_fault_is_handed_out_before_it(void **state)
{
    torture *t = *state;
    served_peers f;
    spw_connection *connection;
    assert_ok(served_peers_listen(t, &f, 4));
    for (int i = 0; i < 3; i++)
        served_peers_connect(&f);
    io_fault_arm_call("accept", 3, ENFILE);
    assert_ok(served_peers_begin(t, &f));
    spw_connection_free(served_peers_take(&f));
    spw_connection_free(served_peers_take(&f));
    assert_status(loopback_accept(f.listener, NULL, &connection, &t->error), IO);
    assert_int_equal(t->error.os_errno, ENFILE);
    assert_status(spw_listener_accept(f.listener, NULL, &connection, NULL), AGAIN);
    spw_connection_free(served_peers_take(&f));
    served_peers_close(&f);
}

static void a_fault_of_one_connection_is_not_told(void **state)
{
    torture *t = *state;
    served_peers f;
    assert_ok(served_peers_listen(t, &f, 4));
    io_fault_arm_call("accept", 1, ECONNABORTED);
    assert_ok(served_peers_begin(t, &f));
    assert_greeted(t, served_peers_connect(&f), GREETING, NEAR_SEED);
    spw_connection_free(served_peers_take(&f));
    served_peers_close(&f);
}

static void who_cannot_be_waited_for_says_so(void **state)
{
    torture *t = *state;
    served_peers f;
    /* By the thread after its step, */
    assert_ok(served_peers_listen(t, &f, 4));
    io_fault_arm_call("poller_rearm", 1, 0);
    assert_ok(served_peers_begin(t, &f));
    served_peers_connect(&f);
    spw_connection_free(served_peers_take(&f));
    spw_connection *none;
    assert_status(spw_listener_accept(f.listener, NULL, &none, NULL), AGAIN);
    served_peers_connect(&f); /* whose coming a thread hears of all the same */
    spw_connection_free(served_peers_take(&f));
    assert_status(spw_listener_accept(f.listener, NULL, &none, NULL), AGAIN);
    /* and by the owner who sends it away again. */
    io_fault_arm_call("poller_rearm", 1, 0);
    assert_status(spw_listener_accept(f.listener, NULL, &none, &t->error), IO);
    assert_non_null(strstr(t->error.message, "no thread accepts"));
    assert_status(spw_listener_accept(f.listener, NULL, &none, NULL), AGAIN);
    served_peers_connect(&f);
    spw_connection_free(served_peers_take(&f));
    served_peers_close(&f);
}

static void without_a_thread_the_owner_accepts(void **state)
{
    torture *t = *state;
    served_peers f;
    io_fault_arm_call("start_thread", 1, 0);
    assert_status(served_peers_open_with(t, &f, 4), IO);
    t->status = SPW_STATUS_OK;
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    served_peers_connect(&f);
    spw_connection *connection;
    assert_ok(loopback_accept(f.listener, NULL, &connection, NULL));
    spw_connection_free(connection);
    served_peers_close(&f);
}

/* ---- fork ---- */

static int use_in_child(torture *t, served_peers *f)
{
    spw_connection *connection;
    if (spw_listener_accept(f->listener, NULL, &connection, &t->error) !=
            SPW_STATUS_CLOSED ||
        strstr(t->error.message, "parent") == NULL)
        return 1;
    served_peers_close(f);
    return 0;
}

static void a_forked_child_leaves_it_to_the_parent(void **state)
{
    torture *t = *state;
    served_peers f;
    int status;
    served_peers_open(t, &f);
    int raw = served_peers_connect(&f);
    raw_send_made(t, raw, SMALL, COUNT_OF(SMALL), 1);
    wait_for_figure(t, messages_received, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(use_in_child(t, &f));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_greeted(t, served_peers_connect(&f), GREETING, NEAR_SEED);
    spw_connection *connection = served_peers_take(&f);
    assert_waits(connection, SMALL, COUNT_OF(SMALL), 1);
    spw_connection_free(connection);
    served_peers_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(what_came_before_the_peer_closed_is_received),
        SCENARIO(the_end_shows_to_a_loop_that_only_watches),
        SCENARIO(a_peer_that_is_gone_at_once),
        SCENARIO(garbage_ends_the_connection_alone),
        SCENARIO(who_says_nothing_is_given_to_its_owner_too),
        SCENARIO(ends_what_nobody_has_taken),
        SCENARIO(a_fault_is_told_once_and_accepting_goes_on),
        SCENARIO(who_came_before_a_fault_is_handed_out_before_it),
        SCENARIO(a_fault_of_one_connection_is_not_told),
        SCENARIO(who_cannot_be_waited_for_says_so),
        SCENARIO(without_a_thread_the_owner_accepts),
        SCENARIO(a_forked_child_leaves_it_to_the_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
