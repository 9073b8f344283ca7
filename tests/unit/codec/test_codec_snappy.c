/* What is special to snappy: the varint and the elements of the raw format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spillway/codec.h"

static spw_status plain_size(const void *data, size_t size, uint64_t *ret_plain_size)
{
    return spw_codec_plain_size(SPW_CODEC_SNAPPY, data, size, ret_plain_size, NULL);
}

static spw_status decompress(const void *data, size_t size, void *out, size_t out_size)
{
    return spw_codec_decompress(SPW_CODEC_SNAPPY, data, size, out, out_size, NULL);
}

static void the_size_is_a_varint(void **state)
{
    (void)state;
    unsigned char frame[100] = {0xAC, 0x02};
    uint64_t claimed = 0;
    assert_int_equal(plain_size(frame, sizeof frame, &claimed), SPW_STATUS_OK);
    assert_int_equal(claimed, 300);
}

static void a_varint_without_end_is_refused(void **state)
{
    (void)state;
    unsigned char frame[100];
    memset(frame, 0xFF, sizeof frame);
    uint64_t claimed = 77;
    for (size_t size = 1; size <= sizeof frame; size++)
        assert_int_equal(plain_size(frame, size, &claimed), SPW_STATUS_CORRUPT);
    assert_int_equal(claimed, 77);
}

static void four_gib_in_a_few_bytes_are_refused(void **state)
{
    (void)state;
    /* 2^32 - 1, the most that the format can claim. */
    static const unsigned char frame[] = {0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x00, 'x'};
    uint64_t claimed = 77;
    assert_int_equal(plain_size(frame, sizeof frame, &claimed), SPW_STATUS_CORRUPT);
    assert_int_equal(claimed, 77);
}

static void a_wrong_claim_is_refused(void **state)
{
    (void)state;
    unsigned char frame[] = {3, 2 << 2, 'a', 'b', 'c'}; /* a literal of 3 bytes */
    char out[4];
    assert_int_equal(decompress(frame, sizeof frame, out, 3), SPW_STATUS_OK);
    assert_memory_equal(out, "abc", 3);
    frame[0] = 4;
    assert_int_equal(decompress(frame, sizeof frame, out, 4), SPW_STATUS_CORRUPT);
    frame[0] = 2;
    assert_int_equal(decompress(frame, sizeof frame, out, 2), SPW_STATUS_CORRUPT);
}

static void a_reference_before_the_start_is_refused(void **state)
{
    (void)state;
    /* One literal, then a copy of 4 bytes (one-byte offset) from offset back. */
    unsigned char frame[] = {5, 0, 'z', 0x01, 1};
    char out[5];
    assert_int_equal(decompress(frame, sizeof frame, out, 5), SPW_STATUS_OK);
    assert_memory_equal(out, "zzzzz", 5);
    frame[4] = 2;
    assert_int_equal(decompress(frame, sizeof frame, out, 5), SPW_STATUS_CORRUPT);
    frame[4] = 0;
    assert_int_equal(decompress(frame, sizeof frame, out, 5), SPW_STATUS_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_is_a_varint),
        cmocka_unit_test(a_varint_without_end_is_refused),
        cmocka_unit_test(four_gib_in_a_few_bytes_are_refused),
        cmocka_unit_test(a_wrong_claim_is_refused),
        cmocka_unit_test(a_reference_before_the_start_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
