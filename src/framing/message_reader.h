/* Bytes in, messages out: parses Dask's TCP message format incrementally and places
 * each logical buffer in a region of its own. No I/O.
 *
 * Use: while bytes come, either feed() them from a read-ahead buffer, or read straight
 * into direct() and say so by advance(). When is_whole(), take() the payload; the next
 * feed() begins the next message. Where references are allowed, a body may come by
 * another way than the stream: feed() then stops at it, and it is filled by remote()
 * and advance_remote(), or by adopt(). Where a sink decides where values go, it may
 * have to be waited for: the reader then takes nothing, until look_again(). After any
 * error the stream is lost, the message under way is aborted at once, and every further
 * feed() fails: free the reader and close the connection. One thread at a time. */
#ifndef SPW_FRAMING_MESSAGE_READER_H
#define SPW_FRAMING_MESSAGE_READER_H

#include "memory/value_sink.h"

typedef struct spw__message_reader spw__message_reader;

/* Borrows: context and what sink points to, until the reader is freed.
 * Errors: NO_MEMORY. */
spw_status spw__message_reader_create(spw_context *context, spw_sink sink,
                                      spw__message_reader **ret_reader,
                                      spw_error *error);
/* Aborts a message under way. Takes: reader (NULL allowed). */
void spw__message_reader_free(spw__message_reader *reader);

/* From now on bodies may be announced by reference (docs/wire_format.md, "Same host"),
 * as both peers have agreed. Also in the middle of a message that
 * has none, and then from any thread. */
void spw__message_reader_allow_references(spw__message_reader *reader);

/* From the next message on stop at each of bytes or more as soon as its size is known,
 * before anything is taken for it, until go_on. 0, as at first: at none. */
void spw__message_reader_hold_from(spw__message_reader *reader, uint64_t bytes);
/* Whether it has stopped there; missing() then says how many bytes it has. */
bool spw__message_reader_is_held(const spw__message_reader *reader);
/* Only when it is held. Errors: as feed. */
spw_status spw__message_reader_go_on(spw__message_reader *reader, spw_error *error);

/* Ask a sink where the values of the next message go, or of one of which no frame has
 * come yet, and of no other. Takes: values (NULL: nobody is asked), which is freed with
 * the message, or at once in the middle of one. */
void spw__message_reader_ask(spw__message_reader *reader, spw_value_sink *values);
/* Whether one is asked. */
bool spw__message_reader_is_asking(const spw__message_reader *reader);
/* Whether it waits for that sink, which will wake who it was told to. */
bool spw__message_reader_is_waiting(const spw__message_reader *reader);
/* Only when it is waiting: go on if the sink does; it may be waiting afterwards.
 * Errors: as feed. */
spw_status spw__message_reader_look_again(spw__message_reader *reader,
                                          spw_error *error);

/* Parse at most size bytes and stop when a message is whole or held, or waits for its
 * sink, or at a body that does not come in the stream.
 * Returns: how many bytes were consumed (all of them unless it stopped).
 * Errors: PROTOCOL, LIMIT_EXCEEDED, NO_MEMORY, what the sinks answer, and CLOSED after
 * an earlier error. */
spw_status spw__message_reader_feed(spw__message_reader *reader, const void *data,
                                    size_t size, size_t *ret_consumed,
                                    spw_error *error);

/* Where the next bytes of a body go, if the reader is inside one.
 * Returns: the place and its size; size 0 when the next bytes must be fed. */
void *spw__message_reader_direct(spw__message_reader *reader, size_t *ret_size);
/* Whether what follows is of the same body, and goes where direct does not tell yet. */
bool spw__message_reader_is_windowed(const spw__message_reader *reader);
/* size bytes (<= what direct gave) have been written there. Errors: as feed. */
spw_status spw__message_reader_advance(spw__message_reader *reader, size_t size,
                                       spw_error *error);

/* What the reader wants next of a body that does not come in the stream. */
typedef struct spw__remote_range {
    void *to;
    uint64_t size;    /* the rest of the frame (> 0) */
    uint64_t room;    /* what to has of that now, at least SPW__WINDOW_LEAST or all */
    uint64_t address; /* of it in the sender's memory; 0: the sender passes it */
    uint64_t filled;  /* bytes of the frame that are there already */
    bool is_last;     /* no later frame of the message is such a body */
    bool may_adopt;   /* the frame can be a buffer of its own: nothing of it is there */
} spw__remote_range;

/* Whether the reader stands at such a body, and then what of it is next. */
bool spw__message_reader_is_remote(const spw__message_reader *reader);
bool spw__message_reader_remote(const spw__message_reader *reader,
                                spw__remote_range *ret_range);
/* size bytes (<= the room that remote gave) have been written there. Errors: as feed.
 */
spw_status spw__message_reader_advance_remote(spw__message_reader *reader, size_t size,
                                              spw_error *error);
/* The body is that buffer, as large as the frame: in place of the region that was
 * reserved for it. Only when remote says may_adopt. Takes: buffer, always. Errors: as
 * feed. */
spw_status spw__message_reader_adopt(spw__message_reader *reader, spw_buffer *buffer,
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
