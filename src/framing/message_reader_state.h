/* The inside of a reader, shared by its files: message_reader_tables.c (what comes
 * before the frames) and message_reader.c (all else). */
#ifndef SPW_FRAMING_MESSAGE_READER_STATE_H
#define SPW_FRAMING_MESSAGE_READER_STATE_H

#include "framing/message_reader.h"
#include "framing/placement.h"
#include "framing/wire.h"

typedef enum reader_state {
    READING_HEAD,
    READING_LENGTHS,
    MESSAGE_HELD, /* all is known of it, and nothing taken for its frames */
    READING_FRAMES,
    MESSAGE_WHOLE,
    STREAM_LOST
} reader_state;

struct spw__message_reader {
    spw_context *context; /* borrowed */
    spw__placement placement;
    reader_state state;
    uint8_t head[SPW__WIRE_HEAD_BYTES];
    size_t head_filled;
    uint64_t first_segment, frames;
    /* The tables, one after the other: entries numbers, of which the first frames are
     * lengths and the others, if there are any, places. */
    uint64_t *lengths;
    size_t lengths_capacity;
    uint64_t entries;
    uint64_t length_bytes; /* bytes of the tables that have arrived */
    uint64_t frame, filled;
    uint64_t missing;         /* bytes of frames still to come */
    uint64_t hold_from;       /* 0: no message is held */
    uint64_t references_left; /* frames still to come that are not in the stream */
    /* Of a frame that goes to disk. */
    void *window;
    size_t window_size; /* 0: there is none */
    bool is_waiting;    /* for the sink of the message's values */
    _Atomic bool allows_references;
};

/* The places of the frames, or NULL when all of them are in the stream. Only once the
 * tables are there. */
static inline const uint64_t *
spw__message_reader_places(const spw__message_reader *reader)
{
    return reader->entries > reader->frames ? reader->lengths + reader->frames : NULL;
}

/* While the head, or the tables, are read: take of size bytes (> 0) what belongs there,
 * and check it. Once the tables are there, the message goes on or is held.
 * Returns: how many bytes were taken; in ret_status OK, or as feed. */
size_t spw__message_reader_feed_head(spw__message_reader *reader, const uint8_t *data,
                                     size_t size, spw_status *ret_status,
                                     spw_error *error);
size_t spw__message_reader_feed_tables(spw__message_reader *reader, const uint8_t *data,
                                       size_t size, spw_status *ret_status,
                                       spw_error *error);

#endif
