/* Bodies that go from memory to memory: that they arrive whole and in order, by
 * whatever way is left, that nothing announced is let go of too early or kept too long,
 * and that nobody waits for ever. */
#include "transport/connection_host.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_fault.h"
#include "host_peer.h"
#include "io_fault.h"
#include "payloads.h"
#include "transport/connection_state.h"
#include "wire_bytes.h"

/* Just enough to go by reference, for suites that run a thousand times. */
static const size_t LARGE[] = {262144};
static const size_t FEW[] = {100, 262145, 0, 5000, 262144};
static const size_t MIXED[] = {100, 262144, 0, 5000, 262145, 262147, 70000};
static const size_t SMALL[] = {120, 0, 100};
/* More than one thread reads by itself, and no multiple of a page. */
static const size_t TWO_HALVES[] = {10, (9 << 20) + 12345, 20};
/* For more messages than there is room for receipts, and a thread brings each. */
static const size_t STOPPED[] = {(3 << 20) + 1, 10};
enum { STOPPED_MESSAGES = 40 };
/* More than one turn, and than the owner's thread would bring. */
enum { MANY_BYTES = 70 << 20 };

static bool is_away(const spw_connection *connection)
{
    return spw_connection_interest(connection) & SPW_INTEREST_COMPLETION;
}

static void assert_nothing_charged(const torture *t)
{
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        assert_int_equal(torture_charged(t, (spw_charge)i), 0);
}

#define SEND(sender, sizes, seed)                                                      \
    TRY(loopback_send_made(t, sender, sizes, COUNT_OF(sizes), seed))
#define RECEIVE(receiver, sender, sizes, seed)                                         \
    TRY(loopback_receive_made(t, receiver, sender, sizes, COUNT_OF(sizes), seed))

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
    while (is_away(pair.client) && pair.client->announcing.is_away)
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
        assert_true(is_away(pair.client));
        TRY(loopback_step(pair.client, NULL, &t->error));
        assert_false(is_away(pair.client));
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

static void a_receipt_waits_for_room_as_long_as_it_takes(void **state)
{
    enum { MESSAGES = 1000 };
    static char body[262144];
    torture *t = *state;
    host_peer peer;
    host_peer_start(t, "stops", NULL, 2, &peer);
    spw_connection *connection = peer.side.connection;
    host_side_meet(t, &peer.side, true);
    /* It sends all, then stops; what it has in the socket then is more receipts than
     * fit there. */
    spw_payload *message;
    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_ok(loopback_receive(connection, NULL, &message, NULL));
        const spw_slice *slices = spw_payload_slices(message);
        memset(body, (int)i, sizeof body);
        assert_memory_equal(spw_slice_data(&slices[0]), body, sizeof body);
        spw_payload_free(message);
    }
    host_side_tell(&peer.side); /* it goes on, and ends once all is taken */
    host_side_await(&peer.side);
    host_peer_end(&peer);
}

/* Neither do bodies that a thread brings wait until there is room for receipts. */
static void a_stopped_sender_is_read_to_the_end(void **state)
{
    torture *t = *state;
    host_peer peer;
    host_peer_start(t, "stops large", NULL, 2, &peer);
    host_side_meet(t, &peer.side, true);
    for (unsigned i = 0; i < STOPPED_MESSAGES; i++)
        assert_ok(loopback_receive_made(t, peer.side.connection, NULL, STOPPED,
                                        COUNT_OF(STOPPED), i));
    spw_figures figures = torture_figures(t);
    assert_true(figures.host_bytes_by_address >= STOPPED_MESSAGES * STOPPED[0]);
    host_side_tell(&peer.side);
    host_side_await(&peer.side);
    host_peer_end(&peer);
}

/* ---- refusals ---- */

static const struct {
    int os_errno;
} READ_REFUSALS[] = {{EPERM}, {ENOSYS}, {EACCES}, {ENOMEM}};

static void refused_when_they_meet(torture *t, bool uses_descriptors, int os_errno)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.uses_descriptors = uses_descriptors;
    loopback pair;
    uint64_t refusals = torture_figures(t).host_refusals;
    uint64_t by_descriptor = torture_figures(t).host_bytes_by_descriptor;
    host_fault_refuse_reads(os_errno);
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        RECEIVE(pair.server, pair.client, MIXED, i);
    }
    const char *news;
    assert_int_equal(torture_figures(t).host_refusals, refusals + 1);
    assert_int_equal(loopback_news(&news), 1);
    assert_non_null(strstr(news, strerror(os_errno)));
    assert_int_equal(torture_figures(t).host_bytes_by_address, 0);
    assert_int_equal(torture_figures(t).host_bytes_by_descriptor - by_descriptor,
                     uses_descriptors ? 3 * (MIXED[1] + MIXED[4] + MIXED[5]) : 0);
end:
    host_fault_refuse_reads(0);
    loopback_close(&pair);
}

static void reading_is_refused_when_they_meet(void **state)
{
    for (size_t i = 0; i < COUNT_OF(READ_REFUSALS); i++) {
        refused_when_they_meet(*state, false, READ_REFUSALS[i].os_errno);
        refused_when_they_meet(*state, true, READ_REFUSALS[i].os_errno);
    }
}

static void reading_is_refused_later_on(void **state)
{
    for (int uses_descriptors = 0; uses_descriptors < 2; uses_descriptors++) {
        void *inner;
        (void)state;
        torture_setup(&inner);
        torture *t = inner;
        spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
        options.uses_descriptors = uses_descriptors != 0;
        loopback pair;
        TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
        TRY(loopback_meet(t, pair.client, pair.server));
        SEND(pair.client, MIXED, 1);
        RECEIVE(pair.server, pair.client, MIXED, 1);
        SEND(pair.client, MIXED, 2); /* announced, and then not to be had that way */
        SEND(pair.client, MIXED, 3);
        host_fault_refuse_reads(EPERM);
        RECEIVE(pair.server, pair.client, MIXED, 2);
        RECEIVE(pair.server, pair.client, MIXED, 3);
        SEND(pair.client, MIXED, 4);
        RECEIVE(pair.server, pair.client, MIXED, 4);
        TRY(loopback_settle(pair.client, pair.server, &t->error));
        spw_figures figures = torture_figures(t);
        assert_int_equal(figures.host_refusals, 1);
        assert_int_equal(loopback_news(NULL), 1);
        uint64_t one = MIXED[1] + MIXED[4] + MIXED[5];
        assert_int_equal(figures.host_bytes_by_address, one);
        assert_int_equal(uses_descriptors ? figures.host_bytes_by_descriptor
                                          : figures.host_bytes_by_stream,
                         (uses_descriptors ? 3 : 2) * one);
    end:
        host_fault_refuse_reads(0);
        loopback_close(&pair);
        assert_int_equal(torture_teardown(&inner), 0);
    }
}

static void memfds_are_refused_as_well(void **state)
{
    torture *t = *state;
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.uses_descriptors = true;
    loopback pair;
    host_fault_refuse_reads(EPERM);
    host_fault_refuse_memfds(EMFILE);
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        RECEIVE(pair.server, pair.client, MIXED, i);
        TRY(loopback_settle(pair.client, pair.server, &t->error));
    }
    assert_int_equal(torture_figures(t).host_refusals, 2);
    assert_int_equal(loopback_news(NULL), 2);
    assert_int_equal(torture_figures(t).host_bytes_by_descriptor, 0);
    assert_int_equal(torture_figures(t).host_bytes_by_stream,
                     MIXED[1] + MIXED[4] + MIXED[5]);
end:
    host_fault_refuse_reads(0);
    host_fault_refuse_memfds(0);
    loopback_close(&pair);
}

static void a_descriptor_gets_lost(void **state)
{
    torture *t = *state;
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.best = SPW_HOST_BY_DESCRIPTOR;
    options.uses_descriptors = true;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, MIXED, 1);
    RECEIVE(pair.server, pair.client, MIXED, 1);
    assert_int_equal(torture_figures(t).host_refusals, 0); /* as it was wanted */
    host_fault_lose_descriptor();
    for (unsigned i = 2; i < 5; i++) {
        SEND(pair.client, MIXED, i);
        RECEIVE(pair.server, pair.client, MIXED, i);
    }
    assert_int_equal(torture_figures(t).host_refusals, 1);
end:
    loopback_close(&pair);
}

static void somebody_else_is_there(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    host_fault_set_user(12345);
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, MIXED, 1);
    RECEIVE(pair.server, pair.client, MIXED, 1);
    assert_int_equal(torture_figures(t).host_refusals, 1);
    assert_int_equal(torture_figures(t).host_bytes_by_address, 0);
end:
    host_fault_set_user((uid_t)-1);
    loopback_close(&pair);
}

static void whatever_is_missing_it_goes_by_the_stream(void **state)
{
    static const struct {
        const char *call;
        unsigned news;
    } MISSING[] = {
        {"unix_connect", 1},  {"random", 1}, /* of the secret */
        {"peer_identify", 1}, {"peer_hold", 1},
        {"unix_accept", 1}, /* nobody is let in, and nobody spins */
    };
    for (size_t i = 0; i < COUNT_OF(MISSING); i++) {
        void *inner;
        (void)state;
        torture_setup(&inner);
        torture *t = inner;
        loopback pair;
        TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
        io_fault_arm_call(MISSING[i].call, 1, EMFILE);
        SEND(pair.client, LARGE, 1);
        RECEIVE(pair.server, pair.client, LARGE, 1);
        while (loopback_news(NULL) < MISSING[i].news)
            TRY(loopback_step(pair.client, pair.server, &t->error));
        for (unsigned seed = 2; seed < 5; seed++) {
            SEND(pair.client, MIXED, seed);
            RECEIVE(pair.server, pair.client, MIXED, seed);
        }
        const char *news;
        assert_int_equal(loopback_news(&news), MISSING[i].news);
        assert_non_null(strstr(news, strerror(EMFILE)));
        assert_int_equal(torture_figures(t).host_refusals, 1);
        assert_int_equal(torture_figures(t).host_bytes_by_address, 0);
        struct pollfd watched = {spw_meetings_descriptor(pair.meetings), POLLIN, 0};
        assert_int_equal(poll(&watched, 1, 0), 0);
    end:
        loopback_close(&pair);
        assert_int_equal(torture_teardown(&inner), 0);
    }
}

static void without_threads_nothing_is_announced(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    io_fault_arm_call("start_thread", 1, 0);
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        assert_false(is_away(pair.client));
        RECEIVE(pair.server, pair.client, MIXED, i);
    }
    assert_int_equal(torture_figures(t).host_bytes_sent, 0);
    assert_int_equal(torture_figures(t).host_refusals, 1);
end:
    loopback_close(&pair);
}

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

/* ---- ends ---- */

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
            assert_nothing_charged(t);
        }
        if (pair.client != NULL)
            spw_connection_close(pair.client);
        spw_connection_close(pair.server);
        assert_int_equal(released, MESSAGES);
        assert_nothing_charged(t);
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
    assert_nothing_charged(t);
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
        assert_nothing_charged(t);
        raw_pair_close(&pair);
        spw_meetings_free(meetings);
        private_place_close(&place);
        wire_clear(&frame);
        wire_clear(&wire);
    }
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

/* ---- two processes ---- */

enum { ROUNDS = 6 };

/* Send back whatever comes, until the other side says that it is done. */
static void play_echo(torture *t, host_side *side)
{
    host_side_meet(t, side, false);
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw_payload *message;
        uint64_t bytes;
        assert_ok(loopback_receive(side->connection, NULL, &message, NULL));
        assert_ok(spw_connection_send(side->connection, message, &bytes, NULL));
    }
    assert_ok(loopback_settle(side->connection, NULL, NULL));
    host_side_await(side);
}

static void between_two_processes(torture *t, const spw_meetings_options *options)
{
    static const size_t MANY[] = {5, MANY_BYTES, 300000, 17, 1 << 20};
    host_peer peer;
    host_peer_start(t, "echo", options, 2, &peer);
    spw_connection *connection = peer.side.connection;
    host_side_meet(t, &peer.side, true);
    /* All at once: it sends back while it receives. */
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_ok(i % 3 == 0   ? loopback_send_made(t, connection, MANY, 5, i)
                  : i % 3 == 1 ? loopback_send_made(t, connection, SMALL, 3, i)
                               : loopback_send_made(t, connection, MIXED, 7, i));
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_ok(i % 3 == 0 ? loopback_receive_made(t, connection, NULL, MANY, 5, i)
                  : i % 3 == 1
                      ? loopback_receive_made(t, connection, NULL, SMALL, 3, i)
                      : loopback_receive_made(t, connection, NULL, MIXED, 7, i));
    assert_ok(loopback_settle(connection, NULL, NULL));
    host_side_tell(&peer.side);
    host_peer_end(&peer);
}

static void data_between_two_processes_by_address(void **state)
{
    between_two_processes(*state, NULL);
    spw_figures figures = torture_figures(*state);
    assert_int_equal(figures.host_refusals, 0);
    assert_true(figures.host_bytes_by_address > 2 * (uint64_t)MANY_BYTES);
    assert_int_equal(figures.host_bytes_by_address, figures.host_bytes_sent);
    assert_in_range(figures.bytes_received - figures.host_bytes_by_address, 1, 1 << 20);
}

static void data_between_two_processes_by_descriptor(void **state)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.best = SPW_HOST_BY_DESCRIPTOR;
    options.uses_descriptors = true;
    between_two_processes(*state, &options);
    spw_figures figures = torture_figures(*state);
    assert_int_equal(figures.host_bytes_by_address, 0);
    assert_int_equal(figures.host_bytes_by_descriptor, figures.host_bytes_sent);
}

static void data_between_two_processes_by_stream(void **state)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.best = SPW_HOST_BY_STREAM;
    between_two_processes(*state, &options);
    assert_int_equal(torture_figures(*state).host_bytes_sent, 0);
}

/* Send more messages than a socket has room for receipts, and hear of none before all
 * have been taken. */
static void play_stops(torture *t, host_side *side)
{
    enum { MESSAGES = 1000 };
    static char body[262144];
    host_side_meet(t, side, false);
    for (unsigned i = 0; i < MESSAGES; i++) {
        spw_payload *payload;
        spw_slice slice = {.size = sizeof body, .plain_size = sizeof body};
        uint64_t bytes;
        assert_ok(spw_payload_create(t->context, 1, &payload, NULL));
        assert_ok(spw_buffer_create(t->context, sizeof body, SPW_CHARGE_HELD,
                                    &slice.buffer, NULL));
        memset(spw_buffer_data(slice.buffer), (int)i, sizeof body);
        assert_ok(spw_payload_append(payload, &slice, NULL));
        assert_ok(spw_connection_send(side->connection, payload, &bytes, NULL));
        /* The thread that would hear it is called home, and stays there. */
        spw__connection_call_home(side->connection, &side->connection->announcing);
    }
    assert_int_equal(torture_figures(t).host_bytes_sent, MESSAGES * sizeof body);
    while (spw__send_queue_unsent(&side->connection->queue) > 0)
        assert_ok(loopback_step(side->connection, NULL, NULL));
    host_side_await(side);
    spw_connection_reap(side->connection);
    assert_ok(loopback_settle(side->connection, NULL, NULL));
    assert_int_equal(spw_connection_queued_bytes(side->connection), 0);
    host_side_tell(side);
}

/* The same, each of more than the owner's thread brings. */
static void play_stops_large(torture *t, host_side *side)
{
    host_side_meet(t, side, false);
    for (unsigned i = 0; i < STOPPED_MESSAGES; i++) {
        assert_ok(
            loopback_send_made(t, side->connection, STOPPED, COUNT_OF(STOPPED), i));
        spw__connection_call_home(side->connection, &side->connection->announcing);
    }
    assert_int_equal(torture_figures(t).host_bytes_sent, STOPPED_MESSAGES * STOPPED[0]);
    host_side_await(side);
    spw_connection_reap(side->connection);
    assert_ok(loopback_settle(side->connection, NULL, NULL));
    assert_int_equal(spw_connection_queued_bytes(side->connection), 0);
    host_side_tell(side);
}

/* Announce something, and wait to be killed. */
static void play_victim(torture *t, host_side *side)
{
    static const size_t MANY[] = {MANY_BYTES};
    host_side_meet(t, side, false);
    assert_ok(loopback_send_made(t, side->connection, MANY, 1, 1));
    host_side_tell(side);
    host_side_await(side);
}

static void kill_it(void *argument)
{
    host_peer_kill(argument);
}

static void the_peer_is_killed_while_it_is_read(void **state)
{
    torture *t = *state;
    for (int is_before = 0; is_before < 2; is_before++) {
        host_peer peer;
        spw_payload *none;
        host_peer_start(t, "victim", NULL, 2, &peer);
        host_side_meet(t, &peer.side, true);
        host_side_await(&peer.side);
        if (is_before)
            host_peer_kill(&peer);
        else
            host_fault_after_read(kill_it, &peer);
        spw_status status = loopback_receive(peer.side.connection, NULL, &none, NULL);
        /* By the stream comes a reset, if it left something unread. */
        if (!is_before)
            assert_int_equal(status, SPW_STATUS_TRUNCATED);
        else
            assert_true(status == SPW_STATUS_TRUNCATED || status == SPW_STATUS_RESET);
        assert_nothing_charged(t);
        host_peer_close(&peer);
    }
}

/* Say hello and read nothing more. */
static void play_deaf(torture *t, host_side *side)
{
    host_side_meet(t, side, false);
    host_side_await(side);
}

static void the_peer_is_killed_before_it_has_read(void **state)
{
    static char data[1 << 20];
    torture *t = *state;
    host_peer peer;
    unsigned released = 0;
    uint64_t bytes;
    host_peer_start(t, "deaf", NULL, 2, &peer);
    spw_connection *connection = peer.side.connection;
    host_side_meet(t, &peer.side, true);
    for (int i = 0; i < 3; i++) {
        spw_payload *payload;
        assert_ok(
            payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
        assert_ok(spw_connection_send(connection, payload, &bytes, NULL));
    }
    while (spw__send_queue_unsent(&connection->queue) > 0)
        assert_ok(loopback_step(connection, NULL, NULL));
    assert_int_equal(released, 0); /* it may still read them */
    assert_int_equal(spw_connection_queued_bytes(connection), 3 * sizeof data);
    host_peer_kill(&peer);
    while (spw_connection_is_open(connection))
        assert_ok(loopback_step(connection, NULL, NULL));
    spw_connection_reap(connection);
    assert_int_equal(released, 3);
    assert_nothing_charged(t);
    host_peer_close(&peer);
}

int main(int argc, char **argv)
{
    static const host_role ROLES[] = {{"echo", play_echo},
                                      {"stops", play_stops},
                                      {"stops large", play_stops_large},
                                      {"victim", play_victim},
                                      {"deaf", play_deaf}};
    const struct CMUnitTest tests[] = {
        SCENARIO(large_bodies_go_by_address),
        SCENARIO(many_messages_both_ways),
        SCENARIO(an_idle_connection_has_no_side_channel),
        SCENARIO(the_first_large_body_is_under_way_when_they_meet),
        SCENARIO(a_large_piece_is_read_by_two_threads),
        SCENARIO(two_readers_find_all_threads_busy),
        SCENARIO(who_announced_hears_that_all_is_taken),
        SCENARIO(a_receipt_that_found_no_room_is_said_later),
        SCENARIO(a_receipt_waits_for_room_as_long_as_it_takes),
        SCENARIO(a_stopped_sender_is_read_to_the_end),
        SCENARIO(reading_is_refused_when_they_meet),
        SCENARIO(reading_is_refused_later_on),
        SCENARIO(memfds_are_refused_as_well),
        SCENARIO(a_descriptor_gets_lost),
        SCENARIO(somebody_else_is_there),
        SCENARIO(whatever_is_missing_it_goes_by_the_stream),
        SCENARIO(without_threads_nothing_is_announced),
        SCENARIO(who_cannot_hear_what_is_taken_ends),
        SCENARIO(announced_bodies_are_released_once),
        SCENARIO(a_closed_receiver_leaves_a_body_half_read),
        SCENARIO(a_sender_that_lets_go_is_not_believed),
        SCENARIO(references_of_a_peer_that_has_not_met_us),
        SCENARIO(who_may_meet),
        SCENARIO(announced_bodies_count_in_the_budget),
        SCENARIO(a_forked_child_announces_nothing),
        SCENARIO(data_between_two_processes_by_address),
        SCENARIO(data_between_two_processes_by_descriptor),
        SCENARIO(data_between_two_processes_by_stream),
        SCENARIO(the_peer_is_killed_while_it_is_read),
        SCENARIO(the_peer_is_killed_before_it_has_read),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(messages_with_and_without_references_in_a_row),
        SCENARIO(both_directions_at_once),
        SCENARIO(by_descriptor_where_memory_cannot_be_read),
        SCENARIO(closed_with_bodies_announced),
    };
    int code;
    if (host_peer_is_one(argc, argv, ROLES, COUNT_OF(ROLES), &code))
        return code;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("bodies by reference", scenarios);
}
