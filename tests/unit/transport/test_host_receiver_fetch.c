/* How bodies come, by each way and from one way to the next. */
#include <errno.h>
#include <string.h>

#include "host_fault.h"
#include "host_pair.h"
#include "io_fault.h"
#include "payloads.h"

static void fault_nothing(void)
{
    host_fault_set_user((uid_t)-1);
    host_fault_refuse_reads(0);
    host_fault_refuse_memfds(0);
    host_fault_refuse_maps(0);
    host_fault_after_read(NULL, NULL);
}

/* Three messages that are all announced before the first is read. */
static spw_status exchange(host_pair *pair, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    for (unsigned i = 0; i < 3 && status == SPW_STATUS_OK; i++)
        status = host_pair_send_made(pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, i, error);
    for (unsigned i = 0; i < 3 && status == SPW_STATUS_OK; i++)
        status =
            host_pair_receive_made(pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, i, error);
    if (status == SPW_STATUS_OK)
        status = host_pair_settle(pair, error);
    return status;
}

static void bodies_are_read_from_the_senders_memory(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, &t->error));
    TRY(exchange(&pair, &t->error));
end:
    host_pair_close(&pair);
}

static void each_way_brings_the_same(void **state)
{
    torture *t = *state;
    static const size_t LIMITS[] = {0, 1, 999, 4096, 70000};
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_STREAM; way++)
        for (size_t i = 0; i < COUNT_OF(LIMITS); i++) {
            if (LIMITS[i] == 1 && way == SPW__HOST_BY_ADDRESS)
                continue; /* 200,000 system calls */
            host_pair pair = {0};
            assert_ok(host_pair_open(t->context, true, &pair, NULL));
            assert_ok(host_pair_meet(&pair, way, NULL));
            pair.limit = LIMITS[i];
            assert_ok(exchange(&pair, NULL));
            assert_int_equal(spw__host_receiver_way(pair.receiver), way);
            assert_int_equal(spw__host_sender_way(pair.sender), way);
            /* Without references nothing comes by the side channel. */
            assert_int_equal(host_pair_bytes_by(&pair, way),
                             way == SPW__HOST_BY_STREAM ? 0
                                                        : 3 * HOST_PAIR_BY_REFERENCE);
            host_pair_close(&pair);
        }
}

static void what_is_passed_is_not_copied(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    spw_payload *payload;
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
    assert_ok(host_pair_send_made(&pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 5, NULL));
    assert_ok(host_pair_receive(&pair, &payload, NULL));
    payload_assert(payload, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 5);
    assert_int_equal(io_fault_mapped_bytes(), HOST_PAIR_ALONE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_IN_FLIGHT), 0);
    assert_true(torture_charged(t, SPW_CHARGE_HELD) >=
                2 * HOST_PAIR_ALONE); /* both ends */
    const spw_slice *slice = &spw_payload_slices(payload)[5];
    assert_true(spw_buffer_is_writeable(slice->buffer));
    memset(spw_slice_data(slice), 0, slice->size); /* ours alone */
    host_pair_close(&pair);
    spw_payload_free(payload);
    assert_int_equal(io_fault_mapped_bytes(), 0);
}

/* Shards have to lie side by side, which what is passed does not. */
static void shards_that_are_passed_lie_side_by_side(void **state)
{
    torture *t = *state;
    static char memory[3][7000];
    wire_bytes header = {0};
    unsigned released = 0;
    wire_put_sub_header(&header, &(wire_value){(size_t[]){2, 1}, 2, NULL, 3});
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_DESCRIPTOR;
         way++) {
        host_pair pair = {0};
        spw_payload *payload, *one;
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, way, NULL));
        pair.limit = 3000;
        assert_ok(spw_payload_create(t->context, 5, &payload, NULL));
        void *const parts[] = {header.bytes, header.bytes, memory[0], memory[1],
                               memory[2]};
        const size_t sizes[] = {header.size, header.size, 7000, 7000, 7000};
        for (int i = 0; i < 5; i++) {
            if (i >= 2)
                memset(memory[i - 2], 'a' + i, 7000);
            assert_ok(
                payload_wrap(t->context, parts[i], sizes[i], &released, &one, NULL));
            spw_slice slice = spw_payload_slices(one)[0];
            spw_buffer_ref(slice.buffer);
            assert_ok(spw_payload_append(payload, &slice, NULL));
            spw_payload_free(one);
        }
        assert_ok(host_pair_send(&pair, payload, NULL));
        assert_ok(host_pair_receive(&pair, &payload, NULL));
        const spw_slice *slices = spw_payload_slices(payload);
        assert_ptr_equal(slices[2].buffer, slices[3].buffer);
        assert_int_equal(spw_buffer_size(slices[2].buffer), 14000);
        for (int i = 2; i < 5; i++)
            assert_memory_equal(spw_slice_data(&slices[i]), memory[i - 2], 7000);
        /* The third is no shard. */
        assert_int_equal(io_fault_mapped_bytes(),
                         way == SPW__HOST_BY_DESCRIPTOR ? 7000 : 0);
        spw_payload_free(payload);
        host_pair_close(&pair);
    }
    wire_clear(&header);
}

/* Reading is refused after some of a body: the rest, and all that was announced, comes
 * by the next way. */
static void a_way_that_is_refused_is_left_in_the_middle(void **state)
{
    torture *t = *state;
    static const int ERRORS[] = {EPERM, ENOSYS, ESRCH, EFAULT, ENOMEM, EINVAL};
    for (size_t i = 0; i < COUNT_OF(ERRORS); i++)
        for (int uses_descriptors = 0; uses_descriptors < 2; uses_descriptors++)
            for (uint64_t reads = 1; reads < 8; reads++) {
                host_pair pair = {0};
                assert_ok(host_pair_open(t->context, uses_descriptors, &pair, NULL));
                assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
                pair.limit = 4000;
                io_fault_arm_call("peer_read", reads, ERRORS[i]);
                assert_ok(exchange(&pair, NULL));
                io_fault_arm(IO_FAULT_NONE, 0, 0);
                assert_int_equal(spw__host_receiver_way(pair.receiver),
                                 SPW__HOST_BY_DESCRIPTOR);
                assert_int_equal(spw__host_receiver_reason(pair.receiver)->os_errno,
                                 ERRORS[i]);
                assert_int_equal(spw__host_sender_way(pair.sender),
                                 uses_descriptors ? SPW__HOST_BY_DESCRIPTOR
                                                  : SPW__HOST_BY_STREAM);
                assert_int_equal(spw__host_sender_reason(pair.sender)->os_errno,
                                 ERRORS[i]);
                spw__host_way rest =
                    uses_descriptors ? SPW__HOST_BY_DESCRIPTOR : SPW__HOST_BY_STREAM;
                assert_true(host_pair_bytes_by(&pair, SPW__HOST_BY_ADDRESS) < 8 * 4000);
                assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_ADDRESS) +
                                     host_pair_bytes_by(&pair, rest),
                                 3 * HOST_PAIR_BY_REFERENCE);
                /* And what comes after that. */
                assert_ok(exchange(&pair, NULL));
                host_pair_close(&pair);
            }
}

static void a_sender_without_memfds_gives_bytes(void **state)
{
    torture *t = *state;
    static const char *const CALLS[] = {"shared_create", "shared_fill", "shared_seal"};
    for (size_t i = 0; i < COUNT_OF(CALLS); i++)
        for (uint64_t n = 1; n < 5; n++) {
            host_pair pair = {0};
            assert_ok(host_pair_open(t->context, true, &pair, NULL));
            assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
            io_fault_arm_call(CALLS[i], n, ENOSPC);
            assert_ok(exchange(&pair, NULL));
            io_fault_arm(IO_FAULT_NONE, 0, 0);
            assert_int_equal(spw__host_sender_way(pair.sender), SPW__HOST_BY_STREAM);
            assert_int_equal(spw__host_sender_reason(pair.sender)->os_errno, ENOSPC);
            assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_DESCRIPTOR) +
                                 host_pair_bytes_by(&pair, SPW__HOST_BY_STREAM),
                             3 * HOST_PAIR_BY_REFERENCE);
            assert_true(host_pair_bytes_by(&pair, SPW__HOST_BY_STREAM) > 0);
            assert_ok(exchange(&pair, NULL));
            host_pair_close(&pair);
        }
}

/* What is already on the way by descriptor comes again as bytes. */
static void a_lost_descriptor_comes_as_bytes(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
    host_fault_lose_descriptor();
    assert_ok(exchange(&pair, NULL));
    assert_int_equal(spw__host_receiver_way(pair.receiver), SPW__HOST_BY_STREAM);
    assert_int_equal(spw__host_sender_way(pair.sender), SPW__HOST_BY_STREAM);
    assert_int_equal(spw__host_receiver_reason(pair.receiver)->os_errno, EMFILE);
    assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_STREAM),
                     3 * HOST_PAIR_BY_REFERENCE);
    host_pair_close(&pair);
}

/* A sender that gave up on descriptors by itself hears the same afterwards. */
static void both_may_give_up_on_descriptors(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
    io_fault_arm_call("shared_create", 2, EMFILE);
    host_fault_lose_descriptor();
    assert_ok(exchange(&pair, NULL));
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_int_equal(spw__host_receiver_way(pair.receiver), SPW__HOST_BY_STREAM);
    assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_STREAM),
                     3 * HOST_PAIR_BY_REFERENCE);
    host_pair_close(&pair);
}

static void what_cannot_be_mapped_is_read(void **state)
{
    torture *t = *state;
    for (int is_read_refused = 0; is_read_refused < 2; is_read_refused++) {
        host_pair pair = {0};
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
        host_fault_refuse_maps(ENOMEM);
        pair.limit = 3000;
        if (is_read_refused)
            io_fault_arm_call("shared_read", 2, EIO);
        assert_ok(exchange(&pair, NULL));
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        fault_nothing();
        assert_int_equal(spw__host_receiver_way(pair.receiver),
                         is_read_refused ? SPW__HOST_BY_STREAM
                                         : SPW__HOST_BY_DESCRIPTOR);
        assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_DESCRIPTOR),
                         is_read_refused ? 3000 : 3 * HOST_PAIR_BY_REFERENCE);
        host_pair_close(&pair);
    }
}

/* The region that was reserved is charged already; there is no room for the mapping
 * beside it. */
static void what_the_budget_does_not_allow_to_map_is_read(void **state)
{
    torture *t = *state;
    static const size_t LARGE[] = {20, 100000};
    torture_limit(t, 350000);
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, &t->error));
    /* 100,020 held by the sender's buffers and 100,000 queued. */
    TRY(host_pair_send_made(&pair, LARGE, 2, 1, &t->error));
    spw_payload *payload;
    TRY(host_pair_receive(&pair, &payload, &t->error));
    payload_assert(payload, LARGE, 2, 1);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    spw_payload_free(payload);
end:
    host_pair_close(&pair);
}

static void the_sender_hears_once_a_message(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
    assert_ok(host_pair_send_made(&pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 1, NULL));
    assert_ok(host_pair_send_made(&pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 2, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(pair.sender),
                     2 * HOST_PAIR_BY_REFERENCE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 2 * HOST_PAIR_BY_REFERENCE);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_ok(host_pair_receive_made(&pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 1, NULL));
    assert_int_equal(io_fault_calls_of("unix_send"), 1);
    assert_ok(spw__host_sender_drive(pair.sender, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(pair.sender),
                     HOST_PAIR_BY_REFERENCE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), HOST_PAIR_BY_REFERENCE);
    host_pair_close(&pair);
}

/* Within a message too, where a sender waits for it whose window is full. */
static void a_long_message_is_heard_of_on_the_way(void **state)
{
    torture *t = *state;
    enum { BODIES = 6, SIZE = 20 << 20 };
    size_t sizes[1 + BODIES] = {20};
    for (int i = 1; i <= BODIES; i++)
        sizes[i] = SIZE;
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_DESCRIPTOR;
         way++) {
        host_pair pair = {0};
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, way, NULL));
        assert_ok(host_pair_send_made(&pair, sizes, 1 + BODIES, 1, NULL));
        if (way == SPW__HOST_BY_DESCRIPTOR) {
            /* As much as the window takes, and nobody waits in vain. */
            while (spw__host_sender_interest(pair.sender) & SPW__HOST_WRITE)
                assert_ok(spw__host_sender_drive(pair.sender, NULL));
            assert_int_equal(io_fault_calls_of("shared_seal"), 4);
        }
        uint64_t before = io_fault_calls_of("unix_send");
        assert_ok(host_pair_receive_made(&pair, sizes, 1 + BODIES, 1, NULL));
        if (way == SPW__HOST_BY_ADDRESS)
            assert_int_equal(io_fault_calls_of("unix_send") - before, 1);
        assert_ok(host_pair_settle(&pair, NULL));
        host_pair_close(&pair);
    }
}

static void without_a_body_there_is_nothing_to_fetch(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
    assert_ok(spw__host_receiver_fetch(pair.receiver, pair.reader, 1, NULL, NULL));
    host_pair_close(&pair);
}

static void bodies_are_passed(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, &t->error));
    TRY(exchange(&pair, &t->error));
end:
    host_pair_close(&pair);
}

static void bodies_come_as_bytes(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, false, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, &t->error));
    host_fault_refuse_reads(EPERM);
    TRY(exchange(&pair, &t->error));
end:
    fault_nothing();
    host_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(each_way_brings_the_same),
        SCENARIO(what_is_passed_is_not_copied),
        SCENARIO(shards_that_are_passed_lie_side_by_side),
        SCENARIO(a_way_that_is_refused_is_left_in_the_middle),
        SCENARIO(a_sender_without_memfds_gives_bytes),
        SCENARIO(a_lost_descriptor_comes_as_bytes),
        SCENARIO(both_may_give_up_on_descriptors),
        SCENARIO(what_cannot_be_mapped_is_read),
        SCENARIO(what_the_budget_does_not_allow_to_map_is_read),
        SCENARIO(the_sender_hears_once_a_message),
        SCENARIO(a_long_message_is_heard_of_on_the_way),
        SCENARIO(without_a_body_there_is_nothing_to_fetch),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(bodies_are_read_from_the_senders_memory),
        SCENARIO(bodies_are_passed),
        SCENARIO(bodies_come_as_bytes),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("host_receiver_fetch", scenarios);
}
