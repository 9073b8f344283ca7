/* Where a decompressor writes when nobody knows how much will come: pieces that grow
 * with what has arrived, joined at the end into one buffer of exactly that size. */
#ifndef SPW_CODEC_PLAIN_OUTPUT_H
#define SPW_CODEC_PLAIN_OUTPUT_H

#include "spillway/buffer.h"

/* The smallest first piece. A multiple of what pages and allocators round to; each
 * piece doubles the output, so 2^16 * 2^47 is past every limit. */
#define SPW__PLAIN_OUTPUT_FIRST_BYTES ((size_t)1 << 16)
#define SPW__PLAIN_OUTPUT_MAX_PIECES 48

/* One thread at a time. Invariant: all pieces but the last are full, used_in_last bytes
 * of the last one are; total_bytes <= limit_bytes is the sum. */
typedef struct spw__plain_output {
    spw_context *context; /* borrowed */
    spw_charge charge;    /* the account of the pieces and of the result */
    uint64_t limit_bytes;
    size_t first_bytes;
    size_t piece_count;
    size_t used_in_last;
    uint64_t total_bytes;
    spw_buffer *pieces[SPW__PLAIN_OUTPUT_MAX_PIECES];
} spw__plain_output;

/* An empty output for at most limit_bytes; expected_bytes is a guess, which the first
 * piece follows. Borrows: context, until clear. */
void spw__plain_output_init(spw__plain_output *output, spw_context *context,
                            spw_charge charge, uint64_t limit_bytes,
                            size_t expected_bytes);
/* Drops whatever is held. */
void spw__plain_output_clear(spw__plain_output *output);

/* The place where the next bytes go, at least one, the same one until advance.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED (limit_bytes are there, or the budget's). */
SPW_NODISCARD spw_status spw__plain_output_room(spw__plain_output *output,
                                                void **ret_place, size_t *ret_size,
                                                spw_error *error);
/* bytes of the last room have been written. */
void spw__plain_output_advance(spw__plain_output *output, size_t bytes);

/* Join what was written; the output is empty afterwards.
 * Returns: one reference to a buffer of exactly the bytes written.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED (the budget's). */
SPW_NODISCARD spw_status spw__plain_output_finish(spw__plain_output *output,
                                                  spw_buffer **ret_buffer,
                                                  spw_error *error);

#endif
