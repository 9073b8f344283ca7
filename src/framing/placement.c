/* Placement. Each logical buffer gets a region of its own with its shards side by side;
 * when there are many small ones they share regions, so that a message of 200,000 tiny
 * frames is not 200,000 allocations. Sizes alone never decide what belongs together:
 * two arrays of 64 MiB and one of 128 MiB arrive in frames of the same lengths.
 * Invariant: the payload has a slice for each frame below the first that has no place,
 * each pointing into one of regions. */
#include "framing/placement.h"

#include <string.h>

#include "context/allocate.h"
#include "context/figures.h"
#include "memory/payload_slices.h"

/* A small buffer that outlives its message keeps its shared region alive: 64 KiB at
 * most, and no more than the message had small frames. */
static const uint64_t SMALL_BELOW_BYTES = 4096;
static const uint64_t SHARED_REGION_BYTES = 65536;
/* In most messages no buffer outlives another one, nor the headers, because of that:
 * this many small buffers of values get a region of their own like the large ones. */
static const uint64_t SMALL_ALONE = 16;
static const uint64_t NO_FRAME = UINT64_MAX;
/* Scratch of more entries than this is not kept from one message to the next. */
static const size_t KEPT_ENTRIES = 4096;

static uint64_t aligned(uint64_t size)
{
    return (size + SPW_BUFFER_ALIGNMENT - 1) & ~(uint64_t)(SPW_BUFFER_ALIGNMENT - 1);
}

spw_status spw__placement_begin(spw__placement *placement, const uint64_t *lengths,
                                uint64_t frames, spw_error *error)
{
    spw_status status = spw_payload_create(placement->context, (size_t)frames,
                                           &placement->payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    placement->lengths = lengths;
    placement->frames = frames;
    placement->shared = NULL;
    placement->shared_used = placement->shared_size = 0;
    placement->small_alone = 0;
    placement->next_header = 1;
    placement->disk_first = placement->disk_end = 0;
    return SPW_STATUS_OK;
}

static spw_status reserve(spw__placement *placement, uint64_t size,
                          spw_buffer **ret_buffer, uint64_t *ret_offset,
                          spw_error *error)
{
    spw_status status =
        spw__grow(placement->context, &placement->regions, &placement->region_capacity,
                  placement->region_count + 1, sizeof(spw_slice), error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_slice *region = &placement->regions[placement->region_count];
    status = placement->sink.ops->reserve(placement->sink.self, size, region, error);
    if (status != SPW_STATUS_OK)
        return status;
    placement->region_count++;
    *ret_buffer = region->buffer;
    *ret_offset = region->offset;
    return SPW_STATUS_OK;
}

/* Append the slice of one frame. */
static spw_status append(spw__placement *placement, spw_buffer *buffer, uint64_t offset,
                         uint64_t size, spw_error *error)
{
    spw_slice slice = {
        .kind = SPW_MEMORY_HOST,
        .flags = SPW_SLICE_WRITEABLE,
        .buffer = spw_buffer_ref(buffer),
        .offset = offset,
        .size = size,
        .plain_size = size,
    };
    spw_status status = spw_payload_append(placement->payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(buffer);
    return status;
}

/* A shared region with room for the small frames from frame on, or for as many of them
 * as one region takes. A region is used up by the small frames that it was made for, or
 * not at all by those that turn out to be shards of a larger buffer, so look-aheads do
 * not overlap: together they pass over the message once, and the room that they take
 * for nothing is no more than the larger buffers themselves take. */
static spw_status begin_shared(spw__placement *placement, uint64_t frame,
                               uint64_t needed, spw_error *error)
{
    uint64_t size = needed > 0 ? needed : SPW_BUFFER_ALIGNMENT;
    for (uint64_t i = frame + 1; i < placement->frames; i++) {
        if (placement->lengths[i] >= SMALL_BELOW_BYTES)
            continue;
        uint64_t larger = size + aligned(placement->lengths[i]);
        if (larger > SHARED_REGION_BYTES)
            break;
        size = larger;
    }
    uint64_t offset;
    spw_status status = reserve(placement, size, &placement->shared, &offset, error);
    if (status != SPW_STATUS_OK)
        return status;
    placement->shared_used = offset;
    placement->shared_size = offset + size;
    /* Whoever gets one of the frames can see the whole buffer, and so what the memory's
     * last owner left between them and behind the last. */
    memset((char *)spw_buffer_data(placement->shared) + offset, 0, (size_t)size);
    return SPW_STATUS_OK;
}

/* Take size bytes, at frame, of the region that small frames share. */
static spw_status take_shared(spw__placement *placement, uint64_t frame, uint64_t size,
                              spw_buffer **ret_buffer, uint64_t *ret_offset,
                              spw_error *error)
{
    uint64_t needed = aligned(size);
    if (placement->shared == NULL ||
        needed > placement->shared_size - placement->shared_used) {
        spw_status status = begin_shared(placement, frame, needed, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    *ret_buffer = placement->shared;
    *ret_offset = placement->shared_used;
    placement->shared_used += needed;
    return SPW_STATUS_OK;
}

/* Append count frames from frame on, which lie side by side from offset on. */
static spw_status append_shards(spw__placement *placement, uint64_t frame,
                                uint64_t count, spw_buffer *buffer, uint64_t offset,
                                spw_error *error)
{
    for (uint64_t i = frame; i < frame + count; i++) {
        spw_status status =
            append(placement, buffer, offset, placement->lengths[i], error);
        if (status != SPW_STATUS_OK)
            return status;
        offset += placement->lengths[i];
    }
    return SPW_STATUS_OK;
}

/* What has a region to itself holds the place that its value has. What shares one does
 * not, but most of a large value has its own. */
static void hold_place(const spw__placement *placement, spw_buffer *buffer)
{
    if (placement->place != NULL && spw__buffer_place(buffer) == NULL)
        spw__buffer_hold(buffer, spw__place_ref(placement->place));
}

/* Place count frames from frame on as the shards of one buffer of a value. */
static spw_status place_buffer(spw__placement *placement, uint64_t frame,
                               uint64_t count, spw_error *error)
{
    uint64_t size = 0;
    for (uint64_t i = frame; i < frame + count; i++)
        size += placement->lengths[i]; /* the reader has checked the sum of all */
    bool is_small = size < SMALL_BELOW_BYTES;
    bool is_alone = !is_small || (size > 0 && placement->small_alone < SMALL_ALONE);
    spw_buffer *buffer;
    uint64_t offset;
    spw_status status =
        is_alone ? reserve(placement, size, &buffer, &offset, error)
                 : take_shared(placement, frame, size, &buffer, &offset, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (is_small && is_alone)
        placement->small_alone++;
    if (is_alone)
        hold_place(placement, buffer);
    return append_shards(placement, frame, count, buffer, offset, error);
}

spw_status spw__placement_place(spw__placement *placement, uint64_t frame,
                                spw_error *error)
{
    if (frame < spw_payload_count(placement->payload))
        return SPW_STATUS_OK;
    uint64_t size = placement->lengths[frame];
    spw_buffer *buffer;
    uint64_t offset;
    bool is_small = size < SMALL_BELOW_BYTES;
    spw_status status =
        is_small ? take_shared(placement, frame, size, &buffer, &offset, error)
                 : reserve(placement, size, &buffer, &offset, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (!is_small)
        hold_place(placement, buffer);
    return append_shards(placement, frame, 1, buffer, offset, error);
}

/* ----- values ----- */

static bool any_compressed(const spw__sub_header *header, uint64_t first,
                           uint64_t count)
{
    for (uint64_t i = first; i < first + count && i < header->compressed_count; i++)
        if (header->is_compressed[i])
            return true;
    return false;
}

/* Place the sub-frames of a value whose shards are known. Compressed shards do not
 * become one buffer by lying side by side, so each is placed by itself. */
static spw_status place_buffers(spw__placement *placement, uint64_t frame,
                                spw_error *error)
{
    const spw__sub_header *header = &placement->header;
    uint64_t sub_frame = 0;
    for (size_t i = 0; i < header->buffer_count; i++) {
        uint64_t shards = header->buffer_frames[i];
        bool is_compressed = any_compressed(header, sub_frame, shards);
        uint64_t step = is_compressed ? 1 : shards;
        for (uint64_t done = 0; done < shards; done += step) {
            spw_status status =
                place_buffer(placement, frame + sub_frame + done, step, error);
            if (status != SPW_STATUS_OK)
                return status;
        }
        sub_frame += shards;
    }
    return SPW_STATUS_OK;
}

/* Where nothing is known of shards, frames are placed as they come, but for those that
 * have a place. */
static spw_status place_in_memory(spw__placement *placement, uint64_t frame,
                                  spw_error *error)
{
    if (placement->header.has_buffers)
        return place_buffers(placement, frame, error);
    spw_status status = SPW_STATUS_OK;
    uint64_t end =
        placement->place != NULL ? frame + placement->header.sub_frames : frame;
    for (; frame < end && status == SPW_STATUS_OK; frame++)
        status = spw__placement_place(placement, frame, error);
    return status;
}

/* Let the sub-frames of a value be ranges of a file. */
static spw_status place_on_disk(spw__placement *placement, uint64_t frame,
                                const spw__value_room *room, spw_error *error)
{
    uint64_t count = placement->header.sub_frames;
    for (uint64_t i = 0; i < count; i++) {
        spw_slice slice = room->slices[i];
        slice.file = spw_file_ref(room->file);
        spw_status status = spw_payload_append(placement->payload, &slice, error);
        if (status != SPW_STATUS_OK) {
            spw_file_unref(slice.file);
            return status;
        }
    }
    placement->disk_first = frame;
    placement->disk_end = frame + count;
    placement->disk_slices = room->slices;
    return SPW_STATUS_OK;
}

/* Place the value whose header is frame. */
static spw_status place_value(spw__placement *placement, uint64_t frame,
                              spw_error *error)
{
    spw__value_room room = {0};
    spw_value_sink *values = placement->values;
    spw_status status = SPW_STATUS_OK;
    if (values != NULL && placement->header.sub_frames > 0)
        status = values->ops->begin(
            values, &spw_payload_slices(placement->payload)[frame],
            placement->lengths + frame + 1, placement->header.sub_frames, &room, error);
    if (status != SPW_STATUS_OK)
        return status;
    placement->place = room.place;
    status = room.file != NULL ? place_on_disk(placement, frame + 1, &room, error)
                               : place_in_memory(placement, frame + 1, error);
    placement->place = NULL;
    spw__place_unref(room.place);
    spw_file_unref(room.file);
    return status;
}

/* The last frame of the value on disk has been read. */
static spw_status finish_on_disk(spw__placement *placement, spw_error *error)
{
    spw_value_sink *values = placement->values;
    spw_status status = values->ops->finish(values, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_slice *slices = spw__payload_slices(placement->payload);
    for (uint64_t i = placement->disk_first; i < placement->disk_end; i++) {
        const spw_slice *written = &placement->disk_slices[i - placement->disk_first];
        slices[i].flags = written->flags;
        slices[i].checksum = written->checksum;
    }
    placement->disk_first = placement->disk_end;
    return SPW_STATUS_OK;
}

/* The first frame has been read. */
static bool is_for_sink(const spw__placement *placement)
{
    spw_value_sink *values = placement->values;
    return values == NULL || values->ops->is_for == NULL ||
           values->ops->is_for(values, spw_payload_slices(placement->payload));
}

spw_status spw__placement_frame_read(spw__placement *placement, uint64_t frame,
                                     spw_error *error)
{
    if (frame == 0 && !is_for_sink(placement))
        spw__placement_ask(placement, NULL);
    if (frame + 1 == placement->disk_end && placement->disk_first < placement->disk_end)
        return finish_on_disk(placement, error);
    if (frame != placement->next_header)
        return SPW_STATUS_OK;
    const spw_slice *slice = &spw_payload_slices(placement->payload)[frame];
    spw_status status = SPW_STATUS_OK;
    bool parsed = false;
    if (slice->size <= placement->context->limits.sub_header_bytes)
        parsed = spw__sub_header_parse(&placement->header, placement->context,
                                       spw_slice_data(slice), (size_t)slice->size,
                                       placement->frames - frame - 1, &status, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (!parsed) {
        placement->next_header = NO_FRAME;
        return SPW_STATUS_OK;
    }
    status = place_value(placement, frame, error);
    if (status == SPW_STATUS_OK)
        placement->next_header = frame + 1 + placement->header.sub_frames;
    return status;
}

/* ----- on disk ----- */

void spw__placement_ask(spw__placement *placement, spw_value_sink *values)
{
    spw_value_sink_free(placement->values);
    placement->values = values;
}

bool spw__placement_is_on_disk(const spw__placement *placement, uint64_t frame)
{
    return spw_payload_slices(placement->payload)[frame].kind == SPW_MEMORY_FILE;
}

spw_status spw__placement_window(spw__placement *placement, void **ret_data,
                                 size_t *ret_size, spw_error *error)
{
    spw_value_sink *values = placement->values;
    return values->ops->window(values, ret_data, ret_size, error);
}

void spw__placement_wrote(spw__placement *placement, size_t size)
{
    placement->values->ops->wrote(placement->values, size);
}

/* ----- regions ----- */

bool spw__placement_is_alone(const spw__placement *placement, uint64_t frame)
{
    const spw_slice *slices = spw_payload_slices(placement->payload);
    const spw_buffer *buffer = slices[frame].buffer;
    if (slices[frame].kind != SPW_MEMORY_HOST)
        return false;
    /* Frames of one region lie side by side, unless it is the one for small frames. */
    bool follows = frame > 0 && slices[frame - 1].buffer == buffer;
    bool is_followed = frame + 1 < spw_payload_count(placement->payload) &&
                       slices[frame + 1].buffer == buffer;
    return buffer != placement->shared && !follows && !is_followed;
}

void spw__placement_replace(spw__placement *placement, uint64_t frame,
                            spw_buffer *buffer)
{
    const spw_slice *slice = &spw_payload_slices(placement->payload)[frame];
    size_t i = 0;
    while (placement->regions[i].buffer != slice->buffer ||
           placement->regions[i].offset != slice->offset)
        i++;
    spw_slice region = placement->regions[i];
    placement->regions[i] = placement->regions[--placement->region_count];
    spw__place *place = spw__buffer_place(region.buffer);
    if (place != NULL)
        spw__buffer_hold(buffer, spw__place_ref(place));
    spw__payload_replace(placement->payload, (size_t)frame, buffer);
    placement->sink.ops->abort(placement->sink.self, &region);
    spw_buffer_unref(region.buffer);
}

static void drop_regions(spw__placement *placement,
                         void (*end)(void *self, const spw_slice *slice))
{
    for (size_t i = 0; i < placement->region_count; i++) {
        end(placement->sink.self, &placement->regions[i]);
        spw_buffer_unref(placement->regions[i].buffer);
    }
    placement->region_count = 0;
    placement->shared = NULL;
    placement->frames = 0;
}

static void release_scratch(spw__placement *placement)
{
    spw__release(placement->context, placement->regions,
                 placement->region_capacity * sizeof(spw_slice), sizeof(void *));
    placement->regions = NULL;
    placement->region_capacity = 0;
    spw__sub_header_clear(&placement->header, placement->context);
}

spw_payload *spw__placement_commit(spw__placement *placement)
{
    spw_payload *payload = placement->payload;
    placement->payload = NULL;
    spw__placement_ask(placement, NULL);
    drop_regions(placement, placement->sink.ops->commit);
    const spw__sub_header *header = &placement->header;
    if (placement->region_capacity > KEPT_ENTRIES ||
        header->buffer_capacity > KEPT_ENTRIES ||
        header->compressed_capacity > KEPT_ENTRIES)
        release_scratch(placement);
    return payload;
}

void spw__placement_abort(spw__placement *placement)
{
    spw__placement_ask(placement, NULL);
    spw_payload_free(placement->payload);
    placement->payload = NULL;
    drop_regions(placement, placement->sink.ops->abort);
}

void spw__placement_clear(spw__placement *placement)
{
    spw__placement_abort(placement);
    release_scratch(placement);
}
