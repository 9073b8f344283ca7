/* What the reader must know of a value's sub-header before the bodies come: how many
 * sub-frames follow it and which of them are shards of one buffer. */
#ifndef SPW_FRAMING_SUB_HEADER_H
#define SPW_FRAMING_SUB_HEADER_H

#include <stdbool.h>

#include "spillway/context.h"

typedef struct spw__sub_header {
    uint64_t sub_frames;
    /* True when the shards are known: buffer_frames[i] consecutive sub-frames make up
     * logical buffer i, and together they are all sub_frames. */
    bool has_buffers;
    uint64_t *buffer_frames; /* own array, kept from one parse to the next */
    size_t buffer_count, buffer_capacity;
    /* One entry a sub-frame, true for those that the sender compressed; no entries when
     * none is. */
    bool *is_compressed;
    size_t compressed_count, compressed_capacity;
} spw__sub_header;

/* Read a msgpack map that frames_behind frames follow in the message: it cannot have
 * more sub-frames, nor more buffers than that are told apart. The arrays grow by what
 * data holds, never by what it claims.
 * Returns: false when it is not a sub-header; that is no error, just another form.
 * Errors: NO_MEMORY through ret_status. */
bool spw__sub_header_parse(spw__sub_header *header, spw_context *context,
                           const void *data, size_t size, uint64_t frames_behind,
                           spw_status *ret_status, spw_error *error);
void spw__sub_header_clear(spw__sub_header *header, spw_context *context);

#endif
