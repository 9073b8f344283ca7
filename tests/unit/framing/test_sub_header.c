#include "framing/sub_header.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "torture.h"
#include "wire_bytes.h"

enum { PLENTY = 1000 }; /* frames behind, where their number does not matter */

typedef struct fixture {
    counted_context counted;
    spw__sub_header header;
    wire_bytes wire;
} fixture;

static int set_up(void **state)
{
    fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    counted_context_open(&at->counted, 0, 0);
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    fixture *at = *state;
    spw__sub_header_clear(&at->header, at->counted.context);
    counted_context_close(&at->counted);
    wire_clear(&at->wire);
    free(at);
    return 0;
}

/* Parse what stands in wire, from a block of exactly its size, and empty it. */
static bool parse(fixture *at, uint64_t frames_behind)
{
    size_t size = at->wire.size;
    uint8_t *exact = malloc(size > 0 ? size : 1);
    assert_non_null(exact);
    if (size > 0)
        memcpy(exact, at->wire.bytes, size);
    spw_status status;
    bool is_one = spw__sub_header_parse(&at->header, at->counted.context, exact, size,
                                        frames_behind, &status, NULL);
    assert_ok(status);
    free(exact);
    wire_clear(&at->wire);
    return is_one;
}

static void put_unsigneds(wire_bytes *wire, const char *key, const uint64_t *values,
                          size_t count)
{
    wire_put_string(wire, key);
    wire_put_array(wire, count);
    for (size_t i = 0; i < count; i++)
        wire_put_unsigned(wire, values[i]);
}

/* A header with lists as given, consistent or not. */
static void put_split(wire_bytes *wire, uint64_t sub_frames, const uint64_t *counts,
                      size_t count_items, const uint64_t *offsets, size_t offset_items)
{
    wire_put_map(wire, 3);
    put_unsigneds(wire, "split-offsets", offsets, offset_items);
    wire_put_string(wire, "num-sub-frames");
    wire_put_unsigned(wire, sub_frames);
    put_unsigneds(wire, "split-num-sub-frames", counts, count_items);
}

static void the_shards_of_each_buffer_are_read(void **state)
{
    fixture *at = *state;
    static const size_t SHARDS[] = {3, 1, 200};
    wire_put_sub_header(&at->wire, &(wire_value){SHARDS, 3, NULL, 204});
    assert_true(parse(at, 204));
    assert_int_equal(at->header.sub_frames, 204);
    assert_true(at->header.has_buffers);
    assert_int_equal(at->header.buffer_count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(at->header.buffer_frames[i], SHARDS[i]);
    assert_int_equal(at->header.compressed_count, 0);
}

static void without_split_keys_only_the_number_is_known(void **state)
{
    fixture *at = *state;
    wire_put_sub_header(&at->wire, &(wire_value){NULL, 0, NULL, 7});
    assert_true(parse(at, PLENTY));
    assert_int_equal(at->header.sub_frames, 7);
    assert_false(at->header.has_buffers);
}

static void compressed_sub_frames_are_marked(void **state)
{
    fixture *at = *state;
    static const size_t SHARDS[] = {2, 1};
    static const char *const NAMES[] = {"lz4", NULL, "zlib"};
    wire_put_sub_header(&at->wire, &(wire_value){SHARDS, 2, NAMES, 3});
    assert_true(parse(at, PLENTY));
    assert_int_equal(at->header.compressed_count, 3);
    assert_true(at->header.is_compressed[0]);
    assert_false(at->header.is_compressed[1]);
    assert_true(at->header.is_compressed[2]);
}

static void nothing_is_left_of_an_earlier_parse(void **state)
{
    fixture *at = *state;
    compressed_sub_frames_are_marked(state);
    wire_put_sub_header(&at->wire, &(wire_value){NULL, 0, NULL, 3});
    assert_true(parse(at, PLENTY));
    assert_false(at->header.has_buffers);
    assert_int_equal(at->header.compressed_count, 0);
}

static void the_last_of_two_equal_keys_counts(void **state)
{
    fixture *at = *state;
    wire_put_map(&at->wire, 2);
    for (uint64_t i = 5; i <= 6; i++) {
        wire_put_string(&at->wire, "num-sub-frames");
        wire_put_unsigned(&at->wire, i);
    }
    assert_true(parse(at, PLENTY));
    assert_int_equal(at->header.sub_frames, 6);
}

static void other_things_are_no_sub_header(void **state)
{
    fixture *at = *state;
    static const struct {
        const char *bytes;
        size_t size;
    } OTHERS[] = {
        {"", 0},
        {"\x80", 1}, /* an empty map */
        {"\x90", 1}, /* an array */
        {"\xc1", 1}, /* no msgpack */
        {"\x81\xa1"
         "a"
         "\x01",
         4}, /* another key */
        {"\x81\xa4"
         "num-\x01",
         7},                                /* the beginning of the key */
        {"\x80\x05\x94hello world", 14},    /* a pickle begins like an empty map */
        {"\x81\xaenum-sub-frames\xff", 17}, /* a negative number */
        {"\x81\xaenum-sub-frames\xa1"
         "3",
         18},                               /* text */
        {"\x81\xaenum-sub-frames\xc0", 17}, /* nil */
    };
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        wire_put(&at->wire, OTHERS[i].bytes, OTHERS[i].size);
        assert_false(parse(at, PLENTY));
    }
}

static void a_header_that_is_cut_is_none(void **state)
{
    fixture *at = *state;
    static const size_t SHARDS[] = {3, 1};
    static const char *const NAMES[] = {"lz4", NULL, "zlib", NULL};
    wire_bytes whole = {0};
    wire_put_sub_header(&whole, &(wire_value){SHARDS, 2, NAMES, 4});
    for (size_t size = 0; size < whole.size; size++) {
        wire_put(&at->wire, whole.bytes, size);
        assert_false(parse(at, PLENTY));
    }
    wire_put(&at->wire, whole.bytes, whole.size);
    assert_true(parse(at, PLENTY));
    wire_clear(&whole);
}

static void more_sub_frames_than_follow_are_a_lie(void **state)
{
    fixture *at = *state;
    static const uint64_t CLAIMS[] = {10, 11, 1 << 20, UINT64_MAX};
    for (size_t i = 0; i < sizeof CLAIMS / sizeof CLAIMS[0]; i++) {
        wire_put_map(&at->wire, 1);
        wire_put_string(&at->wire, "num-sub-frames");
        wire_put_unsigned(&at->wire, CLAIMS[i]);
        assert_int_equal(parse(at, 10), CLAIMS[i] == 10);
    }
}

static void lists_that_do_not_match_are_no_buffers(void **state)
{
    fixture *at = *state;
    static const struct {
        uint64_t sub_frames, counts[3], offsets[3];
        size_t count_items, offset_items;
        bool fits;
    } CASES[] = {
        {4, {1, 2, 1}, {0, 1, 3}, 3, 3, true},
        {4, {1, 0, 3}, {0, 1, 1}, 3, 3, true},              /* an empty buffer */
        {0, {0}, {0}, 0, 0, true},                          /* no buffers at all */
        {3, {1, 2, 1}, {0, 1, 3}, 3, 3, false},             /* more than there are */
        {5, {1, 2, 1}, {0, 1, 3}, 3, 3, false},             /* fewer */
        {4, {1, 2, 1}, {0, 1, 2}, 3, 3, false},             /* overlapping */
        {4, {1, 2, 1}, {0, 2, 3}, 3, 3, false},             /* with a gap */
        {4, {1, 2, 1}, {1, 2, 4}, 3, 3, false},             /* from 1 on */
        {4, {1, 2, 1}, {3, 1, 0}, 3, 3, false},             /* backwards */
        {4, {1, 2, 1}, {0, 1}, 3, 2, false},                /* an offset too few */
        {4, {1, 3}, {0, 1, 4}, 2, 3, false},                /* and too many */
        {1, {UINT64_MAX, 2}, {0, UINT64_MAX}, 2, 2, false}, /* sums that wrap to 1 */
        {1, {2, UINT64_MAX}, {0, 2}, 2, 2, false},
        {1, {UINT64_MAX}, {0}, 1, 1, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        put_split(&at->wire, CASES[i].sub_frames, CASES[i].counts, CASES[i].count_items,
                  CASES[i].offsets, CASES[i].offset_items);
        assert_true(parse(at, PLENTY));
        assert_int_equal(at->header.sub_frames, CASES[i].sub_frames);
        if (at->header.has_buffers != CASES[i].fits)
            fail_msg("case %zu", i);
    }
}

static void lists_of_another_form_leave_the_number(void **state)
{
    fixture *at = *state;
    static const char *const KEYS[] = {"split-num-sub-frames", "split-offsets",
                                       "compression"};
    static const char *const FORMS[] = {"\x05", "\xa2no", "\x81\x01\x02",
                                        "\x93\x01\xa1x\x02"};
    for (size_t key = 0; key < 3; key++)
        for (size_t i = 0; i < 4; i++) {
            wire_put_map(&at->wire, 2);
            wire_put_string(&at->wire, KEYS[key]);
            wire_put(&at->wire, FORMS[i], strlen(FORMS[i]));
            wire_put_string(&at->wire, "num-sub-frames");
            wire_put_unsigned(&at->wire, 3);
            assert_true(parse(at, PLENTY));
            assert_int_equal(at->header.sub_frames, 3);
            assert_false(at->header.has_buffers);
        }
}

/* Values of other libraries may have any keys in their headers; what is not ours is
 * passed over, and the values behind keep their exact placement. */
static void bug_a_key_that_is_no_string_ended_the_chain(void **state)
{
    fixture *at = *state;
    wire_put_map(&at->wire, 4);
    wire_put_unsigned(&at->wire, 5);
    wire_put_nil(&at->wire);
    wire_put_array(&at->wire, 1);
    wire_put_string(&at->wire, "num-sub-frames");
    wire_put_unsigned(&at->wire, 9);
    wire_put_nil(&at->wire);
    wire_put_map(&at->wire, 0);
    wire_put_string(&at->wire, "num-sub-frames");
    wire_put_unsigned(&at->wire, 2);
    assert_true(parse(at, PLENTY));
    assert_int_equal(at->header.sub_frames, 2);
}

/* A list of a million empty buffers is a megabyte of header: it made eight of memory
 * that no budget knew of, and that the connection kept. */
static void bug_lists_took_eight_times_the_header(void **state)
{
    fixture *at = *state;
    enum { ITEMS = 1000000, BEHIND = 10 };
    static const char *const KEYS[] = {"split-num-sub-frames", "compression"};
    for (size_t key = 0; key < 2; key++) {
        wire_put_map(&at->wire, 2);
        wire_put_string(&at->wire, KEYS[key]);
        wire_put_array(&at->wire, ITEMS);
        for (size_t i = 0; i < ITEMS; i++)
            wire_put_nil(&at->wire);
        wire_put_string(&at->wire, "num-sub-frames");
        wire_put_unsigned(&at->wire, BEHIND);
        memset(at->wire.bytes + 5 + 3 + strlen(KEYS[key]) + 5, 0, ITEMS);
        assert_true(parse(at, BEHIND));
        assert_false(at->header.has_buffers);
        assert_int_equal(at->header.sub_frames, BEHIND);
    }
    assert_in_range(at->counted.allocator.peak_bytes, 0, 2048);
}

static void claimed_items_are_not_allocated_for(void **state)
{
    fixture *at = *state;
    static const char *const KEYS[] = {"split-num-sub-frames", "compression",
                                       "split-offsets"};
    for (size_t key = 0; key < 3; key++) {
        wire_put_map(&at->wire, 2);
        wire_put_string(&at->wire, "num-sub-frames");
        wire_put_unsigned(&at->wire, 3);
        wire_put_string(&at->wire, KEYS[key]);
        wire_put_array(&at->wire, UINT32_MAX);
        wire_put_noise(&at->wire, 50, 1);
        assert_false(parse(at, UINT64_MAX));
    }
    assert_int_equal(at->header.buffer_capacity, 0);
    assert_int_equal(at->header.compressed_capacity, 0);
}

/* What stock makes of one array in three shards, of a pickled value with two buffers,
 * of a compressed array. */
static void stocks_headers_are_read(void **state)
{
    fixture *at = *state;
    wire_put_corpus(&at->wire, "sub_header/sharded-1");
    assert_true(parse(at, 3));
    assert_true(at->header.has_buffers);
    assert_int_equal(at->header.buffer_count, 1);
    assert_int_equal(at->header.buffer_frames[0], 3);
    wire_put_corpus(&at->wire, "sub_header/two_buffers-1");
    assert_true(parse(at, 3));
    assert_true(at->header.has_buffers);
    assert_int_equal(at->header.buffer_count, 3);
    wire_put_corpus(&at->wire, "sub_header/two_shards-1");
    assert_true(parse(at, 3));
    assert_true(at->header.has_buffers);
    assert_int_equal(at->header.buffer_count, 2);
    assert_int_equal(at->header.buffer_frames[1], 2);
    wire_put_corpus(&at->wire, "sub_header/lz4_sharded-1");
    assert_true(parse(at, 4));
    assert_int_equal(at->header.compressed_count, 2);
    assert_true(at->header.is_compressed[0] && at->header.is_compressed[1]);
    wire_put_corpus(&at->wire, "sub_header/pickled_arrays-1");
    assert_true(parse(at, 2));
    assert_int_equal(at->header.sub_frames, 2);
    assert_false(at->header.has_buffers);
}

static spw_status parse_two(spw_context *context, void *user, spw_error *error)
{
    const wire_bytes *wires = user;
    spw__sub_header header = {0};
    spw_status status = SPW_STATUS_OK;
    for (int i = 0; i < 3 && status == SPW_STATUS_OK; i++) {
        bool is_one = spw__sub_header_parse(&header, context, wires[i].bytes,
                                            wires[i].size, PLENTY, &status, error);
        assert_int_equal(is_one, status == SPW_STATUS_OK);
    }
    spw__sub_header_clear(&header, context);
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    wire_bytes wires[3] = {{0}};
    size_t shards[100];
    const char *names[100] = {"lz4"};
    for (size_t i = 0; i < 100; i++)
        shards[i] = 1;
    wire_put_sub_header(&wires[0], &(wire_value){shards, 4, names, 4});
    wire_put_sub_header(&wires[1], &(wire_value){shards, 20, names, 20});
    wire_put_sub_header(&wires[2], &(wire_value){shards, 100, names, 100});
    torture_allocations("sub_header", parse_two, wires);
    for (int i = 0; i < 3; i++)
        wire_clear(&wires[i]);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(the_shards_of_each_buffer_are_read),
        TEST_AT(without_split_keys_only_the_number_is_known),
        TEST_AT(compressed_sub_frames_are_marked),
        TEST_AT(nothing_is_left_of_an_earlier_parse),
        TEST_AT(the_last_of_two_equal_keys_counts),
        TEST_AT(other_things_are_no_sub_header),
        TEST_AT(a_header_that_is_cut_is_none),
        TEST_AT(more_sub_frames_than_follow_are_a_lie),
        TEST_AT(lists_that_do_not_match_are_no_buffers),
        TEST_AT(lists_of_another_form_leave_the_number),
        TEST_AT(bug_a_key_that_is_no_string_ended_the_chain),
        TEST_AT(bug_lists_took_eight_times_the_header),
        TEST_AT(claimed_items_are_not_allocated_for),
        TEST_AT(stocks_headers_are_read),
        TEST(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
