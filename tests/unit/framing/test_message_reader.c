/* Messages come out of the reader as they went in, however they are cut, and lie where
 * they belong. */
#include "framing/message_reader.h"

#include <stdlib.h>
#include <string.h>

#include "reader_fixture.h"
#include "torture.h"

static void stocks_messages_are_read(void **state)
{
    reader_for_each_message(*state, reader_read_whole);
}

static void cut_everywhere(reader_fixture *at)
{
    if (at->wire.size > 4096)
        return;
    for (size_t cut = 0; cut <= at->wire.size; cut++) {
        const uint8_t *rest = at->wire.bytes + cut;
        assert_ok(reader_feed(at->reader, at->wire.bytes, cut, SIZE_MAX, NULL));
        assert_int_equal(spw__message_reader_is_idle(at->reader), cut == 0);
        assert_int_equal(spw__message_reader_is_whole(at->reader),
                         cut == at->wire.size);
        if (cut % 2 == 0)
            assert_ok(
                reader_feed(at->reader, rest, at->wire.size - cut, SIZE_MAX, NULL));
        else
            assert_ok(reader_write_direct(at->reader, rest, at->wire.size - cut,
                                          SIZE_MAX, NULL));
        spw_payload_free(reader_take(at->reader, &at->wire));
    }
}

static void a_message_may_be_cut_at_each_byte(void **state)
{
    reader_for_each_message(*state, cut_everywhere);
}

static void cut_in_pieces(reader_fixture *at)
{
    static const size_t PIECES[] = {1, 2, 7, 8, 63, 64, 65, 1000};
    for (size_t i = 0; i < sizeof PIECES / sizeof PIECES[0]; i++) {
        assert_ok(
            reader_feed(at->reader, at->wire.bytes, at->wire.size, PIECES[i], NULL));
        spw_payload_free(reader_take(at->reader, &at->wire));
        assert_ok(reader_write_direct(at->reader, at->wire.bytes, at->wire.size,
                                      PIECES[i], NULL));
        spw_payload_free(reader_take(at->reader, &at->wire));
    }
}

static void a_message_may_come_in_any_pieces(void **state)
{
    reader_for_each_message(*state, cut_in_pieces);
}

static void stop_everywhere(reader_fixture *at)
{
    if (at->wire.size > 1000)
        return;
    for (size_t size = 0; size < at->wire.size; size++) {
        spw__message_reader *reader;
        spw_sink sink = choosy_sink_over(&at->choosy, at->counted.context);
        assert_ok(spw__message_reader_create(at->counted.context, sink, &reader, NULL));
        assert_ok(reader_feed(reader, at->wire.bytes, size, SIZE_MAX, NULL));
        assert_false(spw__message_reader_is_whole(reader));
        spw__message_reader_free(reader);
        counted_context_check_uncharged(&at->counted);
    }
}

static void a_reader_may_be_freed_after_each_byte(void **state)
{
    reader_for_each_message(*state, stop_everywhere);
}

static void what_is_missing_is_told(void **state)
{
    reader_fixture *at = *state;
    wire_bytes frames[2] = {{0}};
    wire_put_noise(&frames[0], 100, 1);
    wire_put_noise(&frames[1], 50, 2);
    wire_put_message(&at->wire, frames, 2, 2);
    for (size_t place = 0; place < at->wire.size; place++) {
        size_t left = at->wire.size - place;
        if (place == 0)
            left = 0; /* between two messages nothing is missing */
        else if (place < 16)
            left = 16 - place; /* nothing is known beyond the head */
        else if (place < 32)
            left = 32 - place;
        assert_int_equal(spw__message_reader_missing(at->reader), left);
        assert_ok(reader_feed(at->reader, at->wire.bytes + place, 1, 1, NULL));
    }
    spw_payload_free(reader_take(at->reader, &at->wire));
    wire_clear(&frames[0]);
    wire_clear(&frames[1]);
}

static void messages_follow_each_other(void **state)
{
    reader_fixture *at = *state;
    wire_bytes second = {0};
    wire_put_corpus(&at->wire, "message_reader/one_array");
    wire_put_corpus(&second, "message_reader/sharded");
    wire_bytes both = {0};
    wire_put(&both, at->wire.bytes, at->wire.size);
    wire_put(&both, second.bytes, second.size);
    size_t consumed;
    assert_ok(
        spw__message_reader_feed(at->reader, both.bytes, both.size, &consumed, NULL));
    assert_int_equal(consumed, at->wire.size);
    /* Whole and not taken: no byte of the next is touched. */
    size_t more = 77;
    assert_ok(
        spw__message_reader_feed(at->reader, both.bytes + consumed, 10, &more, NULL));
    assert_int_equal(more, 0);
    spw_payload *first = reader_take(at->reader, &at->wire);
    assert_ok(
        reader_feed(at->reader, both.bytes + consumed, second.size, SIZE_MAX, NULL));
    spw_payload_free(reader_take(at->reader, &second));
    spw_payload_free(first);
    wire_clear(&second);
    wire_clear(&both);
}

static void a_taken_message_is_held_until_it_is_freed(void **state)
{
    reader_fixture *at = *state;
    wire_put_corpus(&at->wire, "message_reader/two_shards");
    assert_ok(
        reader_feed(at->reader, at->wire.bytes, at->wire.size - 1, SIZE_MAX, NULL));
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT),
                     at->choosy.reserved_bytes);
    assert_ok(reader_feed(at->reader, at->wire.bytes + at->wire.size - 1, 1, 1, NULL));
    spw_payload *payload = reader_take(at->reader, &at->wire);
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT), 0);
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_HELD),
                     at->choosy.reserved_bytes);
    spw_payload_free(payload);
    counted_context_check_uncharged(&at->counted);
}

/* Two messages of stock's whose bodies come in frames of the same lengths: a pickled
 * value with one buffer in two shards, and one with two buffers. */
static void lengths_do_not_decide_what_belongs_together(void **state)
{
    reader_fixture *at = *state;
    static const char *const NAMES[] = {"message_reader/two_shards",
                                        "message_reader/two_buffers"};
    for (int buffers = 1; buffers <= 2; buffers++) {
        wire_clear(&at->wire);
        wire_put_corpus(&at->wire, NAMES[buffers - 1]);
        assert_ok(reader_feed(at->reader, at->wire.bytes, at->wire.size, 100, NULL));
        spw_payload *payload = reader_take(at->reader, &at->wire);
        assert_int_equal(spw_payload_count(payload), 5);
        const spw_slice *first = &spw_payload_slices(payload)[3], *second = first + 1;
        assert_int_equal(first->size, 4500);
        assert_int_equal(second->size, 4500);
        assert_int_equal(first->offset, 0);
        assert_int_equal(spw_buffer_size(first->buffer), 9000 / buffers);
        assert_int_equal(first->buffer == second->buffer, buffers == 1);
        assert_int_equal(second->offset, buffers == 1 ? 4500 : 0);
        spw_payload_free(payload);
    }
}

static void direct_spans_the_shards_of_a_buffer(void **state)
{
    reader_fixture *at = *state;
    wire_put_corpus(&at->wire, "message_reader/two_shards");
    size_t body = at->wire.size - 9000;
    assert_ok(reader_feed(at->reader, at->wire.bytes, body, SIZE_MAX, NULL));
    size_t room;
    char *direct = spw__message_reader_direct(at->reader, &room);
    assert_int_equal(room, 9000);
    memcpy(direct, at->wire.bytes + body, 4501);
    assert_ok(spw__message_reader_advance(at->reader, 4501, NULL));
    assert_ptr_equal(spw__message_reader_direct(at->reader, &room), direct + 4501);
    assert_int_equal(room, 4499);
    memcpy(direct + 4501, at->wire.bytes + body + 4501, room);
    assert_ok(spw__message_reader_advance(at->reader, room, NULL));
    spw_payload_free(reader_take(at->reader, &at->wire));
}

static void a_sub_header_may_be_a_large_frame(void **state)
{
    reader_fixture *at = *state;
    wire_bytes frames[4] = {{0}};
    wire_put_noise(&frames[0], 20, 1);
    wire_put_map(&frames[1], 4);
    wire_put_string(&frames[1], "pickled-obj");
    wire_put(&frames[1], "\xc6\x00\x30\x00\x00", 5); /* 3 MiB of binary data */
    wire_put_noise(&frames[1], 3 << 20, 2);
    wire_put_string(&frames[1], "num-sub-frames");
    wire_put_unsigned(&frames[1], 2);
    wire_put_string(&frames[1], "split-num-sub-frames");
    wire_put_array(&frames[1], 1);
    wire_put_unsigned(&frames[1], 2);
    wire_put_string(&frames[1], "split-offsets");
    wire_put_array(&frames[1], 1);
    wire_put_unsigned(&frames[1], 0);
    wire_put_noise(&frames[2], 5000, 3);
    wire_put_noise(&frames[3], 5000, 4);
    wire_put_message(&at->wire, frames, 4, 1);
    assert_ok(
        reader_write_direct(at->reader, at->wire.bytes, at->wire.size, 1 << 20, NULL));
    spw_payload *payload = reader_take(at->reader, &at->wire);
    const spw_slice *slices = spw_payload_slices(payload);
    assert_int_equal(spw_buffer_size(slices[1].buffer), frames[1].size);
    assert_int_equal(spw_buffer_size(slices[2].buffer), 10000);
    assert_ptr_equal(slices[2].buffer, slices[3].buffer);
    spw_payload_free(payload);
    for (int i = 0; i < 4; i++)
        wire_clear(&frames[i]);
}

static void many_tiny_frames_share_few_regions(void **state)
{
    reader_fixture *at = *state;
    enum { FRAMES = 200000 };
    wire_bytes *frames = calloc(FRAMES, sizeof *frames);
    assert_non_null(frames);
    for (unsigned i = 0; i < FRAMES; i++)
        wire_put_noise(&frames[i], i % 4, i);
    wire_put_message(&at->wire, frames, FRAMES, FRAMES);
    uint64_t calls = at->counted.allocator.calls;
    assert_ok(reader_feed(at->reader, at->wire.bytes, at->wire.size, 65536, NULL));
    /* 150,000 places of 64 bytes, 1,024 to a region. */
    assert_in_range(at->choosy.reserved, 146, 148);
    assert_in_range(at->counted.allocator.calls - calls, 1, 400);
    spw_payload *payload = reader_take(at->reader, &at->wire);
    /* Nothing of such a message is kept for the next. */
    spw_payload_free(payload);
    assert_in_range(at->counted.allocator.live_bytes, 1, 65536);
    for (size_t i = 0; i < FRAMES; i++)
        wire_clear(&frames[i]);
    free(frames);
}

static void the_first_segment_may_end_after_any_frame(void **state)
{
    reader_fixture *at = *state;
    wire_bytes frames[3] = {{0}};
    wire_put_noise(&frames[0], 5, 1);
    wire_put_noise(&frames[2], 7, 1);
    for (size_t first_frames = 0; first_frames <= 3; first_frames++) {
        wire_clear(&at->wire);
        wire_put_message(&at->wire, frames, 3, first_frames);
        assert_ok(
            reader_feed(at->reader, at->wire.bytes, at->wire.size, SIZE_MAX, NULL));
        spw_payload_free(reader_take(at->reader, &at->wire));
    }
    wire_clear(&frames[0]);
    wire_clear(&frames[2]);
}

static void a_message_of_empty_frames_ends_with_its_table(void **state)
{
    reader_fixture *at = *state;
    wire_bytes frames[5] = {{0}};
    wire_put_message(&at->wire, frames, 5, 5);
    assert_ok(reader_feed(at->reader, at->wire.bytes, at->wire.size, 3, NULL));
    spw_payload_free(reader_take(at->reader, &at->wire));
}

static void messages_of_three_kinds(void **state)
{
    torture *t = *state;
    static const char *const NAMES[] = {"message_reader/several_arrays",
                                        "message_reader/two_buffers",
                                        "message_reader/lz4_sharded"};
    wire_bytes wire = {0};
    spw__message_reader *reader = NULL;
    TRY(spw__message_reader_create(t->context, spw_sink_heap(t->context), &reader,
                                   &t->error));
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        wire_clear(&wire);
        wire_put_corpus(&wire, NAMES[i]);
        TRY(reader_feed(reader, wire.bytes, wire.size, 50, &t->error));
        spw_payload_free(reader_take(reader, &wire));
    }
end:
    spw__message_reader_free(reader);
    wire_clear(&wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        READER_TEST(stocks_messages_are_read),
        READER_TEST(a_message_may_be_cut_at_each_byte),
        READER_TEST(a_message_may_come_in_any_pieces),
        READER_TEST(a_reader_may_be_freed_after_each_byte),
        READER_TEST(what_is_missing_is_told),
        READER_TEST(messages_follow_each_other),
        READER_TEST(a_taken_message_is_held_until_it_is_freed),
        READER_TEST(lengths_do_not_decide_what_belongs_together),
        READER_TEST(direct_spans_the_shards_of_a_buffer),
        READER_TEST(a_sub_header_may_be_a_large_frame),
        READER_TEST(many_tiny_frames_share_few_regions),
        READER_TEST(the_first_segment_may_end_after_any_frame),
        READER_TEST(a_message_of_empty_frames_ends_with_its_table),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(messages_of_three_kinds),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("message_reader", scenarios);
}
