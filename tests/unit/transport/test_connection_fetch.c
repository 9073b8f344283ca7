/* Bodies that were announced by the peer: which threads bring them, and that nothing is
 * believed that was read too late, or of a peer that has not met us. */
#include <errno.h>
#include <string.h>

#include "host_fault.h"
#include "host_sizes.h"
#include "io_fault.h"
#include "loopback.h"
#include "transport/connection_state.h"
#include "wire_bytes.h"

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

static void a_closed_receiver_leaves_a_body_half_read(void **state)
{
    static const size_t MANY[] = {MANY_BYTES};
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, MANY, 1);
    spw_payload *none;
    while (!pair.server->receiving.is_away) {
        TRY_STATUS(spw_connection_receive(pair.server, &none, &t->error), AGAIN);
        if (!pair.server->receiving.is_away)
            TRY(loopback_step(pair.server, NULL, &t->error));
    }
    spw_connection_close(pair.server);
    assert_ended(pair.server, CLOSED);
    while (spw_connection_is_open(pair.client))
        TRY(loopback_step(pair.client, NULL, &t->error));
    spw_connection_reap(pair.client);
    torture_assert_nothing_charged(t);
end:
    loopback_close(&pair);
}

static void let_go_of(void *argument)
{
    loopback *pair = argument;
    /* As the owner of the sender would, on a thread of its own: what was read before
     * is not to be believed any more. */
    spw_connection_close(pair->client);
}

static void a_sender_that_lets_go_is_not_believed(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, LARGE, 1); /* brought by the owner's thread, so by ours */
    host_fault_after_read(let_go_of, &pair);
    spw_payload *none;
    TRY_STATUS(loopback_receive(pair.server, NULL, &none, &t->error), TRUNCATED);
    assert_ended(pair.server, TRUNCATED);
end:
    host_fault_after_read(NULL, NULL);
    loopback_close(&pair);
}

static void references_of_a_peer_that_has_not_met_us(void **state)
{
    static const uint8_t NONCE[SPW_NONCE_BYTES] = "nobody's nonce.";
    torture *t = *state;
    for (int is_expected = 0; is_expected < 2; is_expected++) {
        wire_bytes frame = {0}, wire = {0};
        spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
        private_place place;
        spw_meetings *meetings;
        spw_error error;
        spw_payload *none;
        uint64_t address = 0x10000;
        private_place_open(&place);
        options.parent = place.directory;
        assert_ok(spw_meetings_create(t->context, &options, &meetings, NULL));
        raw_pair pair = raw_pair_open_away(t->context, 0);
        if (is_expected)
            assert_ok(spw_connection_meet(pair.ours, meetings, NONCE, "/tmp/nowhere",
                                          NONCE, NULL));
        wire_put_noise(&frame, 300000, 1);
        wire_put_referenced(&wire, &frame, 1, &address);
        raw_pair_send(&pair, wire.bytes, wire.size);
        assert_status(loopback_receive(pair.ours, NULL, &none, &error), PROTOCOL);
        if (is_expected)
            assert_non_null(strstr(error.message, "has not met us"));
        assert_ended(pair.ours, PROTOCOL);
        torture_assert_nothing_charged(t);
        raw_pair_close(&pair);
        spw_meetings_free(meetings);
        private_place_close(&place);
        wire_clear(&frame);
        wire_clear(&wire);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_large_piece_is_read_by_two_threads),
        SCENARIO(two_readers_find_all_threads_busy),
        SCENARIO(a_receipt_that_found_no_room_is_said_later),
        SCENARIO(a_closed_receiver_leaves_a_body_half_read),
        SCENARIO(a_sender_that_lets_go_is_not_believed),
        SCENARIO(references_of_a_peer_that_has_not_met_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
