/* What a codec provides: a file that fills this table.
 *
 * Threading contract: every function may be called from any thread, by several at
 * once; a codec keeps no state between two calls. What a codec's library needs for a
 * single call (zlib about 40 KiB, zstd about 160 KiB and, in expand, the window that
 * the frame asks for, at most 128 MiB; to compress, lz4 16 KiB of the stack and zstd
 * 600 KiB) comes from the C library's heap, is not charged,
 * and is gone when the call ends.
 *
 * Callers (codec.c) have checked that size > 0 when they decompress, that data and out
 * are never NULL, and that no size is beyond what highest_ratio or bound allows. */
#ifndef SPW_CODEC_CODEC_OPS_H
#define SPW_CODEC_CODEC_OPS_H

#include "codec/plain_output.h"
#include "spillway/codec.h"

typedef struct spw__codec_ops {
    spw_codec_id id;
    const char *name; /* Dask's */

    /* A frame of n bytes never holds more than n * highest_ratio: what a claim is
     * checked against before memory is taken for it. */
    uint64_t highest_ratio;

    /* What the frame says it holds. NULL: frames of this codec never say.
     * Errors: CORRUPT, UNSUPPORTED (this frame does not say). */
    spw_status (*plain_size)(const void *data, size_t size, uint64_t *ret_plain_size,
                             spw_error *error);

    /* Decompress into exactly out_size bytes; more, less, or bytes after the frame's
     * end are CORRUPT. What was written to out on failure is undefined.
     * Errors: CORRUPT, NO_MEMORY. */
    spw_status (*decompress)(const void *data, size_t size, void *out, size_t out_size,
                             spw_error *error);

    /* Decompress a frame that does not say its size into an output that grows. NULL:
     * every frame of this codec says it.
     * Errors: CORRUPT, NO_MEMORY, LIMIT_EXCEEDED (the output's). */
    spw_status (*expand)(const void *data, size_t size, spw__plain_output *output,
                         spw_error *error);

    /* What a frame of size bytes may take at most; 0: one frame cannot hold them. */
    size_t (*bound)(size_t size);
    /* Compress size bytes (0 allowed) into one frame, which says its size if frames of
     * this codec do.
     * Errors: LIMIT_EXCEEDED (out_size is too small), NO_MEMORY. */
    spw_status (*compress)(const void *data, size_t size, void *out, size_t out_size,
                           size_t *ret_size, spw_error *error);
} spw__codec_ops;

extern const spw__codec_ops spw__codec_lz4;
extern const spw__codec_ops spw__codec_zstd;
extern const spw__codec_ops spw__codec_snappy;
extern const spw__codec_ops spw__codec_zlib;

#endif
