/* The incremental parser: head, table of lengths (and of places, where bodies come by
 * reference), frames.
 * Invariant: in FRAMES, frame < frames, filled < lengths[frame], and frame has a place;
 * in WHOLE, every byte of every frame has been written. Before FRAMES nothing has been
 * reserved for what the message claims: the table grows by what has arrived. */
#include "framing/message_reader.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "framing/placement.h"
#include "framing/wire.h"
#include "memory/byte_reader.h"

/* A contiguous span is looked for over this many frames: a larger one is simply given
 * out in parts. */
enum { SPAN_FRAMES = 64 };
/* A longer table of lengths is not kept from one message to the next. */
enum { KEPT_LENGTHS = 4096 };

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
    _Atomic bool allows_references;
};

spw_status spw__message_reader_create(spw_context *context, spw_sink sink,
                                      spw__message_reader **ret_reader,
                                      spw_error *error)
{
    spw__message_reader *reader =
        spw__allocate(context, sizeof *reader, _Alignof(spw__message_reader));
    if (reader == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a message reader");
    *reader = (spw__message_reader){
        .context = context,
        .placement = {.context = context, .sink = sink},
    };
    *ret_reader = reader;
    return SPW_STATUS_OK;
}

void spw__message_reader_allow_references(spw__message_reader *reader)
{
    atomic_store_explicit(&reader->allows_references, true, memory_order_release);
}

static void release_lengths(spw__message_reader *reader)
{
    spw__release(reader->context, reader->lengths,
                 reader->lengths_capacity * sizeof(uint64_t), sizeof(void *));
    reader->lengths = NULL;
    reader->lengths_capacity = 0;
}

void spw__message_reader_free(spw__message_reader *reader)
{
    if (reader == NULL)
        return;
    spw__placement_clear(&reader->placement);
    release_lengths(reader);
    spw__release(reader->context, reader, sizeof *reader,
                 _Alignof(spw__message_reader));
}

/* The invariant; our own bugs break it, never the peer. */
static void check(const spw__message_reader *reader)
{
    if (reader->state == READING_HEAD)
        assert(reader->head_filled < sizeof reader->head);
    if (reader->state == READING_LENGTHS)
        assert(reader->length_bytes < 8 * reader->entries);
    if (reader->state == READING_FRAMES) {
        assert(reader->frame < reader->frames);
        assert(reader->frame < spw_payload_count(reader->placement.payload));
        assert(reader->filled < reader->lengths[reader->frame]);
        assert(reader->missing >= reader->lengths[reader->frame] - reader->filled);
    }
    if (reader->state == MESSAGE_WHOLE)
        assert(reader->missing == 0 && reader->references_left == 0);
    (void)reader; /* with NDEBUG nothing is left of this */
}

/* Without its place in the stream the reader can do no more: what the message holds is
 * given back now, not when somebody comes round to closing the connection. */
static void lose_stream(spw__message_reader *reader)
{
    spw__placement_abort(&reader->placement);
    reader->state = STREAM_LOST;
}

/* The places of the frames, or NULL when all of them are in the stream. Only once the
 * tables are there. */
static const uint64_t *places_of(const spw__message_reader *reader)
{
    return reader->entries > reader->frames ? reader->lengths + reader->frames : NULL;
}

static bool is_in_stream(const spw__message_reader *reader, uint64_t frame)
{
    const uint64_t *places = places_of(reader);
    return places == NULL || places[frame] == SPW__WIRE_IN_STREAM;
}

/* The head is there: check what it claims before anything is allocated for it. */
static spw_status begin_lengths(spw__message_reader *reader, spw_error *error)
{
    spw__byte_reader head = spw__byte_reader_over(reader->head, sizeof reader->head);
    uint64_t first_segment = 0, frames = 0;
    (void)spw__byte_reader_le(&head, 8, &first_segment);
    (void)spw__byte_reader_le(&head, 8, &frames);
    uint64_t limit = reader->context->limits.frames_per_message;
    bool is_referenced =
        reader->allows_references && (first_segment & SPW__WIRE_REFERENCED) != 0;
    if (is_referenced)
        first_segment -= SPW__WIRE_REFERENCED;
    if (frames == 0)
        return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                              "a message of no frames; is the peer a Dask process?");
    /* What follows the first number: the frame count and the table, at least. */
    if (first_segment < 8 || (first_segment - 8) / 8 < frames)
        return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                              "a first segment of %" PRIu64 " bytes cannot hold the "
                              "lengths of %" PRIu64 " frames; is the peer a Dask "
                              "process?",
                              first_segment, frames);
    if (is_referenced &&
        ((first_segment - 8) % 16 != 0 || (first_segment - 8) / 16 != frames))
        return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                              "a first segment of %" PRIu64 " bytes is not that of "
                              "%" PRIu64 " frames by reference",
                              first_segment, frames);
    if (frames > limit)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "a message of %" PRIu64 " frames is over the limit of "
                              "%" PRIu64 " (frames_per_message), or malformed; is the "
                              "peer a Dask process?",
                              frames, limit);
    reader->entries = is_referenced ? 2 * frames : frames;
    reader->first_segment = first_segment - 8 - 8 * reader->entries;
    reader->frames = frames;
    reader->length_bytes = 0;
    reader->state = READING_LENGTHS;
    return SPW_STATUS_OK;
}

/* The tables are there: what does the second say? An empty frame has nothing that could
 * come from elsewhere, and no memory wraps around the end of the address space. */
static spw_status check_places(spw__message_reader *reader, spw_error *error)
{
    const uint64_t *places = places_of(reader);
    reader->references_left = 0;
    for (uint64_t i = 0; places != NULL && i < reader->frames; i++) {
        if (places[i] == SPW__WIRE_IN_STREAM)
            continue;
        if (reader->lengths[i] == 0 || places[i] > UINT64_MAX - reader->lengths[i])
            return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                                  "frame %" PRIu64 " of %" PRIu64
                                  " bytes cannot be at %" PRIu64,
                                  i, reader->lengths[i], places[i]);
        reader->references_left++;
    }
    return SPW_STATUS_OK;
}

/* The table is there. The first segment must end between two frames: that is how a
 * sender cuts it, and the cheapest proof that this is the format we think it is. */
static spw_status check_frames(spw__message_reader *reader, spw_error *error)
{
    uint64_t total = 0, limit = reader->context->limits.bytes_per_message;
    bool is_cut_between = reader->first_segment == 0;
    for (uint64_t i = 0; i < reader->frames; i++) {
        if (reader->lengths[i] > limit - total)
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "a message is over the limit of %" PRIu64
                                  " bytes (bytes_per_message), or malformed",
                                  limit);
        total += reader->lengths[i];
        is_cut_between = is_cut_between || total == reader->first_segment;
    }
    if (!is_cut_between)
        return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                              "the first segment ends inside a frame; is the peer a "
                              "Dask process?");
    spw_status status = check_places(reader, error);
    if (status != SPW_STATUS_OK)
        return status;
    reader->missing = total;
    reader->state = MESSAGE_HELD;
    return SPW_STATUS_OK;
}

/* Step over the frames that are full; afterwards there is one to fill, or the message
 * is whole. */
static spw_status finish_frames(spw__message_reader *reader, spw_error *error)
{
    while (reader->filled == reader->lengths[reader->frame]) {
        spw_status status =
            spw__placement_frame_read(&reader->placement, reader->frame, error);
        if (status != SPW_STATUS_OK)
            return status;
        if (!is_in_stream(reader, reader->frame))
            reader->references_left--;
        reader->frame++;
        reader->filled = 0;
        if (reader->frame == reader->frames) {
            reader->state = MESSAGE_WHOLE;
            return SPW_STATUS_OK;
        }
        status = spw__placement_place(&reader->placement, reader->frame, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    return SPW_STATUS_OK;
}

spw_status spw__message_reader_go_on(spw__message_reader *reader, spw_error *error)
{
    assert(reader->state == MESSAGE_HELD);
    spw_status status = spw__placement_begin(&reader->placement, reader->lengths,
                                             reader->frames, error);
    if (status == SPW_STATUS_OK) {
        reader->frame = reader->filled = 0;
        reader->state = READING_FRAMES;
        status = spw__placement_place(&reader->placement, 0, error);
    }
    if (status == SPW_STATUS_OK)
        status = finish_frames(reader, error);
    if (status != SPW_STATUS_OK)
        lose_stream(reader);
    return status;
}

static char *frame_data(const spw__message_reader *reader)
{
    const spw_slice *slices = spw_payload_slices(reader->placement.payload);
    return (char *)spw_slice_data(&slices[reader->frame]) + reader->filled;
}

static size_t feed_head(spw__message_reader *reader, const uint8_t *data, size_t size,
                        spw_status *ret_status, spw_error *error)
{
    size_t wanted = sizeof reader->head - reader->head_filled;
    size_t taken = size < wanted ? size : wanted;
    memcpy(reader->head + reader->head_filled, data, taken);
    reader->head_filled += taken;
    if (taken == wanted)
        *ret_status = begin_lengths(reader, error);
    return taken;
}

static size_t feed_lengths(spw__message_reader *reader, const uint8_t *data,
                           size_t size, spw_status *ret_status, spw_error *error)
{
    uint64_t wanted = 8 * reader->entries - reader->length_bytes;
    size_t taken = size < wanted ? size : (size_t)wanted;
    size_t lengths = (size_t)((reader->length_bytes + taken + 7) / 8);
    *ret_status =
        spw__grow(reader->context, &reader->lengths, &reader->lengths_capacity, lengths,
                  sizeof(uint64_t), error);
    if (*ret_status != SPW_STATUS_OK)
        return 0;
    memcpy((char *)reader->lengths + reader->length_bytes, data, taken);
    reader->length_bytes += taken;
    if (taken < wanted)
        return taken;
    for (uint64_t i = 0; i < reader->entries; i++) {
        spw__byte_reader number = spw__byte_reader_over(&reader->lengths[i], 8);
        (void)spw__byte_reader_le(&number, 8, &reader->lengths[i]);
    }
    *ret_status = check_frames(reader, error);
    bool is_held = reader->hold_from > 0 && reader->missing >= reader->hold_from;
    if (*ret_status == SPW_STATUS_OK && !is_held)
        *ret_status = spw__message_reader_go_on(reader, error);
    return taken;
}

static size_t feed_frame(spw__message_reader *reader, const uint8_t *data, size_t size,
                         spw_status *ret_status, spw_error *error)
{
    uint64_t wanted = reader->lengths[reader->frame] - reader->filled;
    size_t taken = size < wanted ? size : (size_t)wanted;
    memcpy(frame_data(reader), data, taken);
    reader->filled += taken;
    reader->missing -= taken;
    if (taken == wanted)
        *ret_status = finish_frames(reader, error);
    return taken;
}

spw_status spw__message_reader_feed(spw__message_reader *reader, const void *data,
                                    size_t size, size_t *ret_consumed, spw_error *error)
{
    const uint8_t *next = data;
    spw_status status = SPW_STATUS_OK;
    check(reader);
    if (reader->state == STREAM_LOST)
        return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                              "the stream was lost by an earlier error");
    while (status == SPW_STATUS_OK && size > 0 && reader->state != MESSAGE_WHOLE &&
           reader->state != MESSAGE_HELD && !spw__message_reader_is_remote(reader)) {
        size_t taken = 0;
        if (reader->state == READING_HEAD)
            taken = feed_head(reader, next, size, &status, error);
        else if (reader->state == READING_LENGTHS)
            taken = feed_lengths(reader, next, size, &status, error);
        else
            taken = feed_frame(reader, next, size, &status, error);
        next += taken;
        size -= taken;
    }
    if (status != SPW_STATUS_OK) {
        lose_stream(reader);
        return status;
    }
    check(reader);
    *ret_consumed = (size_t)(next - (const uint8_t *)data);
    return SPW_STATUS_OK;
}

void *spw__message_reader_direct(spw__message_reader *reader, size_t *ret_size)
{
    *ret_size = 0;
    if (reader->state != READING_FRAMES || !is_in_stream(reader, reader->frame))
        return NULL;
    const spw_slice *slices = spw_payload_slices(reader->placement.payload);
    uint64_t placed = spw_payload_count(reader->placement.payload);
    const spw_slice *last = &slices[reader->frame];
    uint64_t size = last->size - reader->filled;
    for (uint64_t i = reader->frame + 1; i < placed; i++) {
        if (i - reader->frame > SPAN_FRAMES || slices[i].buffer != last->buffer ||
            slices[i].offset != last->offset + last->size || !is_in_stream(reader, i))
            break;
        last = &slices[i];
        size += last->size;
    }
    *ret_size = (size_t)size;
    return frame_data(reader);
}

static spw_status advance(spw__message_reader *reader, size_t size, spw_error *error)
{
    check(reader);
    while (size > 0) {
        assert(reader->state == READING_FRAMES);
        uint64_t wanted = reader->lengths[reader->frame] - reader->filled;
        size_t step = size < wanted ? size : (size_t)wanted;
        reader->filled += step;
        reader->missing -= step;
        size -= step;
        spw_status status = finish_frames(reader, error);
        if (status != SPW_STATUS_OK) {
            lose_stream(reader);
            return status;
        }
    }
    check(reader);
    return SPW_STATUS_OK;
}

spw_status spw__message_reader_advance(spw__message_reader *reader, size_t size,
                                       spw_error *error)
{
    assert(!spw__message_reader_is_remote(reader));
    return advance(reader, size, error);
}

bool spw__message_reader_is_remote(const spw__message_reader *reader)
{
    return reader->state == READING_FRAMES && !is_in_stream(reader, reader->frame);
}

bool spw__message_reader_remote(const spw__message_reader *reader,
                                spw__remote_range *ret_range)
{
    if (!spw__message_reader_is_remote(reader))
        return false;
    uint64_t place = places_of(reader)[reader->frame];
    *ret_range = (spw__remote_range){
        .to = frame_data(reader),
        .size = reader->lengths[reader->frame] - reader->filled,
        .address = place == SPW__WIRE_BY_DESCRIPTOR ? 0 : place + reader->filled,
        .filled = reader->filled,
        .is_last = reader->references_left == 1,
        .may_adopt = reader->filled == 0 &&
                     spw__placement_is_alone(&reader->placement, reader->frame),
    };
    return true;
}

spw_status spw__message_reader_advance_remote(spw__message_reader *reader, size_t size,
                                              spw_error *error)
{
    assert(spw__message_reader_is_remote(reader));
    assert(size <= reader->lengths[reader->frame] - reader->filled);
    return advance(reader, size, error);
}

spw_status spw__message_reader_adopt(spw__message_reader *reader, spw_buffer *buffer,
                                     spw_error *error)
{
    assert(spw__message_reader_is_remote(reader) && reader->filled == 0);
    spw__placement_replace(&reader->placement, reader->frame, buffer);
    return advance(reader, (size_t)reader->lengths[reader->frame], error);
}

void spw__message_reader_hold_from(spw__message_reader *reader, uint64_t bytes)
{
    reader->hold_from = bytes;
}

bool spw__message_reader_is_held(const spw__message_reader *reader)
{
    return reader->state == MESSAGE_HELD;
}

bool spw__message_reader_is_whole(const spw__message_reader *reader)
{
    return reader->state == MESSAGE_WHOLE;
}

bool spw__message_reader_is_idle(const spw__message_reader *reader)
{
    return reader->state == READING_HEAD && reader->head_filled == 0;
}

uint64_t spw__message_reader_missing(const spw__message_reader *reader)
{
    if (reader->state == READING_FRAMES || reader->state == MESSAGE_HELD)
        return reader->missing;
    if (reader->state == READING_LENGTHS)
        return 8 * reader->entries - reader->length_bytes;
    return reader->head_filled > 0 && reader->state == READING_HEAD
               ? sizeof reader->head - reader->head_filled
               : 0;
}

spw_payload *spw__message_reader_take(spw__message_reader *reader)
{
    assert(reader->state == MESSAGE_WHOLE);
    reader->state = READING_HEAD;
    reader->head_filled = 0;
    spw_payload *payload = spw__placement_commit(&reader->placement);
    if (reader->lengths_capacity > KEPT_LENGTHS)
        release_lengths(reader);
    return payload;
}
