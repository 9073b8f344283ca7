/* Reading one chunk from its first byte to its last, a window at a time, so that what
 * several chunks have is read in turns without having all of them in memory. */
#ifndef SPW_SHUFFLE_CHUNK_READER_H
#define SPW_SHUFFLE_CHUNK_READER_H

#include "memory/checksum.h"
#include "shuffle/chunk_files.h"

/* What was written of one partition together. */
typedef struct spw__chunk {
    spw__batch *batch;
    uint64_t offset, size; /* in the batch */
    uint64_t first;        /* of which the first shard */
    uint64_t checksum;
} spw__chunk;

/* Starts all zero but for chunk. */
typedef struct spw__chunk_reader {
    const spw__chunk *chunk;
    uint64_t at;             /* the next byte, of the chunk */
    uint64_t begin, end;     /* what of it is in the window */
    spw_buffer *window;      /* NULL: none yet */
    const char *data;        /* its first byte that is in there */
    spw__checksum_state sum; /* of what came before end */
} spw__chunk_reader;

/* Whether the next size bytes are there; or else what was handed out before goes with
 * the next call. */
static inline bool spw__chunk_reader_has(const spw__chunk_reader *reader, uint64_t size)
{
    return reader->window != NULL && size <= reader->end - reader->at;
}

/* Read the next bytes, which the chunk has, into the window. Errors: those of next. */
spw_status spw__chunk_reader_fill(spw__chunk_reader *reader, spw_context *context,
                                  spw__chunk_files *files, uint64_t bytes,
                                  spw_error *error);
/* The next size bytes, which the chunk has; read as many as window_bytes with them.
 * Borrows: them, until the next call that finds them not there, or clear. Returns: in
 * ret_data. Errors: IO, CORRUPT (as soon as the chunk's last byte is read), NO_MEMORY,
 * LIMIT_EXCEEDED. */
spw_status spw__chunk_reader_next(spw__chunk_reader *reader, spw_context *context,
                                  spw__chunk_files *files, uint64_t size,
                                  uint64_t window_bytes, const void **ret_data,
                                  spw_error *error);
void spw__chunk_reader_clear(spw__chunk_reader *reader);

#endif
