/* Sending: what is queued, charged, refused and let go, and when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"

static const size_t SMALL[] = {120, 0, 100};

/* A message much larger than what the sockets of both ends hold. */
enum { STUCK_BYTES = 64 << 20 };

static void sends_more_frames_than_one_call_takes(void **state)
{
    enum { FRAMES = 5000 };
    torture *t = *state;
    size_t *sizes = malloc(FRAMES * sizeof *sizes);
    assert_non_null(sizes);
    for (size_t i = 0; i < FRAMES; i++)
        sizes[i] = 4096 + i % 5;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, sizes, FRAMES, 3));
    TRY(loopback_receive_made(t, pair.server, pair.client, sizes, FRAMES, 3));
    assert_true(io_fault_calls_of("send") >= FRAMES / 1024);
end:
    loopback_close(&pair);
    free(sizes);
}

static void sends_what_was_queued_while_connecting(void **state)
{
    torture *t = *state;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    loopback pair = {0};
    const char *host;
    uint16_t port;
    TRY(spw_listener_start(t->context, "127.0.0.1", 0, 4, &pair.listener, &t->error));
    spw_listener_local(pair.listener, &host, &port);
    TRY(spw_connection_connect(t->context, host, port, &options, &pair.client,
                               &t->error));
    assert_true(spw_connection_is_connecting(pair.client));
    assert_status(spw_connection_on_readable(pair.client), AGAIN);
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 1));
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 2));
    assert_true(spw_connection_queued_bytes(pair.client) > 0);
    assert_int_equal(io_fault_calls_of("send"), 0);
    TRY(loopback_accept(pair.listener, NULL, &pair.server, &t->error));
    TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL), 1));
    TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL), 2));
    assert_int_equal(io_fault_calls_of("send"), 1); /* both in one call */
    assert_false(spw_connection_is_connecting(pair.client));
end:
    loopback_close(&pair);
}

static void a_failed_send_leaves_the_payload_with_its_caller(void **state)
{
    torture *t = *state;
    char data[200000] = {0};
    static const size_t SIZES[] = {10, sizeof data}; /* sent at once, queued first */
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        raw_pair pair = raw_pair_open(t->context);
        unsigned released = 0;
        uint64_t bytes = 77;
        spw_payload *payload;
        assert_ok(payload_wrap(t->context, data, SIZES[i], &released, &payload, NULL));
        io_fault_arm_call("send", 1, 0);
        assert_status(spw_connection_send(pair.ours, payload, &bytes, &t->error),
                      RESET);
        assert_int_equal(bytes, 77);
        assert_ended(pair.ours, RESET);
        assert_status(spw_connection_send(pair.ours, payload, &bytes, &t->error),
                      RESET);
        raw_pair_close(&pair);
        assert_int_equal(released, 0);
        assert_int_equal(spw_payload_bytes(payload), SIZES[i]);
        spw_payload_free(payload);
        assert_int_equal(released, 1);
    }
}

static void a_message_without_frames_is_refused(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    uint64_t bytes;
    assert_ok(spw_payload_create(t->context, 0, &payload, NULL));
    assert_status(spw_connection_send(pair.ours, payload, &bytes, NULL),
                  INVALID_ARGUMENT);
    assert_true(spw_connection_is_open(pair.ours));
    spw_payload_free(payload);
    raw_pair_close(&pair);
}

static void one_send_leaves_the_loop_its_turn(void **state)
{
    enum { FRAMES = 200, FRAME_BYTES = 1 << 20 };
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    spw_slice slice = {.size = FRAME_BYTES, .plain_size = FRAME_BYTES};
    spw_payload *payload;
    uint64_t bytes;
    assert_ok(spw_payload_create(t->context, FRAMES, &payload, NULL));
    assert_ok(spw_buffer_create(t->context, FRAME_BYTES, SPW_CHARGE_HELD, &slice.buffer,
                                NULL));
    for (int i = 0; i < FRAMES; i++) {
        assert_ok(spw_payload_append(payload, &slice, NULL));
        spw_buffer_ref(slice.buffer);
    }
    spw_buffer_unref(slice.buffer);
    io_fault_swallow();
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    assert_int_equal(spw_connection_queued_bytes(pair.ours), bytes - (64 << 20));
    assert_ok(spw_connection_on_writable(pair.ours, NULL));
    assert_int_equal(spw_connection_queued_bytes(pair.ours), bytes - (128 << 20));
    raw_pair_close(&pair);
}

static void release_callbacks_run_only_in_reap_and_close(void **state)
{
    torture *t = *state;
    char *data = calloc(1, STUCK_BYTES);
    unsigned released_small = 0, released_stuck = 0;
    uint64_t bytes;
    raw_pair pair = raw_pair_open(t->context);
    spw_payload *payload;
    assert_ok(
        payload_wrap(t->context, data, 5000, &released_small, &payload, &t->error));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, &t->error));
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released_stuck, &payload,
                           &t->error));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, &t->error));
    assert_true(spw_connection_queued_bytes(pair.ours) > 0);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED),
                     spw_connection_queued_bytes(pair.ours));
    assert_int_equal(released_small, 0);
    spw_connection_reap(pair.ours);
    assert_int_equal(released_small, 1);
    assert_int_equal(released_stuck, 0);
    /* The stuck one fails while it is sent: it is no longer queued, but its memory is
     * let go only where callbacks may run. */
    io_fault_arm_call("send", 1, 0);
    assert_status(spw_connection_on_writable(pair.ours, &t->error), RESET);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    assert_int_equal(released_stuck, 0);
    spw_connection_close(pair.ours);
    assert_int_equal(released_stuck, 1);
    assert_int_equal(released_small, 1);
    raw_pair_close(&pair);
    free(data);
}

/* ---- the budget ---- */

/* Read from the raw end until ours has sent its queue. */
static void drain(const raw_pair *pair, char *scratch, size_t size)
{
    while (spw_connection_queued_bytes(pair->ours) > 0) {
        /* Something is queued because the sockets are full: this does not block. */
        assert_true(recv(pair->raw, scratch, size, 0) > 0);
        assert_ok(spw_connection_on_writable(pair->ours, NULL));
    }
}

static void a_full_queue_refuses_and_recovers(void **state)
{
    torture *t = *state;
    torture_limit(t, STUCK_BYTES + 100000);
    char *data = calloc(1, STUCK_BYTES);
    assert_non_null(data);
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *stuck, *refused;
    raw_pair pair = raw_pair_open(t->context);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &stuck, NULL));
    assert_ok(spw_connection_send(pair.ours, stuck, &bytes, NULL));
    uint64_t queued = spw_connection_queued_bytes(pair.ours);
    assert_true(queued > 0);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), queued);
    assert_ok(payload_wrap(t->context, data, STUCK_BYTES, &released, &refused, NULL));
    assert_status(spw_connection_send(pair.ours, refused, &bytes, &t->error),
                  LIMIT_EXCEEDED);
    assert_non_null(strstr(t->error.message, "budget"));
    assert_int_equal(spw_connection_queued_bytes(pair.ours), queued);
    assert_true(spw_connection_is_open(pair.ours));
    drain(&pair, data, STUCK_BYTES);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    assert_ok(spw_connection_send(pair.ours, refused, &bytes, NULL));
    raw_pair_close(&pair);
    assert_int_equal(released, 2);
    free(data);
}

static void a_small_message_needs_no_budget(void **state)
{
    torture *t = *state;
    torture_limit(t, 1);
    char data[1000] = {0};
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    raw_pair pair = raw_pair_open(t->context);
    spw_error error;
    assert_ok(payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    /* Nothing of the next is taken: it is refused, and the connection goes on. */
    assert_ok(payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
    io_fault_arm(IO_FAULT_AGAIN, 1, 0);
    assert_status(spw_connection_send(pair.ours, payload, &bytes, NULL),
                  LIMIT_EXCEEDED);
    assert_true(spw_connection_is_open(pair.ours));
    /* Cut short, it must not be followed by another. */
    io_fault_arm(IO_FAULT_SHORT, 1, 0);
    assert_status(spw_connection_send(pair.ours, payload, &bytes, &error),
                  LIMIT_EXCEEDED);
    assert_ended(pair.ours, LIMIT_EXCEEDED);
    spw_connection_close(pair.ours);
    assert_int_equal(released, 1);
    spw_payload_free(payload);
    raw_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(sends_more_frames_than_one_call_takes),
        SCENARIO(sends_what_was_queued_while_connecting),
        SCENARIO(a_failed_send_leaves_the_payload_with_its_caller),
        SCENARIO(a_message_without_frames_is_refused),
        SCENARIO(one_send_leaves_the_loop_its_turn),
        SCENARIO(release_callbacks_run_only_in_reap_and_close),
        SCENARIO(a_full_queue_refuses_and_recovers),
        SCENARIO(a_small_message_needs_no_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
