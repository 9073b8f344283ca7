/* Bodies that go from memory to memory: that they arrive whole and in order, and who
 * waits for what meanwhile. */
#include "transport/connection_host.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_fault.h"
#include "host_sizes.h"
#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "transport/connection_state.h"

/* ---- both ends in one process ---- */

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
    spw_connection_reap(pair.client);
    if (spw_connection_is_open(pair.client)) {
        assert_int_equal(spw_connection_queued_bytes(pair.client), 0);
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    }
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

/* ---- by which way ---- */

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

static void a_large_piece_is_read_by_two_threads(void **state)
{
    for (unsigned threads = 1; threads <= 3; threads++) {
        void *inner;
        (void)state;
        torture_setup(&inner);
        torture *t = inner;
        loopback pair;
        TRY(loopback_open_host(t->context, threads, NULL, &pair, &t->error));
        TRY(loopback_meet(t, pair.client, pair.server));
        for (unsigned i = 0; i < 4; i++) {
            uint64_t before = io_fault_calls_of("peer_read");
            SEND(pair.client, TWO_HALVES, i);
            RECEIVE(pair.server, pair.client, TWO_HALVES, i);
            /* In halves whoever reads the second: with one thread it does both. */
            assert_int_equal(io_fault_calls_of("peer_read") - before, 2);
        }
    end:
        loopback_close(&pair);
        assert_int_equal(torture_teardown(&inner), 0);
    }
}

static void two_readers_find_all_threads_busy(void **state)
{
    enum { PAIRS = 4 };
    torture *t = *state;
    loopback pairs[PAIRS];
    memset(pairs, 0, sizeof pairs);
    /* Each pair has two threads, which have several bodies to read and one to send. */
    for (int i = 0; i < PAIRS; i++) {
        TRY(loopback_open_host(t->context, 2, NULL, &pairs[i], &t->error));
        TRY(loopback_meet(t, pairs[i].client, pairs[i].server));
        TRY(loopback_meet(t, pairs[i].server, pairs[i].client));
    }
    for (unsigned i = 0; i < PAIRS; i++)
        for (unsigned seed = 0; seed < 2; seed++) {
            SEND(pairs[i].client, TWO_HALVES, seed);
            SEND(pairs[i].server, TWO_HALVES, seed + 5);
        }
    spw_payload *none;
    for (int i = 0; i < PAIRS; i++)
        TRY_STATUS(spw_connection_receive(pairs[i].server, &none, &t->error), AGAIN);
    for (unsigned seed = 0; seed < 2; seed++)
        for (int i = 0; i < PAIRS; i++) {
            RECEIVE(pairs[i].client, pairs[i].server, TWO_HALVES, seed + 5);
            RECEIVE(pairs[i].server, pairs[i].client, TWO_HALVES, seed);
        }
end:
    for (int i = 0; i < PAIRS; i++)
        loopback_close(&pairs[i]);
}

/* ---- who waits ---- */

static void who_announced_hears_that_all_is_taken(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    for (unsigned i = 0; i < 20; i++) {
        SEND(pair.client, LARGE, i);
        assert_int_equal(spw_connection_queued_bytes(pair.client), LARGE[0]);
        RECEIVE(pair.server, NULL, LARGE, i);
        /* The thread has heard it, the owner has not; and asks what to wait for. */
        struct pollfd back = {spw_completions_descriptor(pair.completions), POLLIN, 0};
        assert_int_equal(poll(&back, 1, 20000), 1);
        assert_int_equal(spw_connection_queued_bytes(pair.client), 0);
        assert_true(loopback_is_away(pair.client));
        TRY(loopback_step(pair.client, NULL, &t->error));
        assert_false(loopback_is_away(pair.client));
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    }
end:
    loopback_close(&pair);
}

static void a_receipt_that_found_no_room_is_said_later(void **state)
{
    torture *t = *state;
    loopback pair;
    for (int is_large = 0; is_large < 2; is_large++) {
        TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
        TRY(loopback_meet(t, pair.client, pair.server));
        io_fault_arm_call("unix_send", 1, EAGAIN);
        if (is_large) {
            SEND(pair.client, TWO_HALVES, 1);
            RECEIVE(pair.server, pair.client, TWO_HALVES, 1);
        } else {
            SEND(pair.client, LARGE, 1);
            RECEIVE(pair.server, pair.client, LARGE, 1);
        }
        TRY(loopback_settle(pair.client, pair.server, &t->error));
        assert_int_equal(spw_connection_queued_bytes(pair.client), 0);
        assert_true(io_fault_calls_of("unix_send") >= 2);
        SEND(pair.client, TWO_HALVES, 2);
        RECEIVE(pair.server, pair.client, TWO_HALVES, 2);
        loopback_close(&pair);
    }
    return;
end:
    loopback_close(&pair);
}

/* ---- ends ---- */

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

static void announced_bodies_count_in_the_budget(void **state)
{
    enum { FIRST = 3 << 20, SECOND = 5 << 20 };
    static char data[SECOND];
    torture *t = *state;
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    loopback pair;
    torture_limit(t, 7 << 20);
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    TRY(payload_wrap(t->context, data, FIRST, &released, &payload, &t->error));
    TRY(spw_connection_send(pair.client, payload, &bytes, &t->error));
    TRY(payload_wrap(t->context, data, SECOND, &released, &payload, &t->error));
    assert_status(spw_connection_send(pair.client, payload, &bytes, &t->error),
                  LIMIT_EXCEEDED);
    assert_true(spw_connection_is_open(pair.client));
    assert_int_equal(released, 0);
    spw_payload_free(payload);
    assert_int_equal(released, 1);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), FIRST);
    /* The first one is heard of all the same. */
    TRY(loopback_receive(pair.server, NULL, &payload, &t->error));
    spw_payload_free(payload);
    /* It is let go of at home, not by the thread that hears it. */
    while (released < 2)
        TRY(loopback_step(pair.client, pair.server, &t->error));
end:
    loopback_close(&pair);
}

/* ---- fork ---- */

static int use_in_child(torture *t, loopback *parents, bool is_announcing)
{
    uint64_t bytes, before = torture_figures(t).host_bytes_sent;
    spw_payload *payload;
    if (payload_make(t->context, LARGE, 1, 1, &payload, NULL) != SPW_STATUS_OK)
        return 1;
    /* What was away is the parent's. What was home may be used, badly, as any socket;
     * but nobody is to read the parent's memory in place of the child's. */
    spw_status status = spw_connection_send(parents->client, payload, &bytes, NULL);
    if (is_announcing ? status != SPW_STATUS_CLOSED : status != SPW_STATUS_OK)
        return 2;
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    if (torture_figures(t).host_bytes_sent != before)
        return 3;
    loopback_watch_meetings(NULL);
    spw_connection_free(parents->client);
    spw_connection_free(parents->server);
    spw_meetings_free(parents->meetings);
    return 0;
}

static void a_forked_child_announces_nothing(void **state)
{
    torture *t = *state;
    for (int is_announcing = 0; is_announcing < 2; is_announcing++) {
        loopback pair;
        int status;
        TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
        TRY(loopback_meet(t, pair.client, pair.server));
        if (is_announcing)
            SEND(pair.client, TWO_HALVES, 1);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(use_in_child(t, &pair, is_announcing != 0));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        /* The parent's goes on: the child has sent nothing when something was away. */
        if (is_announcing) {
            RECEIVE(pair.server, pair.client, TWO_HALVES, 1);
            SEND(pair.client, MIXED, 2);
            RECEIVE(pair.server, pair.client, MIXED, 2);
        }
        assert_int_equal(access(spw_meetings_path(pair.meetings), F_OK), 0);
        loopback_close(&pair);
    }
    return;
end:
    loopback_close(&(loopback){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(large_bodies_go_by_address),
        SCENARIO(many_messages_both_ways),
        SCENARIO(an_idle_connection_has_no_side_channel),
        SCENARIO(the_first_large_body_is_under_way_when_they_meet),
        SCENARIO(a_large_piece_is_read_by_two_threads),
        SCENARIO(two_readers_find_all_threads_busy),
        SCENARIO(who_announced_hears_that_all_is_taken),
        SCENARIO(a_receipt_that_found_no_room_is_said_later),
        SCENARIO(who_may_meet),
        SCENARIO(announced_bodies_count_in_the_budget),
        SCENARIO(a_forked_child_announces_nothing),
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
