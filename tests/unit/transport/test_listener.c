/* Listeners. */
#include "spillway/listener.h"

#include <errno.h>
#include <string.h>

#include "io_fault.h"
#include "loopback.h"

static spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;

static uint16_t port_of(const spw_listener *listener)
{
    const char *host;
    uint16_t port;
    spw_listener_local(listener, &host, &port);
    return port;
}

static void tells_where_it_listens(void **state)
{
    static const char *const HOSTS[] = {"127.0.0.1", "0.0.0.0", "::1", "::"};
    torture *t = *state;
    for (size_t i = 0; i < (loopback_has_ipv6() ? 4u : 2u); i++) {
        spw_listener *listener;
        const char *host;
        uint16_t port;
        assert_ok(spw_listener_start(t->context, HOSTS[i], 0, 4, &listener, &t->error));
        spw_listener_local(listener, &host, &port);
        assert_string_equal(host, HOSTS[i]);
        assert_int_not_equal(port, 0);
        assert_true(spw_listener_descriptor(listener) >= 0);
        spw_listener_free(listener);
    }
    spw_listener_free(NULL);
}

static void both_families_share_a_port(void **state)
{
    torture *t = *state;
    if (!loopback_has_ipv6())
        skip();
    spw_listener *v6, *v4;
    assert_ok(spw_listener_start(t->context, "::", 0, 4, &v6, &t->error));
    assert_ok(
        spw_listener_start(t->context, "0.0.0.0", port_of(v6), 4, &v4, &t->error));
    spw_listener_free(v4);
    spw_listener_free(v6);
}

static void accepts_nothing_when_nobody_waits(void **state)
{
    torture *t = *state;
    spw_listener *listener;
    spw_connection *connection = NULL;
    assert_ok(spw_listener_start(t->context, "127.0.0.1", 0, 4, &listener, NULL));
    assert_status(spw_listener_accept(listener, &options, &connection, NULL), AGAIN);
    assert_null(connection);
    spw_listener_free(listener);
}

static void a_port_in_use_is_told_with_its_address(void **state)
{
    torture *t = *state;
    spw_listener *listener, *second = NULL;
    assert_ok(spw_listener_start(t->context, "127.0.0.1", 0, 4, &listener, NULL));
    assert_status(spw_listener_start(t->context, "127.0.0.1", port_of(listener), 4,
                                     &second, &t->error),
                  ADDRESS);
    assert_int_equal(t->error.os_errno, EADDRINUSE);
    assert_non_null(strstr(t->error.message, "127.0.0.1:"));
    assert_null(second);
    spw_listener_free(listener);
}

static void an_address_of_others_is_refused(void **state)
{
    torture *t = *state;
    spw_listener *listener = NULL;
    /* Documentation addresses (RFC 5737): nobody's. */
    assert_status(
        spw_listener_start(t->context, "192.0.2.1", 0, 4, &listener, &t->error),
        ADDRESS);
    assert_int_equal(t->error.os_errno, EADDRNOTAVAIL);
    assert_status(
        spw_listener_start(t->context, "localhost", 0, 4, &listener, &t->error),
        ADDRESS);
    assert_int_equal(t->error.os_errno, 0);
    assert_null(listener);
}

static void its_port_can_be_used_again_at_once(void **state)
{
    torture *t = *state;
    loopback pair;
    spw_payload *payload;
    spw_listener *again;
    assert_ok(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    uint16_t port = port_of(pair.listener);
    /* The side that closes first keeps the port in TIME_WAIT. */
    spw_connection_close(pair.server);
    assert_status(loopback_receive(pair.client, NULL, &payload, NULL), PEER_CLOSED);
    loopback_close(&pair);
    assert_ok(spw_listener_start(t->context, "127.0.0.1", port, 4, &again, &t->error));
    spw_listener_free(again);
}

static void a_fault_of_one_connection_is_not_the_listeners(void **state)
{
    static const int TRANSIENT[] = {ECONNABORTED, EPERM,       EPROTO,    ENOPROTOOPT,
                                    ENETDOWN,     ENETUNREACH, EHOSTDOWN, EHOSTUNREACH,
                                    ENONET,       EOPNOTSUPP};
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    spw_connection *connection;
    for (size_t i = 0; i < COUNT_OF(TRANSIENT); i++) {
        io_fault_arm_call("accept", 1, TRANSIENT[i]);
        assert_status(spw_listener_accept(pair.listener, &options, &connection, NULL),
                      AGAIN);
    }
    raw_pair_close(&pair);
}

static void running_out_of_descriptors_is_told(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    spw_connection *connection;
    io_fault_arm_call("accept", 1, EMFILE);
    assert_status(spw_listener_accept(pair.listener, &options, &connection, &t->error),
                  IO);
    assert_int_equal(t->error.os_errno, EMFILE);
    assert_non_null(strstr(t->error.message, "ulimit -n"));
    raw_pair_close(&pair);
}

static void refuses_options_that_it_does_not_know(void **state)
{
    torture *t = *state;
    loopback pair;
    spw_connection *connection = NULL;
    spw_connection_options unknown = SPW_CONNECTION_OPTIONS_INIT;
    unknown.struct_size = 3;
    assert_ok(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    const char *host;
    uint16_t port;
    spw_connection *second;
    spw_listener_local(pair.listener, &host, &port);
    assert_ok(spw_connection_connect(t->context, host, port, &options, &second, NULL));
    spw_status status;
    do {
        status = spw_listener_accept(pair.listener, &unknown, &connection, &t->error);
    } while (status == SPW_STATUS_AGAIN);
    assert_int_equal(status, SPW_STATUS_INVALID_ARGUMENT);
    assert_null(connection);
    spw_connection_free(second);
    loopback_close(&pair);
}

static void accepts_two_connections(void **state)
{
    torture *t = *state;
    loopback first = {0}, second = {0};
    TRY(loopback_open(t->context, "127.0.0.1", &first, &t->error));
    TRY(loopback_open(t->context, "127.0.0.1", &second, &t->error));
end:
    loopback_close(&second);
    loopback_close(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(tells_where_it_listens),
        SCENARIO(both_families_share_a_port),
        SCENARIO(accepts_nothing_when_nobody_waits),
        SCENARIO(a_port_in_use_is_told_with_its_address),
        SCENARIO(an_address_of_others_is_refused),
        SCENARIO(its_port_can_be_used_again_at_once),
        SCENARIO(a_fault_of_one_connection_is_not_the_listeners),
        SCENARIO(running_out_of_descriptors_is_told),
        SCENARIO(refuses_options_that_it_does_not_know),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(accepts_two_connections)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("listener", scenarios);
}
