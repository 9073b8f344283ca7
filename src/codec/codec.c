/* The codecs that Dask's peers use, by name and by number, and the checks that are the
 * same for all of them.
 * Invariant: no codec sees an empty frame, and no memory is taken for a size that a
 * frame claims before the claim has been held against the codec's highest ratio. */
#include "spillway/codec.h"

#include <inttypes.h>
#include <string.h>

#include "codec/codec_ops.h"
#include "context/error.h"
#include "context/figures.h"

static const spw__codec_ops *const CODECS[] = {
    &spw__codec_lz4,
    &spw__codec_zstd,
    &spw__codec_snappy,
    &spw__codec_zlib,
};
enum { CODEC_COUNT = sizeof CODECS / sizeof CODECS[0] };

spw_codec_id spw_codec_by_name(const char *name)
{
    for (int i = 0; name != NULL && i < CODEC_COUNT; i++) {
        if (strcmp(CODECS[i]->name, name) == 0)
            return CODECS[i]->id;
    }
    return SPW_CODEC_NONE;
}

/* Returns: NULL for a number that is none of theirs. */
static const spw__codec_ops *look_up(spw_codec_id id)
{
    for (int i = 0; i < CODEC_COUNT; i++) {
        if (CODECS[i]->id == id)
            return CODECS[i];
    }
    return NULL;
}

const char *spw_codec_name(spw_codec_id codec)
{
    const spw__codec_ops *ops = look_up(codec);
    return ops != NULL ? ops->name : "";
}

static spw_status no_codec(spw_codec_id id, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "no codec has the number %d", (int)id);
}

/* The codec of a frame that is not empty: no codec writes an empty one. */
static spw_status find(spw_codec_id id, size_t size, const spw__codec_ops **ret_ops,
                       spw_error *error)
{
    const spw__codec_ops *ops = look_up(id);
    if (ops == NULL)
        return no_codec(id, error);
    if (size == 0)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0, "a %s frame has no bytes",
                              ops->name);
    *ret_ops = ops;
    return SPW_STATUS_OK;
}

static spw_status check_ratio(const spw__codec_ops *ops, size_t size,
                              uint64_t plain_size, spw_error *error)
{
    /* A division, since size * highest_ratio could overflow. */
    uint64_t least =
        plain_size / ops->highest_ratio + (plain_size % ops->highest_ratio != 0);
    if (least > size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "a %s frame of %zu bytes cannot hold %" PRIu64
                              " bytes: the codec reaches %" PRIu64 ":1 at most",
                              ops->name, size, plain_size, ops->highest_ratio);
    return SPW_STATUS_OK;
}

static spw_status claimed_size(const spw__codec_ops *ops, const void *data, size_t size,
                               uint64_t *ret_plain_size, spw_error *error)
{
    if (ops->plain_size == NULL)
        return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                              "a %s frame does not say how many bytes it holds; "
                              "it can be expanded",
                              ops->name);
    uint64_t plain_size = 0;
    spw_status status = ops->plain_size(data, size, &plain_size, error);
    if (status == SPW_STATUS_OK)
        status = check_ratio(ops, size, plain_size, error);
    if (status == SPW_STATUS_OK)
        *ret_plain_size = plain_size;
    return status;
}

spw_status spw_codec_plain_size(spw_codec_id codec, const void *data, size_t size,
                                uint64_t *ret_plain_size, spw_error *error)
{
    const spw__codec_ops *ops;
    spw_status status = find(codec, size, &ops, error);
    if (status != SPW_STATUS_OK)
        return status;
    return claimed_size(ops, data, size, ret_plain_size, error);
}

spw_status spw_codec_decompress(spw_codec_id codec, const void *data, size_t size,
                                void *out, size_t out_size, spw_error *error)
{
    const spw__codec_ops *ops;
    spw_status status = find(codec, size, &ops, error);
    if (status == SPW_STATUS_OK)
        status = check_ratio(ops, size, out_size, error);
    if (status != SPW_STATUS_OK)
        return status;
    /* The codecs' libraries take NULL for a mistake even where nothing is written. */
    char nowhere;
    return ops->decompress(data, size, out_size > 0 ? out : &nowhere, out_size, error);
}

/* A frame whose size is known: the buffer is allocated once. */
static spw_status expand_claimed(spw_context *context, const spw__codec_ops *ops,
                                 const void *data, size_t size, uint64_t plain_size,
                                 spw_charge charge, spw_buffer **ret_buffer,
                                 spw_error *error)
{
    uint64_t limit = context->limits.bytes_per_message;
    if (plain_size > limit || plain_size > SIZE_MAX / 2)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "a %s frame claims to hold %" PRIu64 " bytes, above the "
                              "limit of %" PRIu64 " bytes a message",
                              ops->name, plain_size, limit);
    spw_buffer *buffer;
    spw_status status =
        spw_buffer_create(context, (size_t)plain_size, charge, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    status =
        ops->decompress(data, size, spw_buffer_data(buffer), (size_t)plain_size, error);
    if (status != SPW_STATUS_OK) {
        spw_buffer_unref(buffer);
        return status;
    }
    *ret_buffer = buffer;
    return SPW_STATUS_OK;
}

static spw_status expand_growing(spw_context *context, const spw__codec_ops *ops,
                                 const void *data, size_t size, spw_charge charge,
                                 spw_buffer **ret_buffer, spw_error *error)
{
    /* Four times: Dask sends a frame compressed only when it shrinks to 0.7 or less,
     * and columns of numbers and text shrink to a half or a quarter. */
    size_t expected = size < SIZE_MAX / 4 ? size * 4 : size;
    spw__plain_output output;
    spw__plain_output_init(&output, context, charge, context->limits.bytes_per_message,
                           expected);
    spw_status status = ops->expand(data, size, &output, error);
    if (status == SPW_STATUS_OK)
        status = spw__plain_output_finish(&output, ret_buffer, error);
    spw__plain_output_clear(&output);
    return status;
}

spw_status spw_codec_expand(spw_context *context, spw_codec_id codec, const void *data,
                            size_t size, spw_charge charge, spw_buffer **ret_buffer,
                            spw_error *error)
{
    const spw__codec_ops *ops;
    spw_status status = find(codec, size, &ops, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint64_t plain_size = 0;
    status = claimed_size(ops, data, size, &plain_size, error);
    if (status == SPW_STATUS_OK)
        return expand_claimed(context, ops, data, size, plain_size, charge, ret_buffer,
                              error);
    if (status == SPW_STATUS_UNSUPPORTED && ops->expand != NULL)
        return expand_growing(context, ops, data, size, charge, ret_buffer, error);
    return status;
}

size_t spw_codec_bound(spw_codec_id codec, size_t size)
{
    const spw__codec_ops *ops = look_up(codec);
    return ops == NULL ? 0 : ops->bound(size);
}

spw_status spw_codec_compress(spw_codec_id codec, const void *data, size_t size,
                              void *out, size_t out_size, size_t *ret_size,
                              spw_error *error)
{
    const spw__codec_ops *ops = look_up(codec);
    if (ops == NULL)
        return no_codec(codec, error);
    if (ops->bound(size) == 0)
        return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                              "no %s frame can hold %zu bytes", ops->name, size);
    /* The codecs' libraries take NULL for a mistake even where nothing is there. */
    char nowhere = 0;
    return ops->compress(size > 0 ? data : &nowhere, size,
                         out_size > 0 ? out : &nowhere, out_size, ret_size, error);
}
