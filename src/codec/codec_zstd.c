/* zstd: Zstandard frames (RFC 8878). Stock peers send one frame that says its size; the
 * RFC's other shapes are read too: several frames one after another (their contents
 * follow each other), skippable frames (nothing), frames that do not say their size.
 * Only the library's stable interface is used. */
#include <zstd.h>
#include <zstd_errors.h>

#include "codec/codec_ops.h"
#include "context/error.h"
#include "memory/byte_reader.h"

/* RFC 8878, 3.1.1.2: the densest block is an RLE block, 4 bytes for at most 128 KiB. */
#define HIGHEST_RATIO 32768
/* The fastest of the usual levels. */
enum { LEVEL = 1 };

static spw_status zstd_failed(size_t code, spw_error *error)
{
    if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a zstd decompressor");
    return spw__error_set(error, SPW_STATUS_CORRUPT, 0, "a zstd frame is damaged: %s",
                          ZSTD_getErrorName(code));
}

/* The library may have been built to read the formats before 0.8 as well. Their
 * decoders are old, no Dask peer writes them: they are refused by their first bytes. */
static bool is_frame_start(const void *data, size_t size)
{
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    uint64_t magic;
    return spw__byte_reader_le(&reader, 4, &magic) &&
           (magic == ZSTD_MAGICNUMBER ||
            (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START);
}

/* Walk over the frames' headers and block headers, nothing is decompressed: are the
 * frames whole, and what do they say they hold together? */
static spw_status measure(const void *data, size_t size, bool *ret_is_known,
                          uint64_t *ret_plain_size, spw_error *error)
{
    const char *next = data;
    bool is_known = true;
    uint64_t total = 0;
    while (size > 0) {
        if (!is_frame_start(next, size))
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "no zstd frame where one should start");
        size_t frame_size = ZSTD_findFrameCompressedSize(next, size);
        if (ZSTD_isError(frame_size))
            return zstd_failed(frame_size, error);
        unsigned long long content = ZSTD_getFrameContentSize(next, size);
        if (content == ZSTD_CONTENTSIZE_ERROR)
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "a zstd frame has a damaged header");
        if (content == ZSTD_CONTENTSIZE_UNKNOWN)
            is_known = false;
        else if (content > UINT64_MAX - total)
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "zstd frames claim more than 2^64 bytes");
        else
            total += content;
        next += frame_size;
        size -= frame_size;
    }
    *ret_is_known = is_known;
    *ret_plain_size = total;
    return SPW_STATUS_OK;
}

static spw_status plain_size(const void *data, size_t size, uint64_t *ret_plain_size,
                             spw_error *error)
{
    bool is_known = false;
    uint64_t total = 0;
    spw_status status = measure(data, size, &is_known, &total, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (!is_known)
        return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                              "a zstd frame does not say how many bytes it holds; it "
                              "can be expanded");
    *ret_plain_size = total;
    return SPW_STATUS_OK;
}

static spw_status decompress(const void *data, size_t size, void *out, size_t out_size,
                             spw_error *error)
{
    bool is_known = false;
    uint64_t total = 0;
    spw_status status = measure(data, size, &is_known, &total, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (is_known && total != out_size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "a zstd frame claims %llu bytes where %zu are expected",
                              (unsigned long long)total, out_size);
    size_t written = ZSTD_decompress(out, out_size, data, size);
    if (ZSTD_isError(written))
        return zstd_failed(written, error);
    if (written != out_size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "a zstd frame holds %zu bytes where %zu are expected",
                              written, out_size);
    return SPW_STATUS_OK;
}

static spw_status expand_with(ZSTD_DCtx *decompressor, const void *data, size_t size,
                              spw__plain_output *output, spw_error *error)
{
    ZSTD_inBuffer in = {.src = data, .size = size};
    for (;;) {
        ZSTD_outBuffer out = {0};
        spw_status status = spw__plain_output_room(output, &out.dst, &out.size, error);
        if (status != SPW_STATUS_OK)
            return status;
        size_t missing = ZSTD_decompressStream(decompressor, &out, &in);
        if (ZSTD_isError(missing))
            return zstd_failed(missing, error);
        spw__plain_output_advance(output, out.pos);
        if (in.pos < in.size)
            continue;
        if (missing == 0)
            return SPW_STATUS_OK;
        /* measure() has seen whole frames. Still, that this loop ends must not rest on
         * two functions of the library agreeing about where. */
        if (out.pos < out.size)
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "a zstd frame is truncated");
    }
}

static spw_status expand(const void *data, size_t size, spw__plain_output *output,
                         spw_error *error)
{
    ZSTD_DCtx *decompressor = ZSTD_createDCtx();
    if (decompressor == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a zstd decompressor");
    spw_status status = expand_with(decompressor, data, size, output, error);
    ZSTD_freeDCtx(decompressor);
    return status;
}

static size_t bound(size_t size)
{
    size_t most = ZSTD_compressBound(size);
    return ZSTD_isError(most) ? 0 : most;
}

static spw_status compress(const void *data, size_t size, void *out, size_t out_size,
                           size_t *ret_size, spw_error *error)
{
    size_t written = ZSTD_compress(out, out_size, data, size, LEVEL);
    if (ZSTD_isError(written) &&
        ZSTD_getErrorCode(written) == ZSTD_error_dstSize_tooSmall)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%zu bytes do not compress to a zstd frame of %zu", size,
                              out_size);
    if (ZSTD_isError(written))
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "zstd cannot compress %zu bytes: %s", size,
                              ZSTD_getErrorName(written));
    *ret_size = written;
    return SPW_STATUS_OK;
}

const spw__codec_ops spw__codec_zstd = {
    .id = SPW_CODEC_ZSTD,
    .name = "zstd",
    .highest_ratio = HIGHEST_RATIO,
    .plain_size = plain_size,
    .decompress = decompress,
    .expand = expand,
    .bound = bound,
    .compress = compress,
};
