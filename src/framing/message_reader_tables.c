/* What comes before the frames of a message: the head, and the tables. What they claim
 * is checked before anything is allocated for it. */
#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "framing/message_reader_state.h"
#include "memory/byte_reader.h"

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
    const uint64_t *places = spw__message_reader_places(reader);
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

size_t spw__message_reader_feed_head(spw__message_reader *reader, const uint8_t *data,
                                     size_t size, spw_status *ret_status,
                                     spw_error *error)
{
    size_t wanted = sizeof reader->head - reader->head_filled;
    size_t taken = size < wanted ? size : wanted;
    memcpy(reader->head + reader->head_filled, data, taken);
    reader->head_filled += taken;
    if (taken == wanted)
        *ret_status = begin_lengths(reader, error);
    return taken;
}

size_t spw__message_reader_feed_tables(spw__message_reader *reader, const uint8_t *data,
                                       size_t size, spw_status *ret_status,
                                       spw_error *error)
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
