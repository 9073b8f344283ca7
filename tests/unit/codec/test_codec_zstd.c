/* What is special to zstd: sequences of frames, frames without a size, headers that
 * ask for much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "counted_context.h"
#include "frame_writer.h"
#include "spillway/codec.h"

static spw_status plain_size(const void *data, size_t size, uint64_t *ret_plain_size,
                             spw_error *error)
{
    return spw_codec_plain_size(SPW_CODEC_ZSTD, data, size, ret_plain_size, error);
}

/* Both ways of decompressing must give plain. */
static void check_reads(const codec_frame *frame, const char *plain)
{
    size_t size = strlen(plain);
    char out[100];
    assert_true(size <= sizeof out);
    assert_int_equal(spw_codec_decompress(SPW_CODEC_ZSTD, frame->bytes, frame->size,
                                          out, size, NULL),
                     SPW_STATUS_OK);
    assert_memory_equal(out, plain, size);
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer;
    assert_int_equal(spw_codec_expand(counted.context, SPW_CODEC_ZSTD, frame->bytes,
                                      frame->size, SPW_CHARGE_HELD, &buffer, NULL),
                     SPW_STATUS_OK);
    assert_int_equal(spw_buffer_size(buffer), size);
    assert_memory_equal(spw_buffer_data(buffer), plain, size);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

static spw_status expand(const void *data, size_t size, spw_error *error)
{
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer = NULL;
    spw_status status = spw_codec_expand(counted.context, SPW_CODEC_ZSTD, data, size,
                                         SPW_CHARGE_HELD, &buffer, error);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
    return status;
}

static void frames_follow_each_other(void **state)
{
    (void)state;
    codec_frame one = frame_write(SPW_CODEC_ZSTD, "spill", 5);
    codec_frame other = frame_write(SPW_CODEC_ZSTD, "way", 3);
    codec_frame both = frame_join(&one, &other);
    uint64_t claimed = 0;
    assert_int_equal(plain_size(both.bytes, both.size, &claimed, NULL), SPW_STATUS_OK);
    assert_int_equal(claimed, 8);
    check_reads(&both, "spillway");
    frame_clear(&both);
    frame_clear(&other);
    frame_clear(&one);
}

static void one_frame_without_a_size_hides_the_sum(void **state)
{
    (void)state;
    codec_frame one = frame_write(SPW_CODEC_ZSTD, "spill", 5);
    codec_frame other = frame_write_zstd_unsized("way", 3);
    codec_frame both = frame_join(&one, &other);
    uint64_t claimed = 77;
    spw_error error;
    assert_int_equal(plain_size(both.bytes, both.size, &claimed, &error),
                     SPW_STATUS_UNSUPPORTED);
    assert_true(strstr(error.message, "does not say") != NULL);
    assert_int_equal(claimed, 77);
    check_reads(&both, "spillway");
    codec_frame cut = frame_cut(&both, both.size - 1);
    assert_int_equal(expand(cut.bytes, cut.size, &error), SPW_STATUS_CORRUPT);
    frame_clear(&cut);
    frame_clear(&both);
    frame_clear(&other);
    frame_clear(&one);
}

static void skippable_frames_hold_nothing(void **state)
{
    (void)state;
    unsigned char skippable_bytes[] = {0x5A, 0x2A, 0x4D, 0x18, 3,  0,
                                       0,    0,    'a',  'b',  'c'};
    codec_frame skippable = {skippable_bytes, sizeof skippable_bytes};
    codec_frame one = frame_write(SPW_CODEC_ZSTD, "spillway", 8);
    codec_frame before = frame_join(&skippable, &one);
    codec_frame around = frame_join(&before, &skippable);
    check_reads(&before, "spillway");
    check_reads(&around, "spillway");
    check_reads(&skippable, "");
    frame_clear(&around);
    frame_clear(&before);
    frame_clear(&one);
}

static void older_formats_are_refused(void **state)
{
    (void)state;
    /* Magic numbers of the formats 0.1 to 0.7, which the library may be able to read.
     */
    static const unsigned char LAST_BYTES[] = {0x1E, 0x22, 0x23, 0x24,
                                               0x25, 0x26, 0x27};
    for (size_t i = 0; i < sizeof LAST_BYTES; i++) {
        unsigned char frame[64] = {LAST_BYTES[i], 0xB5, 0x2F, 0xFD};
        uint64_t claimed = 77;
        spw_error error;
        assert_int_equal(plain_size(frame, sizeof frame, &claimed, &error),
                         SPW_STATUS_CORRUPT);
        assert_true(strstr(error.message, "no zstd frame") != NULL);
        char out[10];
        assert_int_equal(spw_codec_decompress(SPW_CODEC_ZSTD, frame, sizeof frame, out,
                                              sizeof out, NULL),
                         SPW_STATUS_CORRUPT);
        assert_int_equal(expand(frame, sizeof frame, NULL), SPW_STATUS_CORRUPT);
    }
}

/* A frame header with an 8-byte content size, then one empty last block. */
#define SIZED_FRAME(size_bytes) "\x28\xb5\x2f\xfd\xe0" size_bytes "\x01\0\0"

static void a_claim_out_of_reach_is_refused(void **state)
{
    (void)state;
    static const char frame[] = SIZED_FRAME("\0\0\0\0\0\x10\0\0");
    uint64_t claimed = 77;
    spw_error error;
    assert_int_equal(plain_size(frame, sizeof frame - 1, &claimed, &error),
                     SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "cannot hold 17592186044416 bytes") != NULL);
    assert_int_equal(claimed, 77);
    assert_int_equal(expand(frame, sizeof frame - 1, &error), SPW_STATUS_CORRUPT);
}

static void claims_that_overflow_together_are_refused(void **state)
{
    (void)state;
    static const char frames[] =
        SIZED_FRAME("\0\0\0\0\0\0\0\x80") SIZED_FRAME("\0\0\0\0\0\0\0\x80");
    uint64_t claimed = 77;
    spw_error error;
    assert_int_equal(plain_size(frames, sizeof frames - 1, &claimed, &error),
                     SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "more than 2^64") != NULL);
}

static void a_claim_that_does_not_come_true_is_refused(void **state)
{
    (void)state;
    static const char frame[] = SIZED_FRAME("\x05\0\0\0\0\0\0\0");
    spw_error error;
    assert_int_equal(expand(frame, sizeof frame - 1, &error), SPW_STATUS_CORRUPT);
    char out[5];
    assert_int_equal(spw_codec_decompress(SPW_CODEC_ZSTD, frame, sizeof frame - 1, out,
                                          sizeof out, &error),
                     SPW_STATUS_CORRUPT);
}

static void a_window_beyond_128_mib_is_refused(void **state)
{
    (void)state;
    /* No content size; window descriptors of 2^27 and of 2^28 bytes; an empty block. */
    static const char most[] = "\x28\xb5\x2f\xfd\0\x88\x01\0\0";
    static const char beyond[] = "\x28\xb5\x2f\xfd\0\x90\x01\0\0";
    spw_error error;
    assert_int_equal(expand(most, sizeof most - 1, &error), SPW_STATUS_OK);
    assert_int_equal(expand(beyond, sizeof beyond - 1, &error), SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "too much memory") != NULL);
}

static void what_no_size_can_be_is_not_compressed(void **state)
{
    (void)state;
    char out[100];
    size_t written = 77;
    assert_int_equal(spw_codec_bound(SPW_CODEC_ZSTD, SIZE_MAX), 0);
    assert_int_equal(spw_codec_compress(SPW_CODEC_ZSTD, "", SIZE_MAX, out, sizeof out,
                                        &written, NULL),
                     SPW_STATUS_UNSUPPORTED);
    assert_int_equal(written, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_follow_each_other),
        cmocka_unit_test(one_frame_without_a_size_hides_the_sum),
        cmocka_unit_test(skippable_frames_hold_nothing),
        cmocka_unit_test(older_formats_are_refused),
        cmocka_unit_test(a_claim_out_of_reach_is_refused),
        cmocka_unit_test(claims_that_overflow_together_are_refused),
        cmocka_unit_test(a_claim_that_does_not_come_true_is_refused),
        cmocka_unit_test(a_window_beyond_128_mib_is_refused),
        cmocka_unit_test(what_no_size_can_be_is_not_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
