#include "memory/byte_reader.h"

#include "testing.h"

static const uint8_t BYTES[] = {0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88};

static void numbers_of_each_width_in_both_orders(void **state)
{
    (void)state;
    static const uint64_t BIG[] = {
        0x01,         0x0182,         0x018203,         0x01820384,
        0x0182038405, 0x018203840586, 0x01820384058607, 0x0182038405860788};
    static const uint64_t LITTLE[] = {
        0x01,         0x8201,         0x038201,         0x84038201,
        0x0584038201, 0x860584038201, 0x07860584038201, 0x8807860584038201};
    for (unsigned width = 1; width <= 8; width++) {
        spw__byte_reader reader = spw__byte_reader_over(BYTES, sizeof BYTES);
        uint64_t value;
        assert_true(spw__byte_reader_be(&reader, width, &value));
        assert_int_equal(value, BIG[width - 1]);
        assert_int_equal(spw__byte_reader_left(&reader), sizeof BYTES - width);
        reader = spw__byte_reader_over(BYTES, sizeof BYTES);
        assert_true(spw__byte_reader_le(&reader, width, &value));
        assert_int_equal(value, LITTLE[width - 1]);
    }
}

static void what_is_not_all_there_is_not_read(void **state)
{
    (void)state;
    for (unsigned width = 1; width <= 8; width++) {
        spw__byte_reader reader = spw__byte_reader_over(BYTES, width - 1);
        uint64_t value = 77;
        assert_false(spw__byte_reader_be(&reader, width, &value));
        assert_false(spw__byte_reader_le(&reader, width, &value));
        assert_int_equal(value, 77);
        assert_ptr_equal(reader.next, BYTES);
        assert_true(spw__byte_reader_be(&reader, width - 1, &value) || width == 1);
    }
}

static void single_bytes_end_at_the_end(void **state)
{
    (void)state;
    spw__byte_reader reader = spw__byte_reader_over(BYTES, 2);
    uint8_t value = 0;
    assert_true(spw__byte_reader_u8(&reader, &value));
    assert_int_equal(value, 0x01);
    assert_true(spw__byte_reader_u8(&reader, &value));
    assert_false(spw__byte_reader_u8(&reader, &value));
    assert_int_equal(value, 0x82);
}

static void skips_stay_inside(void **state)
{
    (void)state;
    spw__byte_reader reader = spw__byte_reader_over(BYTES, sizeof BYTES);
    assert_true(spw__byte_reader_skip(&reader, 0));
    assert_true(spw__byte_reader_skip(&reader, 5));
    assert_false(spw__byte_reader_skip(&reader, 4));
    assert_false(spw__byte_reader_skip(&reader, UINT64_MAX));
    assert_int_equal(spw__byte_reader_left(&reader), 3);
    assert_true(spw__byte_reader_skip(&reader, 3));
    assert_false(spw__byte_reader_skip(&reader, 1));
}

/* UBSan tells, where the compiler has its pointer check. */
static void nothing_may_have_no_address(void **state)
{
    (void)state;
    spw__byte_reader reader = spw__byte_reader_over(NULL, 0);
    uint8_t value;
    assert_int_equal(spw__byte_reader_left(&reader), 0);
    assert_false(spw__byte_reader_u8(&reader, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_of_each_width_in_both_orders),
        TEST(what_is_not_all_there_is_not_read),
        TEST(single_bytes_end_at_the_end),
        TEST(skips_stay_inside),
        TEST(nothing_may_have_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
