/* The incremental parser: head, table of lengths (and of places, where bodies come by
 * reference), which are message_reader_tables.c's, and frames.
 * Invariant: in FRAMES, frame < frames, filled < lengths[frame], or equal while it is
 * waiting, and frame has a place, which, unless it is waiting, has room: on disk, a
 * window; in WHOLE, every byte of every frame has been written. Before FRAMES nothing
 * has been reserved for what the message claims: the table grows by what has arrived.
 */
#include "framing/message_reader_state.h"

#include <assert.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"

/* A contiguous span is looked for over this many frames: a larger one is simply given
 * out in parts. */
enum { SPAN_FRAMES = 64 };
/* A longer table of lengths is not kept from one message to the next. */
enum { KEPT_LENGTHS = 4096 };

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
        assert(reader->filled + !reader->is_waiting <= reader->lengths[reader->frame]);
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
    reader->is_waiting = false;
    reader->state = STREAM_LOST;
}

static bool is_in_stream(const spw__message_reader *reader, uint64_t frame)
{
    const uint64_t *places = spw__message_reader_places(reader);
    return places == NULL || places[frame] == SPW__WIRE_IN_STREAM;
}

static bool is_on_disk(const spw__message_reader *reader)
{
    return spw__placement_is_on_disk(&reader->placement, reader->frame);
}

/* There is a frame to fill: have room for what comes next of it, or wait for that. */
static spw_status find_room(spw__message_reader *reader, spw_error *error)
{
    reader->window_size = 0;
    if (!is_on_disk(reader))
        return SPW_STATUS_OK;
    spw_status status = spw__placement_window(&reader->placement, &reader->window,
                                              &reader->window_size, error);
    reader->is_waiting = status == SPW_STATUS_AGAIN;
    return reader->is_waiting ? SPW_STATUS_OK : status;
}

/* Step over the frames that are full; afterwards there is one to fill, or the message
 * is whole, or waits for its sink. */
static spw_status finish_frames(spw__message_reader *reader, spw_error *error)
{
    reader->window_size = 0;
    while (reader->filled == reader->lengths[reader->frame]) {
        spw_status status =
            spw__placement_frame_read(&reader->placement, reader->frame, error);
        reader->is_waiting = status == SPW_STATUS_AGAIN;
        if (reader->is_waiting)
            return SPW_STATUS_OK;
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
    return find_room(reader, error);
}

/* size bytes of the frame are where they go. */
static spw_status took(spw__message_reader *reader, size_t size, spw_error *error)
{
    if (reader->window_size > 0)
        spw__placement_wrote(&reader->placement, size);
    reader->filled += size;
    reader->missing -= size;
    if (reader->filled == reader->lengths[reader->frame])
        return finish_frames(reader, error);
    return reader->window_size > 0 ? find_room(reader, error) : SPW_STATUS_OK;
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
    if (reader->window_size > 0)
        return reader->window;
    const spw_slice *slices = spw_payload_slices(reader->placement.payload);
    return (char *)spw_slice_data(&slices[reader->frame]) + reader->filled;
}

/* What of the frame that is to be filled has room there. */
static uint64_t frame_room(const spw__message_reader *reader)
{
    return reader->window_size > 0 ? reader->window_size
                                   : reader->lengths[reader->frame] - reader->filled;
}

static size_t feed_frame(spw__message_reader *reader, const uint8_t *data, size_t size,
                         spw_status *ret_status, spw_error *error)
{
    uint64_t wanted = frame_room(reader);
    size_t taken = size < wanted ? size : (size_t)wanted;
    memcpy(frame_data(reader), data, taken);
    *ret_status = took(reader, taken, error);
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
           reader->state != MESSAGE_HELD && !reader->is_waiting &&
           !spw__message_reader_is_remote(reader)) {
        size_t taken = 0;
        if (reader->state == READING_HEAD)
            taken = spw__message_reader_feed_head(reader, next, size, &status, error);
        else if (reader->state == READING_LENGTHS)
            taken = spw__message_reader_feed_tables(reader, next, size, &status, error);
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
    if (reader->state != READING_FRAMES || reader->is_waiting ||
        !is_in_stream(reader, reader->frame))
        return NULL;
    if (reader->window_size > 0) {
        *ret_size = reader->window_size;
        return reader->window;
    }
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
        assert(!reader->is_waiting);
        uint64_t wanted = reader->lengths[reader->frame] - reader->filled;
        size_t step = size < wanted ? size : (size_t)wanted;
        size -= step;
        spw_status status = took(reader, step, error);
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

bool spw__message_reader_is_windowed(const spw__message_reader *reader)
{
    return reader->window_size > 0 &&
           reader->window_size < reader->lengths[reader->frame] - reader->filled;
}

bool spw__message_reader_is_remote(const spw__message_reader *reader)
{
    return reader->state == READING_FRAMES && !reader->is_waiting &&
           !is_in_stream(reader, reader->frame);
}

bool spw__message_reader_remote(const spw__message_reader *reader,
                                spw__remote_range *ret_range)
{
    if (!spw__message_reader_is_remote(reader))
        return false;
    uint64_t place = spw__message_reader_places(reader)[reader->frame];
    *ret_range = (spw__remote_range){
        .to = frame_data(reader),
        .size = reader->lengths[reader->frame] - reader->filled,
        .room = frame_room(reader),
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
    assert(size <= frame_room(reader));
    return advance(reader, size, error);
}

spw_status spw__message_reader_adopt(spw__message_reader *reader, spw_buffer *buffer,
                                     spw_error *error)
{
    assert(spw__message_reader_is_remote(reader) && reader->filled == 0);
    spw__placement_replace(&reader->placement, reader->frame, buffer);
    return advance(reader, (size_t)reader->lengths[reader->frame], error);
}

void spw__message_reader_ask(spw__message_reader *reader, spw_value_sink *values)
{
    if (reader->state == READING_FRAMES || reader->state == MESSAGE_WHOLE)
        spw_value_sink_free(values);
    else
        spw__placement_ask(&reader->placement, values);
}

bool spw__message_reader_is_asking(const spw__message_reader *reader)
{
    return reader->placement.values != NULL;
}

bool spw__message_reader_is_waiting(const spw__message_reader *reader)
{
    return reader->is_waiting;
}

spw_status spw__message_reader_look_again(spw__message_reader *reader, spw_error *error)
{
    assert(reader->state == READING_FRAMES && reader->is_waiting);
    reader->is_waiting = false;
    spw_status status = finish_frames(reader, error);
    if (status != SPW_STATUS_OK)
        lose_stream(reader);
    return status;
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
