/* Bodies that go from memory to memory: that they arrive whole and in order, and who
 * may meet for that. */
#include "transport/connection_host.h"

#include <errno.h>
#include <string.h>

#include "host_fault.h"
#include "host_sizes.h"
#include "loopback.h"
#include "transport/connection_state.h"

static void messages_with_and_without_references_in_a_row(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, FEW, 1);
    SEND(pair.client, SMALL, 2);
    SEND(pair.client, LARGE, 3);
    RECEIVE(pair.server, pair.client, FEW, 1);
    RECEIVE(pair.server, pair.client, SMALL, 2);
    RECEIVE(pair.server, pair.client, LARGE, 3);
    TRY(loopback_settle(pair.client, pair.server, &t->error));
    if (spw_connection_is_open(pair.client))
        assert_int_equal(spw_connection_queued_bytes(pair.client), 0);
    /* What a thread hands over last may come a moment after it no longer counts. */
    do
        spw_connection_reap(pair.client);
    while (spw_connection_is_open(pair.client) &&
           torture_charged(t, SPW_CHARGE_QUEUED) > 0);
end:
    loopback_close(&pair);
}

static void both_directions_at_once(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    TRY(loopback_meet(t, pair.server, pair.client));
    SEND(pair.client, FEW, 1);
    SEND(pair.server, LARGE, 2);
    RECEIVE(pair.client, pair.server, LARGE, 2);
    RECEIVE(pair.server, pair.client, FEW, 1);
end:
    loopback_close(&pair);
}

static void by_descriptor_where_memory_cannot_be_read(void **state)
{
    torture *t = *state;
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.uses_descriptors = true;
    loopback pair;
    host_fault_refuse_reads(EPERM);
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, FEW, 1);
    SEND(pair.client, LARGE, 2);
    RECEIVE(pair.server, pair.client, FEW, 1);
    RECEIVE(pair.server, pair.client, LARGE, 2);
end:
    host_fault_refuse_reads(0);
    loopback_close(&pair);
}

static void closed_with_bodies_announced(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, FEW, 1);
    SEND(pair.client, LARGE, 2);
    bool is_open = spw_connection_is_open(pair.client);
    spw_connection_close(pair.client);
    if (is_open)
        assert_ended(pair.client, CLOSED);
end:
    loopback_close(&pair);
}

static void large_bodies_go_by_address(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    spw_figures before = torture_figures(t);
    assert_int_equal(before.host_meetings, 1);
    assert_int_equal(before.host_bytes_sent, 0); /* it went to meet, by the stream */
    SEND(pair.client, MIXED, 1);
    RECEIVE(pair.server, pair.client, MIXED, 1);
    spw_figures after = torture_figures(t);
    assert_int_equal(after.host_bytes_sent, MIXED[1] + MIXED[4] + MIXED[5]);
    assert_int_equal(after.host_bytes_by_address, after.host_bytes_sent);
    assert_int_equal(after.bytes_sent, after.bytes_received);
    assert_int_equal(after.host_refusals, 0);
    assert_int_equal(loopback_news(NULL), 0);
    /* Small bodies do not go to a thread and back, large ones do not keep the owner. */
    assert_false(pair.server->receiving.is_away);
end:
    loopback_close(&pair);
}

static void many_messages_both_ways(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    TRY(loopback_meet(t, pair.server, pair.client));
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        SEND(pair.client, SMALL, i);
        SEND(pair.server, MIXED, i + 9);
        SEND(pair.client, LARGE, i);
    }
    for (unsigned i = 0; i < 3; i++) {
        RECEIVE(pair.server, pair.client, MIXED, i);
        RECEIVE(pair.client, pair.server, MIXED, i + 9);
        RECEIVE(pair.server, pair.client, SMALL, i);
        RECEIVE(pair.server, pair.client, LARGE, i);
    }
end:
    loopback_close(&pair);
}

static void an_idle_connection_has_no_side_channel(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    int before = private_place_descriptors();
    for (unsigned i = 0; i < 20; i++) {
        SEND(pair.client, SMALL, i);
        RECEIVE(pair.server, pair.client, SMALL, i);
    }
    assert_int_equal(private_place_descriptors(), before);
    assert_int_equal(torture_figures(t).host_meetings, 0);
end:
    loopback_close(&pair);
}

static void the_first_large_body_is_under_way_when_they_meet(void **state)
{
    static const size_t FIRST[] = {24 << 20};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    SEND(pair.client, FIRST, 1);
    while (loopback_is_away(pair.client) && pair.client->announcing.is_away)
        TRY(loopback_step(pair.client, NULL, &t->error));
    assert_int_equal(torture_figures(t).host_meetings, 1);
    assert_true(spw_connection_queued_bytes(pair.client) > 0);
    SEND(pair.client, MIXED, 2); /* by address, behind what is in the queue */
    assert_true(torture_figures(t).host_bytes_sent > 0);
    SEND(pair.client, SMALL, 3);
    RECEIVE(pair.server, pair.client, FIRST, 1);
    RECEIVE(pair.server, pair.client, MIXED, 2);
    RECEIVE(pair.server, pair.client, SMALL, 3);
end:
    loopback_close(&pair);
}

static void who_may_meet(void **state)
{
    static const uint8_t NONCE[SPW_NONCE_BYTES] = "some nonce.....";
    torture *t = *state;
    char long_path[200];
    loopback pair, without;
    memset(long_path, 'x', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_open(t->context, "127.0.0.1", &without, &t->error));
#define MEET(connection, path)                                                         \
    spw_connection_meet(connection, pair.meetings, NONCE, path, NONCE, &t->error)
    assert_status(MEET(pair.client, "/tmp/x"), INVALID_ARGUMENT); /* a second time */
    assert_status(MEET(without.client, "/tmp/x"), INVALID_ARGUMENT);
    loopback_close(&without);
    TRY(loopback_open_away(t->context, 2, 0, &without, &t->error));
    assert_status(MEET(without.client, long_path), INVALID_ARGUMENT);
    assert_status(MEET(without.client, NULL), INVALID_ARGUMENT);
    spw_connection_close(without.client);
    assert_status(MEET(without.client, "/tmp/x"), CLOSED);
#undef MEET
    loopback_close(&without);
end:
    loopback_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(large_bodies_go_by_address),
        SCENARIO(many_messages_both_ways),
        SCENARIO(an_idle_connection_has_no_side_channel),
        SCENARIO(the_first_large_body_is_under_way_when_they_meet),
        SCENARIO(who_may_meet),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(messages_with_and_without_references_in_a_row),
        SCENARIO(both_directions_at_once),
        SCENARIO(by_descriptor_where_memory_cannot_be_read),
        SCENARIO(closed_with_bodies_announced),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("bodies by reference", scenarios);
}
