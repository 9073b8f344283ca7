/* Decompression of frames that a stock peer compressed, and compression into such. */
#ifndef SPILLWAY_CODEC_H
#define SPILLWAY_CODEC_H

#include "spillway/payload.h"

/* The codec that Dask calls name ("lz4", "zstd", "snappy", "zlib").
 * Returns: SPW_CODEC_NONE for a name that is none of them. Thread: any. */
SPW_EXPORT spw_codec_id spw_codec_by_name(const char *name);
/* The other way round.
 * Returns: a string that lives for ever, "" for NONE and what is no codec. Thread: any.
 */
SPW_EXPORT const char *spw_codec_name(spw_codec_id codec);

/* How many bytes a compressed frame claims to hold, checked against what its codec can
 * reach from its size. A zlib or zstd frame may not say: UNSUPPORTED, use
 * spw_codec_expand.
 * Borrows: data, during the call. Returns: the bytes after decompression. Thread: any.
 * Errors: CORRUPT, UNSUPPORTED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_codec_plain_size(spw_codec_id codec,
                                                         const void *data, size_t size,
                                                         uint64_t *ret_plain_size,
                                                         spw_error *error);
/* Decompress into exactly out_size bytes.
 * Borrows: data and out, during the call. Thread: any.
 * Errors: CORRUPT (the frame does not decompress to exactly that), NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status spw_codec_decompress(spw_codec_id codec,
                                                         const void *data, size_t size,
                                                         void *out, size_t out_size,
                                                         spw_error *error);
/* Decompress a frame that does not say its size: grows an own buffer, by what arrives,
 * up to the context's bytes_per_message and its budget.
 * Borrows: data, during the call. Returns: one reference to a buffer of exactly the
 * plain size. Thread: any.
 * Errors: CORRUPT, NO_MEMORY, LIMIT_EXCEEDED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_codec_expand(
    spw_context *context, spw_codec_id codec, const void *data, size_t size,
    spw_charge charge, spw_buffer **ret_buffer, spw_error *error);

/* How many bytes a frame may take that holds size bytes.
 * Returns: 0 where there can be none: size is more than one of its frames holds, or it
 * is no codec. Thread: any. */
SPW_EXPORT size_t spw_codec_bound(spw_codec_id codec, size_t size);
/* Compress into a frame of at most out_size bytes, which says its size unless it is of
 * zlib, fast rather than well. With less room than spw_codec_bound, what does not
 * shrink that much is found out early; snappy compresses nothing then. Borrows: data
 * and out, during the call. Returns: the frame's size in ret_size; what was written to
 * out on failure is undefined. Thread: any. Errors: LIMIT_EXCEEDED (there is not the
 * room), UNSUPPORTED (the bound is 0), INVALID_ARGUMENT (no codec), NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status spw_codec_compress(spw_codec_id codec,
                                                       const void *data, size_t size,
                                                       void *out, size_t out_size,
                                                       size_t *ret_size,
                                                       spw_error *error);

#endif
