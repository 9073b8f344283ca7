#include "framing/message_reader.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choosy_sink.h"
#include "context/figures.h"
#include "counted_context.h"
#include "testing.h"
#include "torture.h"
#include "wire_bytes.h"

typedef struct fixture {
    counted_context counted;
    choosy_sink choosy;
    spw__message_reader *reader;
    wire_bytes wire;
} fixture;

static int set_up(void **state)
{
    fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    counted_context_open(&at->counted, 0, 0);
    assert_ok(spw__message_reader_create(
        at->counted.context, choosy_sink_over(&at->choosy, at->counted.context),
        &at->reader, NULL));
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    fixture *at = *state;
    spw__message_reader_free(at->reader);
    assert_int_equal(at->choosy.committed + at->choosy.aborted, at->choosy.reserved);
    counted_context_close(&at->counted);
    wire_clear(&at->wire);
    free(at);
    return 0;
}

static uint64_t number_at(const uint8_t *data)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | data[i];
    return value;
}

/* All of size bytes, in pieces of at most piece. */
static spw_status feed(spw__message_reader *reader, const uint8_t *data, size_t size,
                       size_t piece, spw_error *error)
{
    while (size > 0) {
        size_t step = piece < size ? piece : size, consumed;
        spw_status status =
            spw__message_reader_feed(reader, data, step, &consumed, error);
        if (status != SPW_STATUS_OK)
            return status;
        assert_int_equal(consumed, step);
        data += step;
        size -= step;
    }
    return SPW_STATUS_OK;
}

/* The same, but straight into place wherever the reader gives one. */
static spw_status write_direct(spw__message_reader *reader, const uint8_t *data,
                               size_t size, size_t piece, spw_error *error)
{
    while (size > 0) {
        size_t room, step = piece < size ? piece : size;
        spw_status status;
        void *direct = spw__message_reader_direct(reader, &room);
        if (room == 0) {
            assert_null(direct);
            step = 1;
            status = feed(reader, data, step, 1, error);
        } else {
            step = step < room ? step : room;
            memcpy(direct, data, step);
            status = spw__message_reader_advance(reader, step, error);
        }
        if (status != SPW_STATUS_OK)
            return status;
        data += step;
        size -= step;
    }
    return SPW_STATUS_OK;
}

/* The reader has all of message: take it and compare. */
static spw_payload *take(spw__message_reader *reader, const wire_bytes *message)
{
    assert_true(spw__message_reader_is_whole(reader));
    assert_int_equal(spw__message_reader_missing(reader), 0);
    size_t unused;
    assert_null(spw__message_reader_direct(reader, &unused));
    spw_payload *payload = spw__message_reader_take(reader);
    assert_false(spw__message_reader_is_whole(reader));
    assert_true(spw__message_reader_is_idle(reader));
    size_t frames = (size_t)number_at(message->bytes + 8);
    assert_int_equal(spw_payload_count(payload), frames);
    const uint8_t *body = message->bytes + 16 + 8 * frames;
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < frames; i++) {
        assert_int_equal(slices[i].size, number_at(message->bytes + 16 + 8 * i));
        if (slices[i].size > 0)
            assert_memory_equal(spw_slice_data(&slices[i]), body, slices[i].size);
        body += slices[i].size;
    }
    assert_ptr_equal(body, message->bytes + message->size);
    return payload;
}

/* Calls test for each message of stock's in the corpus. Inputs that a fuzzer found are
 * kept there too, under the names that it gives them: crash-..., timeout-... */
static void for_each_message(fixture *at, void (*test)(fixture *))
{
    DIR *directory = opendir(TEST_CORPUS_DIR "/message_reader");
    assert_non_null(directory);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.' || strchr(entry->d_name, '-') != NULL)
            continue;
        char path[300];
        snprintf(path, sizeof path, "message_reader/%s", entry->d_name);
        wire_clear(&at->wire);
        wire_put_corpus(&at->wire, path);
        test(at);
        count++;
    }
    closedir(directory);
    assert_true(count >= 30);
}

static void read_whole(fixture *at)
{
    assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, SIZE_MAX, NULL));
    spw_payload_free(take(at->reader, &at->wire));
}

static void stocks_messages_are_read(void **state)
{
    for_each_message(*state, read_whole);
}

static void cut_everywhere(fixture *at)
{
    if (at->wire.size > 4096)
        return;
    for (size_t cut = 0; cut <= at->wire.size; cut++) {
        const uint8_t *rest = at->wire.bytes + cut;
        assert_ok(feed(at->reader, at->wire.bytes, cut, SIZE_MAX, NULL));
        assert_int_equal(spw__message_reader_is_idle(at->reader), cut == 0);
        assert_int_equal(spw__message_reader_is_whole(at->reader),
                         cut == at->wire.size);
        if (cut % 2 == 0)
            assert_ok(feed(at->reader, rest, at->wire.size - cut, SIZE_MAX, NULL));
        else
            assert_ok(
                write_direct(at->reader, rest, at->wire.size - cut, SIZE_MAX, NULL));
        spw_payload_free(take(at->reader, &at->wire));
    }
}

static void a_message_may_be_cut_at_each_byte(void **state)
{
    for_each_message(*state, cut_everywhere);
}

static void cut_in_pieces(fixture *at)
{
    static const size_t PIECES[] = {1, 2, 7, 8, 63, 64, 65, 1000};
    for (size_t i = 0; i < sizeof PIECES / sizeof PIECES[0]; i++) {
        assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, PIECES[i], NULL));
        spw_payload_free(take(at->reader, &at->wire));
        assert_ok(
            write_direct(at->reader, at->wire.bytes, at->wire.size, PIECES[i], NULL));
        spw_payload_free(take(at->reader, &at->wire));
    }
}

static void a_message_may_come_in_any_pieces(void **state)
{
    for_each_message(*state, cut_in_pieces);
}

static void stop_everywhere(fixture *at)
{
    if (at->wire.size > 1000)
        return;
    for (size_t size = 0; size < at->wire.size; size++) {
        spw__message_reader *reader;
        spw_sink sink = choosy_sink_over(&at->choosy, at->counted.context);
        assert_ok(spw__message_reader_create(at->counted.context, sink, &reader, NULL));
        assert_ok(feed(reader, at->wire.bytes, size, SIZE_MAX, NULL));
        assert_false(spw__message_reader_is_whole(reader));
        spw__message_reader_free(reader);
        counted_context_check_uncharged(&at->counted);
    }
}

static void a_reader_may_be_freed_after_each_byte(void **state)
{
    for_each_message(*state, stop_everywhere);
}

static void what_is_missing_is_told(void **state)
{
    fixture *at = *state;
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
        assert_ok(feed(at->reader, at->wire.bytes + place, 1, 1, NULL));
    }
    spw_payload_free(take(at->reader, &at->wire));
    wire_clear(&frames[0]);
    wire_clear(&frames[1]);
}

static void messages_follow_each_other(void **state)
{
    fixture *at = *state;
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
    spw_payload *first = take(at->reader, &at->wire);
    assert_ok(feed(at->reader, both.bytes + consumed, second.size, SIZE_MAX, NULL));
    spw_payload_free(take(at->reader, &second));
    spw_payload_free(first);
    wire_clear(&second);
    wire_clear(&both);
}

static void a_taken_message_is_held_until_it_is_freed(void **state)
{
    fixture *at = *state;
    wire_put_corpus(&at->wire, "message_reader/two_shards");
    assert_ok(feed(at->reader, at->wire.bytes, at->wire.size - 1, SIZE_MAX, NULL));
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT),
                     at->choosy.reserved_bytes);
    assert_ok(feed(at->reader, at->wire.bytes + at->wire.size - 1, 1, 1, NULL));
    spw_payload *payload = take(at->reader, &at->wire);
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
    fixture *at = *state;
    static const char *const NAMES[] = {"message_reader/two_shards",
                                        "message_reader/two_buffers"};
    for (int buffers = 1; buffers <= 2; buffers++) {
        wire_clear(&at->wire);
        wire_put_corpus(&at->wire, NAMES[buffers - 1]);
        assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, 100, NULL));
        spw_payload *payload = take(at->reader, &at->wire);
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
    fixture *at = *state;
    wire_put_corpus(&at->wire, "message_reader/two_shards");
    size_t body = at->wire.size - 9000;
    assert_ok(feed(at->reader, at->wire.bytes, body, SIZE_MAX, NULL));
    size_t room;
    char *direct = spw__message_reader_direct(at->reader, &room);
    assert_int_equal(room, 9000);
    memcpy(direct, at->wire.bytes + body, 4501);
    assert_ok(spw__message_reader_advance(at->reader, 4501, NULL));
    assert_ptr_equal(spw__message_reader_direct(at->reader, &room), direct + 4501);
    assert_int_equal(room, 4499);
    memcpy(direct + 4501, at->wire.bytes + body + 4501, room);
    assert_ok(spw__message_reader_advance(at->reader, room, NULL));
    spw_payload_free(take(at->reader, &at->wire));
}

static void a_sub_header_may_be_a_large_frame(void **state)
{
    fixture *at = *state;
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
    assert_ok(write_direct(at->reader, at->wire.bytes, at->wire.size, 1 << 20, NULL));
    spw_payload *payload = take(at->reader, &at->wire);
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
    fixture *at = *state;
    enum { FRAMES = 200000 };
    wire_bytes *frames = calloc(FRAMES, sizeof *frames);
    assert_non_null(frames);
    for (unsigned i = 0; i < FRAMES; i++)
        wire_put_noise(&frames[i], i % 4, i);
    wire_put_message(&at->wire, frames, FRAMES, FRAMES);
    uint64_t calls = at->counted.allocator.calls;
    assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, 65536, NULL));
    /* 150,000 places of 64 bytes, 1,024 to a region. */
    assert_in_range(at->choosy.reserved, 146, 148);
    assert_in_range(at->counted.allocator.calls - calls, 1, 400);
    spw_payload *payload = take(at->reader, &at->wire);
    /* Nothing of such a message is kept for the next. */
    spw_payload_free(payload);
    assert_in_range(at->counted.allocator.live_bytes, 1, 65536);
    for (size_t i = 0; i < FRAMES; i++)
        wire_clear(&frames[i]);
    free(frames);
}

static void put_head(wire_bytes *wire, uint64_t first_segment, uint64_t frames)
{
    wire_clear(wire);
    wire_put_u64(wire, first_segment);
    wire_put_u64(wire, frames);
}

/* wire is refused with status, for the reason given; whatever comes afterwards fails.
 */
static void refuse(fixture *at, spw_status status, const char *why)
{
    spw__message_reader *reader;
    spw_sink sink = choosy_sink_over(&at->choosy, at->counted.context);
    assert_ok(spw__message_reader_create(at->counted.context, sink, &reader, NULL));
    spw_error error;
    size_t consumed = 77;
    spw_status got = spw__message_reader_feed(reader, at->wire.bytes, at->wire.size,
                                              &consumed, &error);
    assert_string_equal(spw_status_name(got), spw_status_name(status));
    assert_int_equal(consumed, 77);
    if (strstr(error.message, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, why);
    counted_context_check_uncharged(&at->counted);
    assert_status(spw__message_reader_feed(reader, "x", 1, &consumed, &error), CLOSED);
    assert_false(spw__message_reader_is_whole(reader));
    assert_false(spw__message_reader_is_idle(reader));
    size_t room;
    assert_null(spw__message_reader_direct(reader, &room));
    assert_int_equal(room, 0);
    spw__message_reader_free(reader);
}

static void impossible_heads_are_refused(void **state)
{
    fixture *at = *state;
    put_head(&at->wire, 8, 0);
    refuse(at, SPW_STATUS_PROTOCOL, "no frames");
    for (uint64_t first_segment = 0; first_segment < 16; first_segment++) {
        put_head(&at->wire, first_segment, 1);
        refuse(at, SPW_STATUS_PROTOCOL, "cannot hold the lengths of 1 frames");
    }
    put_head(&at->wire, 1000, UINT64_MAX);
    refuse(at, SPW_STATUS_PROTOCOL, "cannot hold the lengths");
    put_head(&at->wire, 1000, UINT64_C(1) << 61); /* 8 * frames wraps to 0 */
    refuse(at, SPW_STATUS_PROTOCOL, "cannot hold the lengths");
    put_head(&at->wire, UINT64_MAX, (UINT64_C(1) << 24) + 1);
    refuse(at, SPW_STATUS_LIMIT_EXCEEDED, "frames_per_message");
    put_head(&at->wire, UINT64_MAX, UINT64_MAX / 8 - 1);
    refuse(at, SPW_STATUS_LIMIT_EXCEEDED, "frames_per_message");
}

static void other_protocols_are_told_apart(void **state)
{
    fixture *at = *state;
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
    put_head(wire, 8 + 16 + first_bytes, 2);
    wire_put_u64(wire, first);
    wire_put_u64(wire, second);
}

static void impossible_tables_are_refused(void **state)
{
    fixture *at = *state;
    put_table(&at->wire, 0, UINT64_MAX, 1); /* the sum wraps to 0 */
    refuse(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
    put_table(&at->wire, 0, 1, UINT64_MAX);
    refuse(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
    put_table(&at->wire, 0, UINT64_C(1) << 44, 1);
    refuse(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
    static const uint64_t INSIDE[] = {1, 4, 6, 11, 13, UINT64_MAX - 24};
    for (size_t i = 0; i < sizeof INSIDE / sizeof INSIDE[0]; i++) {
        put_table(&at->wire, INSIDE[i], 5, 7);
        refuse(at, SPW_STATUS_PROTOCOL, "ends inside a frame");
    }
    assert_int_equal(at->choosy.asked, 0);
}

static void the_first_segment_may_end_after_any_frame(void **state)
{
    fixture *at = *state;
    wire_bytes frames[3] = {{0}};
    wire_put_noise(&frames[0], 5, 1);
    wire_put_noise(&frames[2], 7, 1);
    for (size_t first_frames = 0; first_frames <= 3; first_frames++) {
        wire_clear(&at->wire);
        wire_put_message(&at->wire, frames, 3, first_frames);
        assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, SIZE_MAX, NULL));
        spw_payload_free(take(at->reader, &at->wire));
    }
    wire_clear(&frames[0]);
    wire_clear(&frames[2]);
}

static void a_message_of_empty_frames_ends_with_its_table(void **state)
{
    fixture *at = *state;
    wire_bytes frames[5] = {{0}};
    wire_put_message(&at->wire, frames, 5, 5);
    assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, 3, NULL));
    spw_payload_free(take(at->reader, &at->wire));
}

static void a_long_table_takes_memory_as_it_comes(void **state)
{
    fixture *at = *state;
    put_head(&at->wire, UINT64_C(1) << 40, 1 << 24);
    assert_ok(feed(at->reader, at->wire.bytes, at->wire.size, SIZE_MAX, NULL));
    uint64_t before = at->counted.allocator.live_bytes;
    static const uint8_t NOTHING[8000] = {0};
    assert_ok(feed(at->reader, NOTHING, sizeof NOTHING, 100, NULL));
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
    assert_status(feed(reader, wire.bytes, wire.size, SIZE_MAX, &error),
                  LIMIT_EXCEEDED);
    assert_non_null(strstr(error.message, "raise the budget"));
    counted_context_check_uncharged(&counted);
    spw__message_reader_free(reader);
    wire_clear(&wire);
    counted_context_close(&counted);
}

static void large_messages_are_held_before_anything_is_taken(void **state)
{
    fixture *at = *state;
    size_t consumed;
    wire_put_corpus(&at->wire, "message_reader/two_buffers");
    uint64_t size = 0;
    for (uint64_t i = 0; i < number_at(at->wire.bytes + 8); i++)
        size += number_at(at->wire.bytes + 16 + 8 * i);
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
        spw_payload_free(take(at->reader, &at->wire));
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
    fixture *at = *state;
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
            n % 2 == 0
                ? feed(reader, at->wire.bytes, at->wire.size, 10, &error)
                : write_direct(reader, at->wire.bytes, at->wire.size, 10, &error);
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
            spw_payload_free(take(reader, &at->wire));
        }
        spw__message_reader_free(reader);
    }
    assert_true(n > 3); /* the headers and two buffers, at least */
}

/* Messages with references. What stands at a place follows from the place, so that it
 * can be checked when it is there. */
static uint8_t remote_byte(uint64_t place, uint64_t offset)
{
    return (uint8_t)((place + offset) * 7 + (place + offset) / 256);
}

/* Frames of sizes, with a sub-header in front of those behind the first where shards
 * are given, and a place for each. */
typedef struct referenced {
    const size_t *sizes;
    size_t count;
    const uint64_t *places;
    const size_t *shards; /* of buffers that frames 2 and up are */
    size_t buffers;
} referenced;

static void put_referenced(fixture *at, const referenced *message)
{
    wire_bytes frames[8] = {{0}};
    assert_true(message->count <= 8);
    for (size_t i = 0; i < message->count; i++)
        if (i == 1 && message->shards != NULL)
            wire_put_sub_header(&frames[i],
                                &(wire_value){message->shards, message->buffers, NULL,
                                              message->count - 2});
        else
            wire_put_noise(&frames[i], message->sizes[i], (unsigned)i);
    wire_clear(&at->wire);
    wire_put_referenced(&at->wire, frames, message->count, message->places);
    for (size_t i = 0; i < message->count; i++)
        wire_clear(&frames[i]);
}

/* The whole stream, in pieces of at most piece, with what comes by reference in pieces
 * of at most step. */
static spw_status read_referenced(spw__message_reader *reader, const wire_bytes *wire,
                                  size_t piece, size_t step, spw_error *error)
{
    size_t place = 0;
    spw__remote_range range;
    while (place < wire->size || spw__message_reader_remote(reader, &range)) {
        spw_status status;
        if (spw__message_reader_remote(reader, &range)) {
            size_t room, size = range.size < step ? (size_t)range.size : step;
            assert_null(spw__message_reader_direct(reader, &room));
            assert_int_equal(room, 0);
            uint64_t start = range.address != 0 ? range.address - range.filled : 1;
            for (size_t i = 0; i < size; i++)
                ((uint8_t *)range.to)[i] = remote_byte(start, range.filled + i);
            status = spw__message_reader_advance_remote(reader, size, error);
        } else {
            size_t consumed, left = wire->size - place;
            status =
                spw__message_reader_feed(reader, wire->bytes + place,
                                         piece < left ? piece : left, &consumed, error);
            place += status == SPW_STATUS_OK ? consumed : 0;
        }
        if (status != SPW_STATUS_OK)
            return status;
    }
    return SPW_STATUS_OK;
}

static spw_payload *take_referenced(spw__message_reader *reader, const wire_bytes *wire)
{
    assert_true(spw__message_reader_is_whole(reader));
    spw_payload *payload = spw__message_reader_take(reader);
    size_t frames = (size_t)number_at(wire->bytes + 8);
    const uint8_t *body = wire->bytes + 16 + 16 * frames;
    const spw_slice *slices = spw_payload_slices(payload);
    assert_int_equal(spw_payload_count(payload), frames);
    for (size_t i = 0; i < frames; i++) {
        uint64_t place = number_at(wire->bytes + 16 + 8 * (frames + i));
        const uint8_t *got = spw_slice_data(&slices[i]);
        assert_int_equal(slices[i].size, number_at(wire->bytes + 16 + 8 * i));
        for (uint64_t k = 0; place != 0 && k < slices[i].size; k++)
            assert_int_equal(got[k], remote_byte(place, k));
        if (place == 0) {
            assert_memory_equal(got, body, slices[i].size);
            body += slices[i].size;
        }
    }
    assert_ptr_equal(body, wire->bytes + wire->size);
    return payload;
}

static const size_t SIZES[] = {20, 100, 9000, 300, 70000, 0, 5000, 8};
static const uint64_t PLACES[] = {0, 0, 0x7f0000001234, 0, 1, 0, 0xffffffff00000000, 0};
static const referenced MANY = {SIZES, 8, PLACES, NULL, 0};

static void references_are_no_messages_unless_allowed(void **state)
{
    fixture *at = *state;
    put_referenced(at, &MANY);
    refuse(at, SPW_STATUS_PROTOCOL, "the first segment ends inside a frame");
}

static void bodies_may_come_by_another_way(void **state)
{
    fixture *at = *state;
    static const size_t PIECES[] = {1, 7, 64, 1000, SIZE_MAX};
    put_referenced(at, &MANY);
    spw__message_reader_allow_references(at->reader);
    for (size_t i = 0; i < COUNT_OF(PIECES); i++)
        for (size_t k = 0; k < COUNT_OF(PIECES); k++) {
            assert_ok(
                read_referenced(at->reader, &at->wire, PIECES[i], PIECES[k], NULL));
            spw_payload_free(take_referenced(at->reader, &at->wire));
        }
}

/* All of the corpus, each message cut at each byte. */
static void referenced_messages_may_be_cut_at_each_byte(void **state)
{
    fixture *at = *state;
    static const char *const NAMES[] = {
        "message_reader/referenced-one_array-1000",
        "message_reader/referenced-two_shards-1000",
        "message_reader/referenced-two_buffers-1",
    };
    spw__message_reader_allow_references(at->reader);
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        wire_clear(&at->wire);
        wire_put_corpus(&at->wire, NAMES[i]);
        assert_in_range(at->wire.size, 32, 4000);
        for (size_t piece = 1; piece <= at->wire.size; piece++) {
            assert_ok(read_referenced(at->reader, &at->wire, piece, 4096, NULL));
            spw_payload_free(take_referenced(at->reader, &at->wire));
        }
    }
}

static void to_allow_references_changes_nothing_else(void **state)
{
    fixture *at = *state;
    spw__message_reader_allow_references(at->reader);
    for_each_message(at, read_whole);
}

static void what_is_wanted_is_told(void **state)
{
    fixture *at = *state;
    spw__remote_range range;
    size_t consumed, room;
    put_referenced(at, &MANY);
    spw__message_reader_allow_references(at->reader);
    assert_false(spw__message_reader_remote(at->reader, &range));
    /* It stops where the first of them is, with the rest of the stream untouched. */
    assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                       &consumed, NULL));
    assert_int_equal(consumed, 16 + 16 * 8 + 20 + 100);
    assert_true(spw__message_reader_is_remote(at->reader));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_int_equal(range.size, 9000);
    assert_int_equal(range.address, PLACES[2]);
    assert_int_equal(range.filled, 0);
    assert_false(range.is_last);
    assert_true(range.may_adopt);
    uint64_t missing = spw__message_reader_missing(at->reader);
    assert_int_equal(missing, 9000 + 300 + 70000 + 5000 + 8);
    char *to = range.to;
    assert_ok(spw__message_reader_advance_remote(at->reader, 1000, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_ptr_equal(range.to, to + 1000);
    assert_int_equal(range.size, 8000);
    assert_int_equal(range.address, PLACES[2] + 1000);
    assert_int_equal(range.filled, 1000);
    assert_false(range.may_adopt);
    assert_int_equal(spw__message_reader_missing(at->reader), missing - 1000);
    assert_ok(spw__message_reader_feed(at->reader, "x", 1, &room, NULL));
    assert_int_equal(room, 0);
    assert_ok(spw__message_reader_advance_remote(at->reader, 8000, NULL));
    assert_false(spw__message_reader_is_remote(at->reader));
    assert_ok(feed(at->reader, at->wire.bytes + consumed, 300, SIZE_MAX, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_int_equal(range.address, 0); /* the sender passes it */
    assert_false(range.is_last);
    assert_ok(spw__message_reader_advance_remote(at->reader, 70000, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_true(range.is_last);
}

static void shards_by_reference_lie_side_by_side(void **state)
{
    fixture *at = *state;
    static const size_t BODY[] = {20, 0, 5000, 6000, 7000};
    static const uint64_t WHERE[] = {0, 0, 0x10000, 0, 1};
    put_referenced(at, &(referenced){BODY, 5, WHERE, (size_t[]){3}, 1});
    spw__message_reader_allow_references(at->reader);
    size_t consumed, room;
    spw__remote_range range;
    assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                       &consumed, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_false(range.may_adopt);
    char *to = range.to;
    memset(to, 0, 5000);
    assert_ok(spw__message_reader_advance_remote(at->reader, 5000, NULL));
    /* What is read straight from the stream ends where the next reference is. */
    assert_ptr_equal(spw__message_reader_direct(at->reader, &room), to + 5000);
    assert_int_equal(room, 6000);
    memset(to + 5000, 0, 6000);
    assert_ok(spw__message_reader_advance(at->reader, 6000, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_ptr_equal(range.to, to + 11000);
    assert_false(range.may_adopt);
    memset(range.to, 0, 7000);
    assert_ok(spw__message_reader_advance_remote(at->reader, 7000, NULL));
    spw_payload *payload = spw__message_reader_take(at->reader);
    const spw_slice *slices = spw_payload_slices(payload);
    assert_ptr_equal(slices[2].buffer, slices[4].buffer);
    assert_int_equal(spw_buffer_size(slices[2].buffer), 18000);
    spw_payload_free(payload);
}

/* A sub-header that comes by reference is looked into as any other. */
static void a_sub_header_may_come_by_another_way(void **state)
{
    fixture *at = *state;
    wire_bytes header = {0};
    wire_put_sub_header(&header, &(wire_value){(size_t[]){2}, 1, NULL, 2});
    wire_bytes frames[4] = {{0}};
    static const uint64_t WHERE[] = {0, 0x10000, 0, 0};
    wire_put_noise(&frames[0], 20, 1);
    wire_put(&frames[1], header.bytes, header.size);
    wire_put_noise(&frames[2], 5000, 2);
    wire_put_noise(&frames[3], 5000, 3);
    wire_put_referenced(&at->wire, frames, 4, WHERE);
    spw__message_reader_allow_references(at->reader);
    size_t consumed;
    spw__remote_range range;
    assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                       &consumed, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    memcpy(range.to, header.bytes, header.size);
    assert_ok(spw__message_reader_advance_remote(at->reader, header.size, NULL));
    assert_ok(feed(at->reader, at->wire.bytes + consumed, at->wire.size - consumed,
                   SIZE_MAX, NULL));
    spw_payload *payload = spw__message_reader_take(at->reader);
    const spw_slice *slices = spw_payload_slices(payload);
    assert_int_equal(spw_buffer_size(slices[2].buffer), 10000);
    assert_ptr_equal(slices[2].buffer, slices[3].buffer);
    spw_payload_free(payload);
    wire_clear(&header);
    for (int i = 0; i < 4; i++)
        wire_clear(&frames[i]);
}

static void count_release(void *user)
{
    ++*(unsigned *)user;
}

static void a_body_may_be_a_buffer_that_was_passed(void **state)
{
    fixture *at = *state;
    static const size_t BODY[] = {20, 0, 5000, 6000};
    static const uint64_t WHERE[] = {0, 0, 1, 1};
    static char passed[5000];
    unsigned released = 0;
    put_referenced(at, &(referenced){BODY, 4, WHERE, (size_t[]){1, 1}, 2});
    spw__message_reader_allow_references(at->reader);
    size_t consumed;
    spw__remote_range range;
    assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                       &consumed, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_true(range.may_adopt);
    spw_buffer *buffer;
    assert_ok(spw_buffer_wrap(at->counted.context, passed, sizeof passed, true,
                              count_release, &released, &buffer, NULL));
    assert_ok(spw__message_reader_adopt(at->reader, buffer, NULL));
    assert_int_equal(at->choosy.aborted, 1);
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_int_equal(range.size, 6000);
    assert_true(range.is_last);
    memset(range.to, 0, 6000);
    assert_ok(spw__message_reader_advance_remote(at->reader, 6000, NULL));
    spw_payload *payload = spw__message_reader_take(at->reader);
    const spw_slice *slices = spw_payload_slices(payload);
    assert_ptr_equal(spw_slice_data(&slices[2]), passed);
    assert_int_equal(released, 0);
    spw_payload_free(payload);
    assert_int_equal(released, 1);
}

static void an_adopted_buffer_goes_with_its_message(void **state)
{
    fixture *at = *state;
    static char passed[9000];
    unsigned released = 0;
    put_referenced(at, &MANY);
    spw__message_reader_allow_references(at->reader);
    size_t consumed;
    spw_buffer *buffer;
    assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes, at->wire.size,
                                       &consumed, NULL));
    assert_ok(spw_buffer_wrap(at->counted.context, passed, sizeof passed, true,
                              count_release, &released, &buffer, NULL));
    assert_ok(spw__message_reader_adopt(at->reader, buffer, NULL));
    spw__message_reader_free(at->reader);
    at->reader = NULL;
    assert_int_equal(released, 1);
}

static void refuse_referenced(fixture *at, spw_status expected, const char *why)
{
    spw__message_reader *reader;
    spw_error error;
    size_t consumed = 77;
    assert_ok(spw__message_reader_create(
        at->counted.context, choosy_sink_over(&at->choosy, at->counted.context),
        &reader, NULL));
    spw__message_reader_allow_references(reader);
    spw_status status = spw__message_reader_feed(reader, at->wire.bytes, at->wire.size,
                                                 &consumed, &error);
    assert_string_equal(spw_status_name(status), spw_status_name(expected));
    assert_non_null(strstr(error.message, why));
    assert_false(spw__message_reader_is_remote(reader));
    assert_int_equal(at->choosy.asked, 0);
    spw__message_reader_free(reader);
}

static void impossible_references_are_refused(void **state)
{
    fixture *at = *state;
    const uint64_t flag = UINT64_C(1) << 63;
    static const uint64_t FIRST[] = {0, 8, 16, 24, 39, 41, 56, (uint64_t)INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(FIRST); i++) {
        put_head(&at->wire, flag | FIRST[i], 2);
        refuse_referenced(at, SPW_STATUS_PROTOCOL, "first segment of");
    }
    put_head(&at->wire, flag | 40, 0);
    refuse_referenced(at, SPW_STATUS_PROTOCOL, "no frames");
    put_head(&at->wire, flag | (8 + ((UINT64_C(1) << 24) + 1) * 16),
             (UINT64_C(1) << 24) + 1);
    refuse_referenced(at, SPW_STATUS_LIMIT_EXCEEDED, "frames_per_message");
    static const uint64_t IMPOSSIBLE[][2] = {/* length, place */
                                             {0, 1},
                                             {0, 4096},
                                             {2, UINT64_MAX},
                                             {2, UINT64_MAX - 1},
                                             {UINT64_C(1) << 40, UINT64_MAX - 4096}};
    for (size_t i = 0; i < COUNT_OF(IMPOSSIBLE); i++) {
        put_head(&at->wire, flag | 24, 1);
        wire_put_u64(&at->wire, IMPOSSIBLE[i][0]);
        wire_put_u64(&at->wire, IMPOSSIBLE[i][1]);
        refuse_referenced(at, SPW_STATUS_PROTOCOL, "frame 0 of");
    }
    put_head(&at->wire, flag | 24, 1);
    wire_put_u64(&at->wire, UINT64_C(1) << 45);
    wire_put_u64(&at->wire, 4096);
    refuse_referenced(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
}

static void a_message_by_reference(void **state)
{
    torture *t = *state;
    fixture at = {.reader = NULL};
    spw__message_reader *reader = NULL;
    put_referenced(&at, &MANY);
    TRY(spw__message_reader_create(t->context, spw_sink_heap(t->context), &reader,
                                   &t->error));
    spw__message_reader_allow_references(reader);
    TRY(read_referenced(reader, &at.wire, 1000, 10000, &t->error));
    spw_payload_free(take_referenced(reader, &at.wire));
end:
    spw__message_reader_free(reader);
    wire_clear(&at.wire);
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
        TRY(feed(reader, wire.bytes, wire.size, 50, &t->error));
        spw_payload_free(take(reader, &wire));
    }
end:
    spw__message_reader_free(reader);
    wire_clear(&wire);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(stocks_messages_are_read),
        TEST_AT(a_message_may_be_cut_at_each_byte),
        TEST_AT(a_message_may_come_in_any_pieces),
        TEST_AT(a_reader_may_be_freed_after_each_byte),
        TEST_AT(what_is_missing_is_told),
        TEST_AT(messages_follow_each_other),
        TEST_AT(a_taken_message_is_held_until_it_is_freed),
        TEST_AT(lengths_do_not_decide_what_belongs_together),
        TEST_AT(direct_spans_the_shards_of_a_buffer),
        TEST_AT(a_sub_header_may_be_a_large_frame),
        TEST_AT(many_tiny_frames_share_few_regions),
        TEST_AT(impossible_heads_are_refused),
        TEST_AT(other_protocols_are_told_apart),
        TEST_AT(impossible_tables_are_refused),
        TEST_AT(the_first_segment_may_end_after_any_frame),
        TEST_AT(a_message_of_empty_frames_ends_with_its_table),
        TEST_AT(a_long_table_takes_memory_as_it_comes),
        TEST_AT(a_body_over_the_budget_is_refused_before_it_comes),
        TEST_AT(large_messages_are_held_before_anything_is_taken),
        TEST_AT(bug_a_lost_stream_could_be_fed),
        TEST_AT(references_are_no_messages_unless_allowed),
        TEST_AT(bodies_may_come_by_another_way),
        TEST_AT(referenced_messages_may_be_cut_at_each_byte),
        TEST_AT(to_allow_references_changes_nothing_else),
        TEST_AT(what_is_wanted_is_told),
        TEST_AT(shards_by_reference_lie_side_by_side),
        TEST_AT(a_sub_header_may_come_by_another_way),
        TEST_AT(a_body_may_be_a_buffer_that_was_passed),
        TEST_AT(an_adopted_buffer_goes_with_its_message),
        TEST_AT(impossible_references_are_refused),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(messages_of_three_kinds),
                                           SCENARIO(a_message_by_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("message_reader", scenarios);
}
