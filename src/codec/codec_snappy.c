/* snappy: the raw format, a varint with the plain size and then the elements; what
 * python-snappy's snappy.compress writes and Dask sends. (Not the framing format.) */
#include <snappy-c.h>

#include "codec/codec_ops.h"
#include "context/error.h"

/* Snappy's format description: the densest element is a copy of 64 bytes in 3 (tag and
 * two-byte offset), 64 / 3 rounded up. */
#define HIGHEST_RATIO 22

static spw_status plain_size(const void *data, size_t size, uint64_t *ret_plain_size,
                             spw_error *error)
{
    size_t claimed;
    if (snappy_uncompressed_length(data, size, &claimed) != SNAPPY_OK)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "a snappy frame of %zu bytes does not start with a size",
                              size);
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
                              "a snappy frame claims %llu bytes where %zu are expected",
                              (unsigned long long)claimed, out_size);
    /* It answers an error unless the elements fill what the frame claims and end
     * exactly where the input does. */
    size_t written = out_size;
    if (snappy_uncompress(data, size, out, &written) != SNAPPY_OK)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "a snappy frame of %zu bytes is damaged or truncated",
                              size);
    return SPW_STATUS_OK;
}

static size_t bound(size_t size)
{
    return size > UINT32_MAX ? 0 : snappy_max_compressed_length(size);
}

static spw_status compress(const void *data, size_t size, void *out, size_t out_size,
                           size_t *ret_size, spw_error *error)
{
    size_t written = out_size;
    if (snappy_compress(data, size, out, &written) != SNAPPY_OK)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "snappy wants room for %zu bytes, not %zu, to compress "
                              "%zu",
                              bound(size), out_size, size);
    *ret_size = written;
    return SPW_STATUS_OK;
}

const spw__codec_ops spw__codec_snappy = {
    .id = SPW_CODEC_SNAPPY,
    .name = "snappy",
    .highest_ratio = HIGHEST_RATIO,
    .plain_size = plain_size,
    .decompress = decompress,
    .bound = bound,
    .compress = compress,
};
