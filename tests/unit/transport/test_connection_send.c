/* Sending: what is queued, charged, refused and let go, and when. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "file_payloads.h"
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

/* ---- ranges of files ---- */

/* Frames 1, 3 and 4 are in a file: one of a few bytes, one of many. */
static const size_t FILED[] = {50, 12, 300000, 1500000, 0, 30};
/* The same for what is run a thousand times. */
static const size_t FEWER[] = {50, 12, 5000, 40000, 0, 30};
enum { IN_FILE = 1 << 1 | 1 << 3 | 1 << 4 };

static spw_status send_sizes(torture *t, spw_connection *sender,
                             const size_t sizes[COUNT_OF(FILED)], unsigned seed)
{
    spw_payload *payload;
    uint64_t bytes;
    spw_status status = payload_make_in_file(t->context, sizes, COUNT_OF(FILED),
                                             IN_FILE, seed, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_connection_send(sender, payload, &bytes, &t->error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

static spw_status send_filed(torture *t, spw_connection *sender, unsigned seed)
{
    return send_sizes(t, sender, FILED, seed);
}

static void ranges_of_files_go_between_other_messages(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 1));
    TRY(send_sizes(t, pair.client, FEWER, 2));
    TRY(send_sizes(t, pair.client, FEWER, 3));
    TRY(loopback_send_made(t, pair.client, SMALL, COUNT_OF(SMALL), 4));
    TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL), 1));
    TRY(loopback_receive_made(t, pair.server, pair.client, FEWER, COUNT_OF(FEWER), 2));
    TRY(loopback_receive_made(t, pair.server, pair.client, FEWER, COUNT_OF(FEWER), 3));
    TRY(loopback_receive_made(t, pair.server, pair.client, SMALL, COUNT_OF(SMALL), 4));
end:
    loopback_close(&pair);
}

static void no_descriptor_is_kept(void **state)
{
    torture *t = *state;
    loopback pair;
    unsigned before = file_count_descriptors();
    TRY(loopback_open_away(t->context, 2, 0, &pair, &t->error));
    unsigned opened = file_count_descriptors();
    for (unsigned seed = 0; seed < 3; seed++) {
        TRY(send_filed(t, pair.client, seed));
        TRY(loopback_receive_made(t, pair.server, pair.client, FILED, COUNT_OF(FILED),
                                  seed));
    }
    TRY(loopback_settle(pair.client, pair.server, &t->error));
    spw_connection_reap(pair.client);
    /* One more is the poller's or a thread's, that came after the first count. */
    assert_in_range(file_count_descriptors(), opened, opened + 2);
    /* Whatever the connection had not sent goes with it. */
    TRY(send_filed(t, pair.client, 4));
    spw_connection_close(pair.client);
end:
    loopback_close(&pair);
    assert_int_equal(file_count_descriptors(), before);
}

/* Which thread makes the calls that move something. */
typedef struct movers {
    pthread_t owner;
    _Atomic unsigned by_owner, by_others;
} movers;

static void note_mover(void *user)
{
    movers *seen = user;
    if (pthread_equal(pthread_self(), seen->owner))
        seen->by_owner++;
    else
        seen->by_others++;
}

static void step_until_sent(const raw_pair *pair)
{
    while (spw_connection_interest(pair->ours) != SPW_INTEREST_READ)
        assert_ok(loopback_step(pair->ours, NULL, NULL));
}

/* A disk may take any time, so even a few bytes of a file are no work for the owner,
 * whatever its limit on what it moves itself. */
static void the_owner_never_reads_a_file(void **state)
{
    static const size_t SIZES[] = {10, 12};
    torture *t = *state;
    movers seen = {.owner = pthread_self()};
    raw_pair pair = raw_pair_open_away(t->context, UINT64_MAX);
    char *wire, got[100];
    size_t size;
    spw_payload *payload;
    uint64_t bytes;
    wire = payload_wire(t->context, SIZES, 2, 1, &size);
    assert_ok(payload_make_in_file(t->context, SIZES, 2, 2, 1, &payload, NULL));
    io_fault_before_move(note_mover, &seen);
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    step_until_sent(&pair);
    assert_int_equal(bytes, size);
    assert_int_equal(seen.by_owner, 0);
    assert_int_equal(seen.by_others, 2); /* what is before it, and the range */
    assert_int_equal(recv(pair.raw, got, size, MSG_WAITALL), size);
    assert_memory_equal(got, wire, size);
    /* The next message is the owner's own work again. */
    assert_ok(loopback_send_made(t, pair.ours, SMALL, COUNT_OF(SMALL), 1));
    assert_int_equal(seen.by_owner, 1);
    free(wire);
    raw_pair_close(&pair);
}

static void without_completions_a_file_is_refused(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open(t->context);
    assert_status(send_filed(t, pair.ours, 1), INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "needs completions"));
    assert_true(spw_connection_is_open(pair.ours));
    assert_ok(loopback_send_made(t, pair.ours, SMALL, COUNT_OF(SMALL), 1));
    raw_pair_close(&pair);
}

static void without_a_thread_a_file_ends_the_connection(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    io_fault_arm_call("start_thread", 1, 0);
    assert_status(send_filed(t, pair.ours, 1), IO);
    assert_non_null(strstr(t->error.message, "no thread can send a range of a file"));
    assert_ended(pair.ours, IO);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    raw_pair_close(&pair);
}

/* The peer sees the end of the connection, and we what is wrong with the file. */
static void a_file_that_is_cut_ends_the_connection(void **state)
{
    static const uint64_t KEPT[] = {0, 700000};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(KEPT); i++) {
        loopback pair;
        spw_payload *payload, *none;
        uint64_t bytes;
        spw_error error;
        assert_ok(loopback_open_away(t->context, 2, 0, &pair, NULL));
        assert_ok(payload_make_in_file(t->context, FILED, COUNT_OF(FILED), IN_FILE, 1,
                                       &payload, NULL));
        payload_cut_file(payload, 3, KEPT[i]);
        assert_ok(spw_connection_send(pair.client, payload, &bytes, NULL));
        assert_status(loopback_receive(pair.server, pair.client, &none, NULL),
                      TRUNCATED);
        while (spw_connection_is_open(pair.client))
            assert_ok(loopback_step(pair.client, NULL, NULL));
        assert_status(spw_connection_receive(pair.client, &none, &error), IO);
        assert_non_null(strstr(error.message, "shorter than its range"));
        assert_ended(pair.client, IO);
        loopback_close(&pair);
    }
}

static void a_file_that_cannot_be_read_ends_the_connection(void **state)
{
    torture *t = *state;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    spw_payload *none;
    spw_error error;
    io_fault_arm_call("send_file", 1, EIO);
    assert_ok(send_filed(t, pair.ours, 1));
    while (spw_connection_is_open(pair.ours))
        assert_ok(loopback_step(pair.ours, NULL, NULL));
    assert_status(spw_connection_receive(pair.ours, &none, &error), IO);
    assert_int_equal(error.os_errno, EIO);
    assert_non_null(strstr(error.message, "cannot read a file"));
    raw_pair_close(&pair);
}

/* What files hold waits in no memory: a budget is not asked for it. */
static void a_file_larger_than_the_budget_is_sent(void **state)
{
    enum { LARGE = 8 << 20 };
    torture *t = *state;
    torture_limit(t, LARGE / 2);
    spw_payload *payload;
    spw_slice slice = {.kind = SPW_MEMORY_FILE, .size = LARGE, .plain_size = LARGE};
    uint64_t bytes;
    raw_pair pair = raw_pair_open_away(t->context, 0);
    assert_ok(spw_file_adopt(t->context, file_open(), &slice.file, NULL));
    static char zeros[1 << 20];
    for (int at = 0; at < LARGE; at += (int)sizeof zeros) /* and so it is cached */
        assert_int_equal(
            pwrite(spw_file_descriptor(slice.file), zeros, sizeof zeros, at),
            sizeof zeros);
    assert_ok(spw_payload_create(t->context, 1, &payload, NULL));
    assert_ok(spw_payload_append(payload, &slice, NULL));
    io_fault_swallow();
    assert_ok(spw_connection_send(pair.ours, payload, &bytes, NULL));
    step_until_sent(&pair);
    assert_int_equal(io_fault_calls_of("send_file"), LARGE >> 20);
    raw_pair_close(&pair);
}

static void a_range_may_begin_past_4_gib(void **state)
{
    torture *t = *state;
    const size_t size = 3000;
    loopback pair;
    spw_payload *payload;
    uint64_t bytes;
    assert_ok(loopback_open_away(t->context, 2, 0, &pair, NULL));
    assert_ok(
        payload_make_stored_at(t->context, UINT64_C(5) << 30, size, 6, &payload, NULL));
    assert_ok(spw_connection_send(pair.client, payload, &bytes, NULL));
    assert_ok(loopback_receive_made(t, pair.server, pair.client, &size, 1, 6));
    loopback_close(&pair);
}

/* Large bodies go from memory to memory there, and ranges of files by the stream. */
static void to_a_peer_of_the_same_host_files_go_by_the_stream(void **state)
{
    torture *t = *state;
    loopback pair;
    assert_ok(loopback_open_host(t->context, 2, NULL, &pair, NULL));
    assert_ok(loopback_meet(t, pair.client, pair.server));
    uint64_t before = torture_figures(t).host_bytes_sent;
    assert_ok(send_filed(t, pair.client, 5));
    assert_ok(
        loopback_receive_made(t, pair.server, pair.client, FILED, COUNT_OF(FILED), 5));
    assert_int_equal(torture_figures(t).host_bytes_sent - before, FILED[2]);
    assert_ok(loopback_settle(pair.client, pair.server, NULL));
    loopback_close(&pair);
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
        SCENARIO(a_range_may_begin_past_4_gib),
        SCENARIO(no_descriptor_is_kept),
        SCENARIO(the_owner_never_reads_a_file),
        SCENARIO(without_completions_a_file_is_refused),
        SCENARIO(without_a_thread_a_file_ends_the_connection),
        SCENARIO(a_file_that_is_cut_ends_the_connection),
        SCENARIO(a_file_that_cannot_be_read_ends_the_connection),
        SCENARIO(a_file_larger_than_the_budget_is_sent),
        SCENARIO(to_a_peer_of_the_same_host_files_go_by_the_stream),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(ranges_of_files_go_between_other_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("ranges of files", scenarios);
}
