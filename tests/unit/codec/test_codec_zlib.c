/* What is special to zlib: the checksum, dictionaries, relatives that are not zlib. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "frame_writer.h"
#include "spillway/codec.h"

static const char PLAIN[] = "water runs over the spillway, over the spillway";

/* Everything that is not one zlib stream must be refused, with a reason. */
static void check_refused(const void *data, size_t size, const char *reason)
{
    char out[sizeof PLAIN];
    spw_error error = {0};
    assert_int_equal(
        spw_codec_decompress(SPW_CODEC_ZLIB, data, size, out, sizeof out, &error),
        SPW_STATUS_CORRUPT);
    if (strstr(error.message, reason) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, reason);
}

/* Compress PLAIN with zlib's own choice of container by window_bits. */
static size_t write_stream(int window_bits, const char *dictionary, unsigned char *out,
                           size_t room)
{
    z_stream stream = {0};
    assert_int_equal(
        deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    if (dictionary != NULL)
        deflateSetDictionary(&stream, (const Bytef *)dictionary,
                             (uInt)strlen(dictionary));
    stream.next_in = (Bytef *)PLAIN;
    stream.avail_in = sizeof PLAIN;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t written = room - stream.avail_out;
    deflateEnd(&stream);
    return written;
}

static void a_small_window_is_read(void **state)
{
    (void)state;
    unsigned char stream[200];
    size_t size = write_stream(9, NULL, stream, sizeof stream);
    char out[sizeof PLAIN];
    assert_int_equal(
        spw_codec_decompress(SPW_CODEC_ZLIB, stream, size, out, sizeof out, NULL),
        SPW_STATUS_OK);
    assert_string_equal(out, PLAIN);
}

static void gzip_and_raw_deflate_are_refused(void **state)
{
    (void)state;
    unsigned char stream[200];
    check_refused(stream, write_stream(15 + 16, NULL, stream, sizeof stream),
                  "incorrect header check");
    check_refused(stream, write_stream(-15, NULL, stream, sizeof stream), "damaged");
}

static void a_preset_dictionary_is_refused(void **state)
{
    (void)state;
    unsigned char stream[200];
    check_refused(stream, write_stream(15, "spillway", stream, sizeof stream),
                  "preset dictionary");
}

static void a_wrong_checksum_is_refused(void **state)
{
    (void)state;
    codec_frame frame = frame_write(SPW_CODEC_ZLIB, PLAIN, sizeof PLAIN);
    frame.bytes[frame.size - 1] ^= 1;
    check_refused(frame.bytes, frame.size, "incorrect data check");
    frame_clear(&frame);
}

static void two_streams_are_refused(void **state)
{
    (void)state;
    codec_frame one = frame_write(SPW_CODEC_ZLIB, PLAIN, sizeof PLAIN);
    codec_frame two = frame_join(&one, &one);
    check_refused(two.bytes, two.size, "followed by other bytes");
    frame_clear(&two);
    frame_clear(&one);
}

static void a_stream_never_says_its_size(void **state)
{
    (void)state;
    codec_frame frame = frame_write(SPW_CODEC_ZLIB, PLAIN, sizeof PLAIN);
    uint64_t claimed = 77;
    spw_error error;
    assert_int_equal(
        spw_codec_plain_size(SPW_CODEC_ZLIB, frame.bytes, frame.size, &claimed, &error),
        SPW_STATUS_UNSUPPORTED);
    assert_true(strstr(error.message, "does not say") != NULL);
    assert_int_equal(claimed, 77);
    frame_clear(&frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_window_is_read),
        cmocka_unit_test(gzip_and_raw_deflate_are_refused),
        cmocka_unit_test(a_preset_dictionary_is_refused),
        cmocka_unit_test(a_wrong_checksum_is_refused),
        cmocka_unit_test(two_streams_are_refused),
        cmocka_unit_test(a_stream_never_says_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
