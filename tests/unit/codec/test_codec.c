/* The registry: which codecs there are. What each of them must do is in
 * contract/test_codec_contract.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "counted_context.h"
#include "spillway/codec.h"

static void names_are_dasks(void **state)
{
    (void)state;
    assert_int_equal(spw_codec_by_name("lz4"), SPW_CODEC_LZ4);
    assert_int_equal(spw_codec_by_name("zstd"), SPW_CODEC_ZSTD);
    assert_int_equal(spw_codec_by_name("snappy"), SPW_CODEC_SNAPPY);
    assert_int_equal(spw_codec_by_name("zlib"), SPW_CODEC_ZLIB);
}

static void other_names_are_no_codec(void **state)
{
    (void)state;
    static const char *const OTHERS[] = {"", "auto", "LZ4", "lz", "lz4 ", "gzip", NULL};
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++)
        assert_int_equal(spw_codec_by_name(OTHERS[i]), SPW_CODEC_NONE);
}

static void unknown_numbers_are_refused(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    static const int NUMBERS[] = {SPW_CODEC_NONE, SPW_CODEC_ZLIB + 1, -1, 1000};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        spw_codec_id codec = (spw_codec_id)NUMBERS[i];
        uint64_t claimed = 77;
        char out = 'x';
        spw_buffer *buffer = NULL;
        spw_error error;
        assert_int_equal(spw_codec_plain_size(codec, "abcd", 4, &claimed, &error),
                         SPW_STATUS_INVALID_ARGUMENT);
        assert_true(strstr(error.message, "no codec has the number") != NULL);
        assert_int_equal(claimed, 77);
        assert_int_equal(spw_codec_decompress(codec, "abcd", 4, &out, 1, &error),
                         SPW_STATUS_INVALID_ARGUMENT);
        assert_int_equal(out, 'x');
        assert_int_equal(spw_codec_expand(counted.context, codec, "abcd", 4,
                                          SPW_CHARGE_HELD, &buffer, &error),
                         SPW_STATUS_INVALID_ARGUMENT);
        size_t written = 77;
        assert_int_equal(spw_codec_bound(codec, 4), 0);
        assert_string_equal(spw_codec_name(codec), "");
        assert_int_equal(
            spw_codec_compress(codec, "abcd", 4, &out, 1, &written, &error),
            SPW_STATUS_INVALID_ARGUMENT);
        assert_int_equal(written, 77);
        assert_null(buffer);
    }
    counted_context_close(&counted);
}

static void a_claim_is_held_against_the_ratio(void **state)
{
    (void)state;
    /* lz4, 5 bytes: 5 * 255 = 1275 is the most that is believed. */
    static const unsigned char most[] = {0xFB, 0x04, 0, 0, 0};
    static const unsigned char beyond[] = {0xFC, 0x04, 0, 0, 0};
    uint64_t claimed = 0;
    spw_error error;
    assert_int_equal(
        spw_codec_plain_size(SPW_CODEC_LZ4, most, sizeof most, &claimed, &error),
        SPW_STATUS_OK);
    assert_int_equal(claimed, 1275);
    assert_int_equal(
        spw_codec_plain_size(SPW_CODEC_LZ4, beyond, sizeof beyond, &claimed, &error),
        SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "5 bytes cannot hold 1276 bytes") != NULL);
    assert_int_equal(claimed, 1275);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_dasks),
        cmocka_unit_test(other_names_are_no_codec),
        cmocka_unit_test(unknown_numbers_are_refused),
        cmocka_unit_test(a_claim_is_held_against_the_ratio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
