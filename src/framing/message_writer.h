/* Messages in, bytes out: the prelude of Dask's TCP message format and the list of
 * pieces that follow it, without copying a large frame. No I/O. */
#ifndef SPW_FRAMING_MESSAGE_WRITER_H
#define SPW_FRAMING_MESSAGE_WRITER_H

#include <sys/uio.h>

#include "spillway/payload.h"

typedef struct spw__message_writer spw__message_writer;

/* Lay out a message. Small frames are gathered into one block with the prelude.
 * Takes: payload, on success only; it is freed with the writer.
 * Errors: NO_MEMORY, INVALID_ARGUMENT (no frames). */
spw_status spw__message_writer_create(spw_context *context, spw_payload *payload,
                                      spw__message_writer **ret_writer,
                                      spw_error *error);
/* Which frames of a message go by reference, and how. */
typedef struct spw__message_references {
    uint64_t from_bytes; /* those of at least that size (> 0) */
    bool by_descriptor;  /* else by address */
} spw__message_references;

static inline bool
spw__message_references_has(const spw__message_references *references,
                            const spw_slice *slice)
{
    return slice->kind == SPW_MEMORY_HOST && slice->size >= references->from_bytes;
}

/* The same for a peer that allows references: the frames that references has are
 * announced and not sent. Whoever sends that way sees to it that the buffers stay as
 * they are until the peer has what they hold; the writer itself keeps them no longer
 * than other buffers.
 * Takes, Errors: as create. */
spw_status
spw__message_writer_create_referenced(spw_context *context, spw_payload *payload,
                                      const spw__message_references *references,
                                      spw__message_writer **ret_writer,
                                      spw_error *error);
/* Takes: writer (NULL allowed), sent or not. */
void spw__message_writer_free(spw__message_writer *writer);

/* Part with the payload, for a message that failed: its caller keeps it. Only free may
 * follow, while the context still lives.
 * Returns: the payload that create took. */
spw_payload *spw__message_writer_give_back(spw__message_writer *writer);

/* All bytes of the message in the stream, and those not yet sent. */
uint64_t spw__message_writer_total(const spw__message_writer *writer);
uint64_t spw__message_writer_unsent(const spw__message_writer *writer);

/* Of those, the ones that are in files. */
uint64_t spw__message_writer_unsent_in_files(const spw__message_writer *writer);

/* The next pieces to send, at most limit of them and at most limit_bytes together, none
 * of them behind the next range of a file.
 * Borrows: the memory, until advance or free. Returns: how many pieces. */
size_t spw__message_writer_pieces(const spw__message_writer *writer,
                                  struct iovec *pieces, size_t limit,
                                  size_t limit_bytes);
/* What to send of a file. */
typedef struct spw__file_range {
    int descriptor;
    uint64_t offset;
    size_t size;
} spw__file_range;

/* If a range of a file is next, at most limit_bytes of it. Borrows: the descriptor,
 * until advance or free. Returns: whether it is. */
bool spw__message_writer_next_file(const spw__message_writer *writer,
                                   size_t limit_bytes, spw__file_range *ret_range);
/* bytes of what pieces or next_file gave have been sent. */
void spw__message_writer_advance(spw__message_writer *writer, uint64_t bytes);

/* The list of messages in a send queue is linked through its writers. */
spw__message_writer *spw__message_writer_next(const spw__message_writer *writer);
void spw__message_writer_set_next(spw__message_writer *writer,
                                  spw__message_writer *next);

#endif
