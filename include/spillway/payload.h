/* The payload: an ordered list of slices. It is what is sent, received and, later,
 * stored and shuffled; layers that do not know each other meet in it. A message's
 * payload has one slice per frame. */
#ifndef SPILLWAY_PAYLOAD_H
#define SPILLWAY_PAYLOAD_H

#include <stdint.h>

#include "spillway/buffer.h"
#include "spillway/file.h"

typedef enum spw_memory_kind {
    SPW_MEMORY_HOST = 0,
    SPW_MEMORY_FILE = 1 /* a range of a file; device memory gets a number of its own */
} spw_memory_kind;

enum {
    SPW_SLICE_WRITEABLE = 1u << 0,
    /* Consumed while the message is decoded (headers, pickles): nothing will keep it
     * alive, so it may share memory with its neighbours. */
    SPW_SLICE_TRANSIENT = 1u << 1,
    SPW_SLICE_HAS_CHECKSUM = 1u << 2
};

typedef enum spw_codec_id {
    SPW_CODEC_NONE = 0,
    SPW_CODEC_LZ4 = 1,
    SPW_CODEC_ZSTD = 2,
    SPW_CODEC_SNAPPY = 3,
    SPW_CODEC_ZLIB = 4
} spw_codec_id;

typedef struct spw_slice {
    uint32_t kind;  /* spw_memory_kind */
    uint32_t flags; /* SPW_SLICE_... */
    uint32_t codec; /* spw_codec_id: how the bytes are stored */
    uint32_t reserved;
    union {                 /* the slice holds one reference, by its kind */
        spw_buffer *buffer; /* SPW_MEMORY_HOST */
        spw_file *file;     /* SPW_MEMORY_FILE */
    };
    uint64_t offset;     /* into the buffer or the file */
    uint64_t size;       /* bytes */
    uint64_t plain_size; /* bytes after decoding; equal to size without a codec */
    uint64_t checksum;   /* XXH3, valid with SPW_SLICE_HAS_CHECKSUM */
} spw_slice;

typedef struct spw_payload spw_payload;

/* Make an empty payload with room for capacity slices.
 * Returns: a payload to be freed by spw_payload_free. Thread: any; a payload itself is
 * used by one thread at a time. Errors: NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status spw_payload_create(spw_context *context,
                                                       size_t capacity,
                                                       spw_payload **ret_payload,
                                                       spw_error *error);
/* End a payload.
 * Takes: payload (NULL allowed) with the references that its slices hold. Thread: the
 * payload's; release callbacks run. */
SPW_EXPORT void spw_payload_free(spw_payload *payload);

/* Append a slice.
 * Takes: the reference to slice->buffer or slice->file, on success only. Borrows:
 * slice, during the call. Thread: the payload's.
 * Errors: NO_MEMORY, INVALID_ARGUMENT (outside its buffer, past the end of what a file
 * can have, of an unknown kind). */
SPW_EXPORT SPW_NODISCARD spw_status spw_payload_append(spw_payload *payload,
                                                       const spw_slice *slice,
                                                       spw_error *error);
/* Returns: how many slices it has. Thread: the payload's. */
SPW_EXPORT size_t spw_payload_count(const spw_payload *payload);
/* The slices, in order.
 * Borrows: the array, until the payload changes or ends; whoever keeps a slice's buffer
 * or file longer takes a reference of its own. Returns: spw_payload_count of them.
 * Thread: the payload's. */
SPW_EXPORT const spw_slice *spw_payload_slices(const spw_payload *payload);
/* Returns: the sum of the slices' sizes. Thread: the payload's. */
SPW_EXPORT uint64_t spw_payload_bytes(const spw_payload *payload);

typedef enum spw_merge_copy {
    SPW_MERGE_NEVER = 0,    /* what does not lie side by side is refused */
    SPW_MERGE_IF_NEEDED = 1 /* it is copied once, into a buffer of its own */
} spw_merge_copy;

/* Make one slice of all the bytes of a payload, without a copy if its slices lie side
 * by side: each is of the buffer of the one before it, and begins where that one ends.
 * What touches by chance is not merged: two buffers, and so two owners, stay apart.
 * Slices without bytes are skipped wherever they are. The result is writeable if every
 * slice is, also those without bytes, and also if it is a copy. Returns: a slice, with
 * a reference of the caller's to its buffer. A copy starts on a 64-byte boundary, is
 * charged HELD and counted as SPW_COPY_MERGED; bytes that were not there at all are an
 * empty buffer. Thread: any that may use the payload, which stays as it is. Errors:
 * INVALID_ARGUMENT (SPW_MERGE_NEVER, and the message names by its index the first slice
 * that does not follow the one before it; a slice that is compressed, or not in host
 * memory; an unknown choice), NO_MEMORY, LIMIT_EXCEEDED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_payload_merge(const spw_payload *payload,
                                                      spw_merge_copy copy,
                                                      spw_slice *ret_slice,
                                                      spw_error *error);

/* The address of a slice's first byte.
 * Borrows: the memory, as long as the slice holds its buffer. Returns: NULL for a slice
 * that is not in memory. Thread: any. */
static inline void *spw_slice_data(const spw_slice *slice)
{
    return slice->kind == SPW_MEMORY_HOST
               ? (char *)spw_buffer_data(slice->buffer) + slice->offset
               : NULL;
}

#endif
