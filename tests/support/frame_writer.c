#include "frame_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

static unsigned char *block(size_t size)
{
    unsigned char *bytes = malloc(size > 0 ? size : 1);
    assert_non_null(bytes);
    return bytes;
}

static size_t write_lz4(const void *plain, size_t plain_size, unsigned char *out,
                        size_t room)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = (unsigned char)(plain_size >> 8 * i);
    int written =
        LZ4_compress_default(plain, (char *)out + 4, (int)plain_size, (int)(room - 4));
    assert_true(written > 0);
    return 4 + (size_t)written;
}

static size_t write_zlib(const void *plain, size_t plain_size, unsigned char *out,
                         size_t room)
{
    uLongf written = room;
    assert_int_equal(compress(out, &written, plain, plain_size), Z_OK);
    return written;
}

static size_t write_snappy(const void *plain, size_t plain_size, unsigned char *out,
                           size_t room)
{
    size_t written = room;
    assert_int_equal(snappy_compress(plain, plain_size, (char *)out, &written),
                     SNAPPY_OK);
    return written;
}

static size_t write_zstd(const void *plain, size_t plain_size, unsigned char *out,
                         size_t room)
{
    size_t written = ZSTD_compress(out, room, plain, plain_size, 3);
    assert_false(ZSTD_isError(written));
    return written;
}

static size_t write_zstd_unsized(const void *plain, size_t plain_size,
                                 unsigned char *out, size_t room)
{
    ZSTD_CCtx *compressor = ZSTD_createCCtx();
    assert_non_null(compressor);
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_contentSizeFlag, 0);
    size_t written = ZSTD_compress2(compressor, out, room, plain, plain_size);
    ZSTD_freeCCtx(compressor);
    assert_false(ZSTD_isError(written));
    return written;
}

typedef size_t (*writer)(const void *plain, size_t plain_size, unsigned char *out,
                         size_t room);

static codec_frame write_by(writer write, const void *plain, size_t plain_size)
{
    /* More than any of the four needs for data that does not shrink. */
    size_t room = plain_size + plain_size / 4 + 1024;
    codec_frame roomy = {block(room), room};
    size_t written = write(plain, plain_size, roomy.bytes, room);
    codec_frame exact = frame_cut(&roomy, written);
    frame_clear(&roomy);
    return exact;
}

codec_frame frame_write(spw_codec_id codec, const void *plain, size_t plain_size)
{
    static const writer WRITERS[] = {
        [SPW_CODEC_LZ4] = write_lz4,
        [SPW_CODEC_ZSTD] = write_zstd,
        [SPW_CODEC_SNAPPY] = write_snappy,
        [SPW_CODEC_ZLIB] = write_zlib,
    };
    return write_by(WRITERS[codec], plain, plain_size);
}

codec_frame frame_write_zstd_unsized(const void *plain, size_t plain_size)
{
    return write_by(write_zstd_unsized, plain, plain_size);
}

codec_frame frame_cut(const codec_frame *whole, size_t size)
{
    codec_frame cut = {block(size), size};
    memcpy(cut.bytes, whole->bytes, size);
    return cut;
}

codec_frame frame_join(const codec_frame *first, const codec_frame *second)
{
    codec_frame joined = {block(first->size + second->size),
                          first->size + second->size};
    memcpy(joined.bytes, first->bytes, first->size);
    memcpy(joined.bytes + first->size, second->bytes, second->size);
    return joined;
}

void frame_clear(codec_frame *frame)
{
    free(frame->bytes);
    frame->bytes = NULL;
    frame->size = 0;
}
