/* lz4: one LZ4 block after its plain size, 4 bytes little-endian; what python-lz4's
 * lz4.block.compress writes and Dask sends. (Not the LZ4 frame format.) */
#include <limits.h>
#include <lz4.h>

#include "codec/codec_ops.h"
#include "context/error.h"
#include "memory/byte_reader.h"

/* LZ4 block format: token and offset, 3 bytes, give a match of 18 bytes; each byte that
 * lengthens it adds 255 at most. */
#define HIGHEST_RATIO 255
#define PREFIX_BYTES 4

static spw_status plain_size(const void *data, size_t size, uint64_t *ret_plain_size,
                             spw_error *error)
{
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    uint64_t claimed;
    if (!spw__byte_reader_le(&reader, PREFIX_BYTES, &claimed) ||
        spw__byte_reader_left(&reader) == 0)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "an lz4 frame of %zu bytes ends in its size prefix or "
                              "right after it",
                              size);
    /* The library counts in int. Neither can come from an LZ4 compressor, whose input
     * ends at LZ4_MAX_INPUT_SIZE. */
    if (claimed > LZ4_MAX_INPUT_SIZE)
        return spw__error_set(
            error, SPW_STATUS_CORRUPT, 0,
            "an lz4 frame claims %llu bytes; a block holds %d at most",
            (unsigned long long)claimed, LZ4_MAX_INPUT_SIZE);
    if (spw__byte_reader_left(&reader) > INT_MAX)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "an lz4 frame has %zu bytes; a block has %d at most",
                              size, INT_MAX);
    *ret_plain_size = claimed;
    return SPW_STATUS_OK;
}

static spw_status decompress(const void *data, size_t size, void *out, size_t out_size,
                             spw_error *error)
{
    uint64_t claimed = 0;
    spw_status status = plain_size(data, size, &claimed, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (claimed != out_size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "an lz4 frame claims %llu bytes where %zu are expected",
                              (unsigned long long)claimed, out_size);
    /* It answers an error unless the block ends exactly where the input does. */
    int written = LZ4_decompress_safe((const char *)data + PREFIX_BYTES, out,
                                      (int)(size - PREFIX_BYTES), (int)out_size);
    if (written < 0)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "an lz4 frame of %zu bytes is damaged or truncated",
                              size);
    if ((size_t)written != out_size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "an lz4 frame holds %d bytes where it claims %zu",
                              written, out_size);
    return SPW_STATUS_OK;
}

static size_t bound(size_t size)
{
    if (size > LZ4_MAX_INPUT_SIZE)
        return 0;
    return PREFIX_BYTES + (size_t)LZ4_compressBound((int)size);
}

static spw_status compress(const void *data, size_t size, void *out, size_t out_size,
                           size_t *ret_size, spw_error *error)
{
    int written = 0;
    if (out_size > PREFIX_BYTES) {
        size_t room = out_size - PREFIX_BYTES;
        written = LZ4_compress_default(data, (char *)out + PREFIX_BYTES, (int)size,
                                       room < INT_MAX ? (int)room : INT_MAX);
    }
    if (written <= 0)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%zu bytes do not compress to an lz4 frame of %zu", size,
                              out_size);
    for (unsigned i = 0; i < PREFIX_BYTES; i++)
        ((unsigned char *)out)[i] = (unsigned char)(size >> 8 * i);
    *ret_size = PREFIX_BYTES + (size_t)written;
    return SPW_STATUS_OK;
}

const spw__codec_ops spw__codec_lz4 = {
    .id = SPW_CODEC_LZ4,
    .name = "lz4",
    .highest_ratio = HIGHEST_RATIO,
    .plain_size = plain_size,
    .decompress = decompress,
    .bound = bound,
    .compress = compress,
};
