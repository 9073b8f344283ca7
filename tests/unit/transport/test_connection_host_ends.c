/* Ends of connections with bodies announced: nothing announced is let go of too early
 * or kept too long, and nothing is believed that was read too late. */
#include <errno.h>
#include <string.h>

#include "host_fault.h"
#include "host_sizes.h"
#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"
#include "transport/connection_state.h"
#include "wire_bytes.h"

static void who_cannot_hear_what_is_taken_ends(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    io_fault_arm_call("poller_rearm", 1, ENOMEM);
    SEND(pair.client, LARGE, 1);
    assert_ended(pair.client, IO);
    spw_connection_reap(pair.client);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    spw_payload *none;
    TRY_STATUS(loopback_receive(pair.server, NULL, &none, &t->error), TRUNCATED);
end:
    loopback_close(&pair);
}

static void announced_bodies_are_released_once(void **state)
{
    enum { MESSAGES = 3, ENDS = 5 };
    torture *t = *state;
    static char data[300000];
    for (int end = 0; end < ENDS; end++) {
        unsigned released = 0;
        uint64_t bytes;
        loopback pair;
        assert_ok(loopback_open_host(t->context, 2, NULL, &pair, NULL));
        int before = private_place_descriptors();
        assert_ok(loopback_meet(t, pair.client, pair.server));
        for (int i = 0; i < MESSAGES; i++) {
            spw_payload *payload;
            assert_ok(
                payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
            assert_ok(spw_connection_send(pair.client, payload, &bytes, NULL));
            assert_true(bytes > sizeof data);
        }
        spw_connection_reap(pair.client);
        assert_int_equal(released, 0);
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), MESSAGES * sizeof data);
        if (end == 0)
            spw_connection_close(pair.client);
        if (end == 1) {
            spw_connection_free(pair.client);
            pair.client = NULL;
        }
        if (end == 2 || end == 3) { /* the receiver goes, having read nothing */
            spw_connection_close(pair.server);
            while (spw_connection_is_open(pair.client))
                assert_ok(loopback_step(pair.client, NULL, NULL));
        }
        if (end == 3) {
            spw_connection_reap(pair.client);
            assert_int_equal(released, MESSAGES);
        }
        if (end == 4) { /* in the middle */
            spw_payload *message;
            assert_ok(loopback_receive(pair.server, NULL, &message, NULL));
            spw_payload_free(message);
            spw_connection_close(pair.server);
            spw_connection_close(pair.client);
        }
        if (end != 2) {
            assert_int_equal(released, MESSAGES);
            torture_assert_nothing_charged(t);
        }
        if (pair.client != NULL)
            spw_connection_close(pair.client);
        spw_connection_close(pair.server);
        assert_int_equal(released, MESSAGES);
        torture_assert_nothing_charged(t);
        /* Both streams and both ends of the side channel are gone. */
        assert_int_equal(private_place_descriptors(), before - 2);
        loopback_close(&pair);
    }
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
        SCENARIO(who_cannot_hear_what_is_taken_ends),
        SCENARIO(announced_bodies_are_released_once),
        SCENARIO(a_closed_receiver_leaves_a_body_half_read),
        SCENARIO(a_sender_that_lets_go_is_not_believed),
        SCENARIO(references_of_a_peer_that_has_not_met_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
