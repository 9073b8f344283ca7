/* Messages whose bodies come by another way than the stream. */
#include <string.h>

#include "reader_fixture.h"
#include "torture.h"

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

static void put_referenced(reader_fixture *at, const referenced *message)
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
    size_t frames = (size_t)wire_number_at(wire->bytes + 8);
    const uint8_t *body = wire->bytes + 16 + 16 * frames;
    const spw_slice *slices = spw_payload_slices(payload);
    assert_int_equal(spw_payload_count(payload), frames);
    for (size_t i = 0; i < frames; i++) {
        uint64_t place = wire_number_at(wire->bytes + 16 + 8 * (frames + i));
        const uint8_t *got = spw_slice_data(&slices[i]);
        assert_int_equal(slices[i].size, wire_number_at(wire->bytes + 16 + 8 * i));
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
    reader_fixture *at = *state;
    put_referenced(at, &MANY);
    reader_refuses(at, SPW_STATUS_PROTOCOL, "the first segment ends inside a frame");
}

static void bodies_may_come_by_another_way(void **state)
{
    reader_fixture *at = *state;
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
    reader_fixture *at = *state;
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
    reader_fixture *at = *state;
    spw__message_reader_allow_references(at->reader);
    reader_for_each_message(at, reader_read_whole);
}

static void what_is_wanted_is_told(void **state)
{
    reader_fixture *at = *state;
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
    assert_ok(reader_feed(at->reader, at->wire.bytes + consumed, 300, SIZE_MAX, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_int_equal(range.address, 0); /* the sender passes it */
    assert_false(range.is_last);
    assert_ok(spw__message_reader_advance_remote(at->reader, 70000, NULL));
    assert_true(spw__message_reader_remote(at->reader, &range));
    assert_true(range.is_last);
}

static void shards_by_reference_lie_side_by_side(void **state)
{
    reader_fixture *at = *state;
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
    reader_fixture *at = *state;
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
    assert_ok(reader_feed(at->reader, at->wire.bytes + consumed,
                          at->wire.size - consumed, SIZE_MAX, NULL));
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
    reader_fixture *at = *state;
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
    reader_fixture *at = *state;
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

static void refuse_referenced(reader_fixture *at, spw_status expected, const char *why)
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
    reader_fixture *at = *state;
    const uint64_t flag = UINT64_C(1) << 63;
    static const uint64_t FIRST[] = {0, 8, 16, 24, 39, 41, 56, (uint64_t)INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(FIRST); i++) {
        wire_begin(&at->wire, flag | FIRST[i], 2);
        refuse_referenced(at, SPW_STATUS_PROTOCOL, "first segment of");
    }
    wire_begin(&at->wire, flag | 40, 0);
    refuse_referenced(at, SPW_STATUS_PROTOCOL, "no frames");
    wire_begin(&at->wire, flag | (8 + ((UINT64_C(1) << 24) + 1) * 16),
               (UINT64_C(1) << 24) + 1);
    refuse_referenced(at, SPW_STATUS_LIMIT_EXCEEDED, "frames_per_message");
    static const uint64_t IMPOSSIBLE[][2] = {/* length, place */
                                             {0, 1},
                                             {0, 4096},
                                             {2, UINT64_MAX},
                                             {2, UINT64_MAX - 1},
                                             {UINT64_C(1) << 40, UINT64_MAX - 4096}};
    for (size_t i = 0; i < COUNT_OF(IMPOSSIBLE); i++) {
        wire_begin(&at->wire, flag | 24, 1);
        wire_put_u64(&at->wire, IMPOSSIBLE[i][0]);
        wire_put_u64(&at->wire, IMPOSSIBLE[i][1]);
        refuse_referenced(at, SPW_STATUS_PROTOCOL, "frame 0 of");
    }
    wire_begin(&at->wire, flag | 24, 1);
    wire_put_u64(&at->wire, UINT64_C(1) << 45);
    wire_put_u64(&at->wire, 4096);
    refuse_referenced(at, SPW_STATUS_LIMIT_EXCEEDED, "bytes_per_message");
}

static void a_message_by_reference(void **state)
{
    torture *t = *state;
    reader_fixture at = {.reader = NULL};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        READER_TEST(references_are_no_messages_unless_allowed),
        READER_TEST(bodies_may_come_by_another_way),
        READER_TEST(referenced_messages_may_be_cut_at_each_byte),
        READER_TEST(to_allow_references_changes_nothing_else),
        READER_TEST(what_is_wanted_is_told),
        READER_TEST(shards_by_reference_lie_side_by_side),
        READER_TEST(a_sub_header_may_come_by_another_way),
        READER_TEST(a_body_may_be_a_buffer_that_was_passed),
        READER_TEST(an_adopted_buffer_goes_with_its_message),
        READER_TEST(impossible_references_are_refused),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(a_message_by_reference),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("references", scenarios);
}
