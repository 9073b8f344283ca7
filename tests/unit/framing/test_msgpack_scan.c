#include "framing/msgpack_scan.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

/* One item of each form in msgpack's specification, with what next() makes of it. */
typedef struct form {
    const char *bytes;
    size_t head_bytes; /* what next() reads */
    size_t size;       /* the whole item */
    spw__msgpack_kind kind;
    uint64_t value;
} form;

static const form FORMS[] = {
    {"\x00", 1, 1, SPW__MSGPACK_UNSIGNED, 0},
    {"\x7f", 1, 1, SPW__MSGPACK_UNSIGNED, 127},
    {"\x80", 1, 1, SPW__MSGPACK_MAP, 0},
    {"\x82\x01\x02\x03\xc0", 1, 5, SPW__MSGPACK_MAP, 2},
    {"\x8f"
     "0123456789abcdef0123456789abcd",
     1, 31, SPW__MSGPACK_MAP, 15},
    {"\x90", 1, 1, SPW__MSGPACK_ARRAY, 0},
    {"\x9f"
     "0123456789abcde",
     1, 16, SPW__MSGPACK_ARRAY, 15},
    {"\xa0", 1, 1, SPW__MSGPACK_STRING, 0},
    {"\xbf"
     "0123456789abcdef0123456789abcde",
     1, 32, SPW__MSGPACK_STRING, 31},
    {"\xc0", 1, 1, SPW__MSGPACK_NIL, 0},
    {"\xc2", 1, 1, SPW__MSGPACK_OTHER, 0},
    {"\xc3", 1, 1, SPW__MSGPACK_OTHER, 0},
    {"\xc4\x03zzz", 2, 5, SPW__MSGPACK_OTHER, 3},
    {"\xc5\x00\x03zzz", 3, 6, SPW__MSGPACK_OTHER, 3},
    {"\xc6\x00\x00\x00\x03zzz", 5, 8, SPW__MSGPACK_OTHER, 3},
    {"\xc7\x03tzzz", 2, 6, SPW__MSGPACK_OTHER, 4},
    {"\xc8\x00\x03tzzz", 3, 7, SPW__MSGPACK_OTHER, 4},
    {"\xc9\x00\x00\x00\x03tzzz", 5, 9, SPW__MSGPACK_OTHER, 4},
    {"\xca"
     "1234",
     1, 5, SPW__MSGPACK_OTHER, 4},
    {"\xcb"
     "12345678",
     1, 9, SPW__MSGPACK_OTHER, 8},
    {"\xcc\xff", 2, 2, SPW__MSGPACK_UNSIGNED, 0xff},
    {"\xcd\x01\x02", 3, 3, SPW__MSGPACK_UNSIGNED, 0x0102},
    {"\xce\x01\x02\x03\x04", 5, 5, SPW__MSGPACK_UNSIGNED, 0x01020304},
    {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, 9, SPW__MSGPACK_UNSIGNED, UINT64_MAX},
    {"\xd0\xff", 1, 2, SPW__MSGPACK_OTHER, 1},
    {"\xd1\xff\xff", 1, 3, SPW__MSGPACK_OTHER, 2},
    {"\xd2\xff\xff\xff\xff", 1, 5, SPW__MSGPACK_OTHER, 4},
    {"\xd3\xff\xff\xff\xff\xff\xff\xff\xff", 1, 9, SPW__MSGPACK_OTHER, 8},
    {"\xd4tz", 1, 3, SPW__MSGPACK_OTHER, 2},
    {"\xd5tzz", 1, 4, SPW__MSGPACK_OTHER, 3},
    {"\xd6tzzzz", 1, 6, SPW__MSGPACK_OTHER, 5},
    {"\xd7tzzzzzzzz", 1, 10, SPW__MSGPACK_OTHER, 9},
    {"\xd8tzzzzzzzzzzzzzzzz", 1, 18, SPW__MSGPACK_OTHER, 17},
    {"\xd9\x03zzz", 2, 5, SPW__MSGPACK_STRING, 3},
    {"\xda\x00\x03zzz", 3, 6, SPW__MSGPACK_STRING, 3},
    {"\xdb\x00\x00\x00\x03zzz", 5, 8, SPW__MSGPACK_STRING, 3},
    {"\xdc\x00\x03\x01\x02\x03", 3, 6, SPW__MSGPACK_ARRAY, 3},
    {"\xdd\x00\x00\x00\x03\x01\x02\x03", 5, 8, SPW__MSGPACK_ARRAY, 3},
    {"\xde\x00\x01\x01\x02", 3, 5, SPW__MSGPACK_MAP, 1},
    {"\xdf\x00\x00\x00\x01\x01\x02", 5, 7, SPW__MSGPACK_MAP, 1},
    {"\xe0", 1, 1, SPW__MSGPACK_OTHER, 0},
    {"\xff", 1, 1, SPW__MSGPACK_OTHER, 0},
};
enum { FORM_COUNT = sizeof FORMS / sizeof FORMS[0] };

/* A block of exactly the item's size, so that AddressSanitizer sees a read past it. */
static uint8_t *exactly(const void *bytes, size_t size)
{
    uint8_t *block = malloc(size > 0 ? size : 1);
    assert_non_null(block);
    memcpy(block, bytes, size);
    return block;
}

static void every_form_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++) {
        const form *one = &FORMS[i];
        spw__byte_reader reader = spw__byte_reader_over(one->bytes, one->size);
        spw__msgpack_item item;
        assert_true(spw__msgpack_next(&reader, &item));
        assert_int_equal(item.kind, one->kind);
        assert_int_equal(item.value, one->value);
        assert_int_equal(spw__byte_reader_left(&reader), one->size - one->head_bytes);
    }
}

static void every_form_is_skipped_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++) {
        spw__byte_reader reader = spw__byte_reader_over(FORMS[i].bytes, FORMS[i].size);
        assert_true(spw__msgpack_skip(&reader));
        assert_int_equal(spw__byte_reader_left(&reader), 0);
    }
}

static void no_form_is_complete_when_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++)
        for (size_t size = 0; size < FORMS[i].size; size++) {
            uint8_t *cut = exactly(FORMS[i].bytes, size);
            spw__byte_reader reader = spw__byte_reader_over(cut, size);
            assert_false(spw__msgpack_skip(&reader));
            reader = spw__byte_reader_over(cut, size);
            spw__msgpack_item item;
            assert_int_equal(spw__msgpack_next(&reader, &item),
                             size >= FORMS[i].head_bytes);
            free(cut);
        }
}

static void every_first_byte_but_one_begins_something(void **state)
{
    (void)state;
    for (int head = 0; head < 256; head++) {
        uint8_t bytes[64] = {(uint8_t)head};
        spw__byte_reader reader = spw__byte_reader_over(bytes, sizeof bytes);
        assert_int_equal(spw__msgpack_skip(&reader), head != 0xc1);
    }
}

static void a_skip_stops_at_the_end_of_its_item(void **state)
{
    (void)state;
    /* [[1, {2: "ab"}], nil], 5 */
    static const uint8_t BYTES[] = {0x92, 0x92, 0x01, 0x81, 0x02,
                                    0xa2, 'a',  'b',  0xc0, 0x05};
    spw__byte_reader reader = spw__byte_reader_over(BYTES, sizeof BYTES);
    assert_true(spw__msgpack_skip(&reader));
    assert_int_equal(spw__byte_reader_left(&reader), 1);
    assert_true(spw__msgpack_skip(&reader));
    assert_false(spw__msgpack_skip(&reader));
}

static void claims_beyond_the_data_are_refused_at_once(void **state)
{
    (void)state;
    static const char *const CLAIMS[] = {
        "\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff",
        "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff",
    };
    for (size_t i = 0; i < sizeof CLAIMS / sizeof CLAIMS[0]; i++) {
        uint8_t bytes[100] = {0};
        memcpy(bytes, CLAIMS[i], 5);
        spw__byte_reader reader = spw__byte_reader_over(bytes, sizeof bytes);
        assert_false(spw__msgpack_skip(&reader));
        assert_int_equal(reader.next - bytes, 5);
    }
}

/* By recursion this would be a million frames of stack. */
static void depth_costs_no_stack(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    uint8_t *bytes = malloc(DEPTH + 1);
    assert_non_null(bytes);
    memset(bytes, 0x91, DEPTH);
    bytes[DEPTH] = 0xc0;
    spw__byte_reader reader = spw__byte_reader_over(bytes, DEPTH + 1);
    assert_true(spw__msgpack_skip(&reader));
    assert_int_equal(spw__byte_reader_left(&reader), 0);
    reader = spw__byte_reader_over(bytes, DEPTH);
    assert_false(spw__msgpack_skip(&reader));
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_form_is_read),
        TEST(every_form_is_skipped_whole),
        TEST(no_form_is_complete_when_cut),
        TEST(every_first_byte_but_one_begins_something),
        TEST(a_skip_stops_at_the_end_of_its_item),
        TEST(claims_beyond_the_data_are_refused_at_once),
        TEST(depth_costs_no_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
