/* What no message can begin with is refused before memory is taken for it, and what may
 * not be let in yet is held. */
#include <string.h>

#include "reader_fixture.h"

static void impossible_heads_are_refused(void **state)
{
    reader_fixture *at = *state;
    wire_begin(&at->wire, 8, 0);
    reader_refuses(at, SPW_STATUS_PROTOCOL, "no frames");
    for (uint64_t first_segment = 0; first_segment < 16; first_segment++) {
        wire_begin(&at->wire, first_segment, 1);
        reader_refuses(at, SPW_STATUS_PROTOCOL, "cannot hold the lengths of 1 frames");
    }
    wire_begin(&at->wire, 1000, UINT64_MAX);
    reader_refuses(at, SPW_STATUS_PROTOCOL, "cannot hold the lengths");
    wire_begin(&at->wire, 1000, UINT64_C(1) << 61); /* 8 * frames wraps to 0 */
    reader_refuses(at, SPW_STATUS_PROTOCOL, "cannot hold the lengths");
    wire_begin(&at->wire, UINT64_MAX, (UINT64_C(1) << 24) + 1);
    reader_refuses(at, SPW_STATUS_LIMIT_EXCEEDED, "frames_per_message");
    wire_begin(&at->wire, UINT64_MAX, UINT64_MAX / 8 - 1);
    reader_refuses(at, SPW_STATUS_LIMIT_EXCEEDED, "frames_per_message");
}

static void other_protocols_are_told_apart(void **state)
{
    reader_fixture *at = *state;
    static const char *const OTHERS[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x01\x02\x03\x04\x05",
        "SSH-2.0-OpenSSH_9.2\r\n",
    };
    for (size_t i = 0; i < 3; i++) {
        wire_clear(&at->wire);
        wire_put(&at->wire, OTHERS[i], 16);
        spw_error error;
        size_t consumed;
        spw__message_reader *reader;
        assert_ok(spw__message_reader_create(
            at->counted.context, spw_sink_heap(at->counted.context), &reader, NULL));
        assert_int_not_equal(
            spw__message_reader_feed(reader, at->wire.bytes, 16, &consumed, &error),
            SPW_STATUS_OK);
        assert_non_null(strstr(error.message, "is the peer a Dask process?"));
        spw__message_reader_free(reader);
    }
}

/* A table of two lengths. */
static void put_table(wire_bytes *wire, uint64_t first_bytes, uint64_t first,
                      uint64_t second)
{
    wire_begin(wire, 8 + 16 + first_bytes, 2);
    wire_put_u64(wire, first);
    wire_put_u64(wire, second);
}

static void impossible_tables_are_refused(void **state)
{
    reader_fixture *at = *state;
    put_table(&at->wire, 0, UINT64_MAX, 1); /* the sum wraps to 0 */
    reader_refuses(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
    put_table(&at->wire, 0, 1, UINT64_MAX);
    reader_refuses(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
    put_table(&at->wire, 0, UINT64_C(1) << 44, 1);
    reader_refuses(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
    static const uint64_t INSIDE[] = {1, 4, 6, 11, 13, UINT64_MAX - 24};
    for (size_t i = 0; i < sizeof INSIDE / sizeof INSIDE[0]; i++) {
        put_table(&at->wire, INSIDE[i], 5, 7);
        reader_refuses(at, SPW_STATUS_PROTOCOL, "ends inside a frame");
    }
    assert_int_equal(at->choosy.asked, 0);
}

static void a_long_table_takes_memory_as_it_comes(void **state)
{
    reader_fixture *at = *state;
    wire_begin(&at->wire, UINT64_C(1) << 40, 1 << 24);
    assert_ok(reader_feed(at->reader, at->wire.bytes, at->wire.size, SIZE_MAX, NULL));
    uint64_t before = at->counted.allocator.live_bytes;
    static const uint8_t NOTHING[8000] = {0};
    assert_ok(reader_feed(at->reader, NOTHING, sizeof NOTHING, 100, NULL));
    assert_in_range(at->counted.allocator.peak_bytes - before, 8000, 24000);
}

static void a_body_over_the_budget_is_refused_before_it_comes(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 100000);
    spw__message_reader *reader;
    assert_ok(spw__message_reader_create(
        counted.context, spw_sink_heap(counted.context), &reader, NULL));
    wire_bytes wire = {0};
    put_table(&wire, 5, 5, 200000);
    wire_put_noise(&wire, 5, 1);
    spw_error error;
    assert_status(reader_feed(reader, wire.bytes, wire.size, SIZE_MAX, &error),
                  LIMIT_EXCEEDED);
    assert_non_null(strstr(error.message, "raise the budget"));
    counted_context_check_uncharged(&counted);
    spw__message_reader_free(reader);
    wire_clear(&wire);
    counted_context_close(&counted);
}

static void large_messages_are_held_before_anything_is_taken(void **state)
{
    reader_fixture *at = *state;
    size_t consumed;
    wire_put_corpus(&at->wire, "message_reader/two_buffers");
    uint64_t size = 0;
    for (uint64_t i = 0; i < wire_number_at(at->wire.bytes + 8); i++)
        size += wire_number_at(at->wire.bytes + 16 + 8 * i);
    for (uint64_t from = size - 1; from <= size + 1; from++) {
        spw__message_reader_hold_from(at->reader, from);
        assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                           &consumed, NULL));
        assert_int_equal(spw__message_reader_is_held(at->reader), from <= size);
        if (from <= size) {
            assert_int_equal(consumed, at->wire.size - size);
            assert_int_equal(spw__message_reader_missing(at->reader), size);
            assert_int_equal(at->choosy.reserved - at->choosy.committed, 0);
            size_t room;
            assert_null(spw__message_reader_direct(at->reader, &room));
            assert_false(spw__message_reader_is_remote(at->reader));
            /* It stays there. */
            assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes + consumed,
                                               (size_t)size, &consumed, NULL));
            assert_int_equal(consumed, 0);
            assert_ok(spw__message_reader_go_on(at->reader, NULL));
            assert_ok(spw__message_reader_feed(at->reader,
                                               at->wire.bytes + at->wire.size - size,
                                               (size_t)size, &consumed, NULL));
        }
        spw_payload_free(reader_take(at->reader, &at->wire));
    }
    /* What is refused once it is let in loses the stream as always. */
    spw__message_reader_hold_from(at->reader, 1);
    assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                       &consumed, NULL));
    counted_context_fail_at(&at->counted, 1);
    assert_status(spw__message_reader_go_on(at->reader, NULL), NO_MEMORY);
    counted_context_fail_at(&at->counted, 0);
    assert_status(
        spw__message_reader_feed(at->reader, at->wire.bytes, 1, &consumed, NULL),
        CLOSED);
}

/* Feeding on after a refusal wrote into a place that the frame had not got. */
static void bug_a_lost_stream_could_be_fed(void **state)
{
    reader_fixture *at = *state;
    wire_put_corpus(&at->wire, "message_reader/two_buffers");
    size_t n = 0;
    bool is_refused = true;
    while (is_refused) {
        spw__message_reader *reader;
        choosy_sink choosy = {.refuse_at = ++n};
        assert_ok(spw__message_reader_create(
            at->counted.context, choosy_sink_over(&choosy, at->counted.context),
            &reader, NULL));
        spw_error error;
        spw_status status =
            n % 2 == 0 ? reader_feed(reader, at->wire.bytes, at->wire.size, 10, &error)
                       : reader_write_direct(reader, at->wire.bytes, at->wire.size, 10,
                                             &error);
        is_refused = choosy.asked == n;
        if (is_refused) {
            assert_status(status, LIMIT_EXCEEDED);
            assert_string_equal(error.message, "refused by the test");
            counted_context_check_uncharged(&at->counted);
            assert_int_equal(choosy.aborted, choosy.reserved);
            size_t consumed = 77, room;
            assert_status(
                spw__message_reader_feed(reader, at->wire.bytes, 10, &consumed, &error),
                CLOSED);
            assert_int_equal(consumed, 77);
            assert_null(spw__message_reader_direct(reader, &room));
        } else {
            assert_ok(status);
            spw_payload_free(reader_take(reader, &at->wire));
        }
        spw__message_reader_free(reader);
    }
    assert_true(n > 3); /* the headers and two buffers, at least */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        READER_TEST(impossible_heads_are_refused),
        READER_TEST(other_protocols_are_told_apart),
        READER_TEST(impossible_tables_are_refused),
        READER_TEST(a_long_table_takes_memory_as_it_comes),
        READER_TEST(a_body_over_the_budget_is_refused_before_it_comes),
        READER_TEST(large_messages_are_held_before_anything_is_taken),
        READER_TEST(bug_a_lost_stream_could_be_fed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
