/* Bytes in, messages out: parses Dask's TCP message format incrementally and places
 * each logical buffer in a region of its own. No I/O.
 *
 * Use: while bytes come, either feed() them from a read-ahead buffer, or read straight
 * into direct() and say so by advance(). When is_whole(), take() the payload; the next
 * feed() begins the next message. After any error the stream is lost, the message under
 * way is aborted at once, and every further feed() fails: free the reader and close the
 * connection. One thread at a time. */
#ifndef SPW_FRAMING_MESSAGE_READER_H
#define SPW_FRAMING_MESSAGE_READER_H

#include "spillway/sink.h"

typedef struct spw__message_reader spw__message_reader;

/* Borrows: context and what sink points to, until the reader is freed.
 * Errors: NO_MEMORY. */
spw_status spw__message_reader_create(spw_context *context, spw_sink sink,
                                      spw__message_reader **ret_reader,
                                      spw_error *error);
/* Aborts a message under way. Takes: reader (NULL allowed). */
void spw__message_reader_free(spw__message_reader *reader);

/* Parse at most size bytes and stop when a message is whole.
 * Returns: how many bytes were consumed (all of them unless a message became whole).
 * Errors: PROTOCOL, LIMIT_EXCEEDED, NO_MEMORY, what the sink answers, and CLOSED after
 * an earlier error. */
spw_status spw__message_reader_feed(spw__message_reader *reader, const void *data,
                                    size_t size, size_t *ret_consumed,
                                    spw_error *error);

/* Where the next bytes of a body go, if the reader is inside one.
 * Returns: the place and its size; size 0 when the next bytes must be fed. */
void *spw__message_reader_direct(spw__message_reader *reader, size_t *ret_size);
/* size bytes (<= what direct gave) have been written there. Errors: as feed. */
spw_status spw__message_reader_advance(spw__message_reader *reader, size_t size,
                                       spw_error *error);

bool spw__message_reader_is_whole(const spw__message_reader *reader);
/* True when no byte of a message has been consumed yet. */
bool spw__message_reader_is_idle(const spw__message_reader *reader);
/* Bytes that the message under way still lacks, as far as is known. */
uint64_t spw__message_reader_missing(const spw__message_reader *reader);

/* Take the whole message: commits its regions. Only when is_whole().
 * Returns: a payload of the caller's with one slice a frame. */
spw_payload *spw__message_reader_take(spw__message_reader *reader);

#endif
