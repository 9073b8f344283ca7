/* What is special to lz4: the size prefix, and a library that counts in int. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>

#include "codec/codec_ops.h"

static spw_status plain_size(const void *data, size_t size, uint64_t *ret_plain_size,
                             spw_error *error)
{
    return spw__codec_lz4.plain_size(data, size, ret_plain_size, error);
}

static void the_prefix_is_little_endian(void **state)
{
    (void)state;
    uint64_t claimed = 0;
    assert_int_equal(plain_size("\x04\x03\x02\x01x", 5, &claimed, NULL), SPW_STATUS_OK);
    assert_int_equal(claimed, 0x01020304);
}

static void a_prefix_alone_is_refused(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 4; size++) {
        uint64_t claimed = 77;
        spw_error error;
        assert_int_equal(plain_size("\0\0\0", size, &claimed, &error),
                         SPW_STATUS_CORRUPT);
        assert_true(strstr(error.message, "size prefix") != NULL);
        assert_int_equal(claimed, 77);
    }
}

static void a_block_beyond_int_is_refused(void **state)
{
    (void)state;
    /* Only the prefix may be read: there is no more behind it. */
    static const char prefix[] = {0, 0, 0, 1};
    const size_t largest = (size_t)INT_MAX + 4;
    uint64_t claimed = 0;
    spw_error error;
    assert_int_equal(plain_size(prefix, largest, &claimed, &error), SPW_STATUS_OK);
    assert_int_equal(claimed, 1 << 24);
    assert_int_equal(plain_size(prefix, largest + 1, &claimed, &error),
                     SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "2147483647 at most") != NULL);
    char out[1];
    assert_int_equal(spw__codec_lz4.decompress(prefix, SIZE_MAX, out, 1 << 24, &error),
                     SPW_STATUS_CORRUPT);
}

static void a_claim_beyond_the_largest_input_is_refused(void **state)
{
    (void)state;
    uint64_t claimed = 0;
    spw_error error;
    assert_int_equal(plain_size("\0\0\0\x7ex", 5, &claimed, &error), SPW_STATUS_OK);
    assert_int_equal(claimed, LZ4_MAX_INPUT_SIZE);
    assert_int_equal(plain_size("\x01\0\0\x7ex", 5, &claimed, &error),
                     SPW_STATUS_CORRUPT);
    assert_int_equal(plain_size("\xff\xff\xff\xffx", 5, &claimed, &error),
                     SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "claims 4294967295 bytes") != NULL);
}

static void a_wrong_claim_is_refused(void **state)
{
    (void)state;
    char out[16];
    spw_error error;
    /* A token for 3 literals. */
    assert_int_equal(spw__codec_lz4.decompress("\x03\0\0\0\x30"
                                               "abc",
                                               8, out, 3, &error),
                     SPW_STATUS_OK);
    assert_memory_equal(out, "abc", 3);
    assert_int_equal(spw__codec_lz4.decompress("\x04\0\0\0\x30"
                                               "abc",
                                               8, out, 4, &error),
                     SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "holds 3 bytes where it claims 4") != NULL);
    assert_int_equal(spw__codec_lz4.decompress("\x02\0\0\0\x30"
                                               "abc",
                                               8, out, 2, &error),
                     SPW_STATUS_CORRUPT);
}

static void a_reference_before_the_start_is_refused(void **state)
{
    (void)state;
    /* One literal, then a match 2 bytes back, then 5 literals. */
    static const char frame[] = "\x0a\0\0\0\x10z\x02\0\x50xxxxx";
    char out[10];
    assert_int_equal(
        spw__codec_lz4.decompress(frame, sizeof frame - 1, out, sizeof out, NULL),
        SPW_STATUS_CORRUPT);
}

static void what_is_larger_than_a_block_is_not_compressed(void **state)
{
    (void)state;
    const size_t most = LZ4_MAX_INPUT_SIZE;
    assert_true(spw_codec_bound(SPW_CODEC_LZ4, most) > most);
    static const size_t BEYOND[] = {LZ4_MAX_INPUT_SIZE + 1, (size_t)INT_MAX + 1,
                                    (size_t)UINT32_MAX + 10, SIZE_MAX};
    for (size_t i = 0; i < sizeof BEYOND / sizeof BEYOND[0]; i++) {
        char out[100];
        size_t written = 77;
        spw_error error;
        assert_int_equal(spw_codec_bound(SPW_CODEC_LZ4, BEYOND[i]), 0);
        assert_int_equal(spw_codec_compress(SPW_CODEC_LZ4, "", BEYOND[i], out,
                                            sizeof out, &written, &error),
                         SPW_STATUS_UNSUPPORTED);
        assert_true(strstr(error.message, "no lz4 frame can hold") != NULL);
        assert_int_equal(written, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prefix_is_little_endian),
        cmocka_unit_test(a_prefix_alone_is_refused),
        cmocka_unit_test(a_block_beyond_int_is_refused),
        cmocka_unit_test(a_claim_beyond_the_largest_input_is_refused),
        cmocka_unit_test(a_wrong_claim_is_refused),
        cmocka_unit_test(a_reference_before_the_start_is_refused),
        cmocka_unit_test(what_is_larger_than_a_block_is_not_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
