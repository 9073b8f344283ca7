/* Sub-headers: a top-level msgpack map, of which four keys matter here. Whatever does
 * not fit is left to plain placement, which is always right, only not zero-copy. */
#include "framing/sub_header.h"

#include "context/allocate.h"
#include "framing/msgpack_scan.h"

/* key is what stands before text, which the caller has found to be all there. */
static bool key_is(const spw__byte_reader *text, const spw__msgpack_item *key,
                   const char *name)
{
    return key->kind == SPW__MSGPACK_STRING && key->value == strlen(name) &&
           memcmp(text->next, name, (size_t)key->value) == 0;
}

static bool read_unsigned(spw__byte_reader *reader, uint64_t *ret_value)
{
    spw__msgpack_item item;
    if (!spw__msgpack_next(reader, &item) || item.kind != SPW__MSGPACK_UNSIGNED)
        return false;
    *ret_value = item.value;
    return true;
}

/* The head of an array whose items can be there; each takes a byte at least. */
static bool read_array(spw__byte_reader *reader, uint64_t *ret_items)
{
    spw__msgpack_item item;
    if (!spw__msgpack_next(reader, &item) || item.kind != SPW__MSGPACK_ARRAY ||
        item.value > spw__byte_reader_left(reader))
        return false;
    *ret_items = item.value;
    return true;
}

/* How many sub-frames make up each buffer. A list longer than the frames behind has
 * empty buffers in it; they are legal, but not worth eight bytes for each. */
static bool read_buffer_frames(spw__sub_header *header, spw_context *context,
                               spw__byte_reader *reader, uint64_t frames_behind,
                               spw_status *ret_status, spw_error *error)
{
    header->has_buffers = false;
    spw__byte_reader list = *reader;
    uint64_t items;
    if (!read_array(&list, &items) || items > frames_behind)
        return spw__msgpack_skip(reader);
    *ret_status = spw__grow(context, &header->buffer_frames, &header->buffer_capacity,
                            (size_t)items, sizeof *header->buffer_frames, error);
    if (*ret_status != SPW_STATUS_OK)
        return false;
    for (uint64_t i = 0; i < items; i++)
        if (!read_unsigned(&list, &header->buffer_frames[i]))
            return spw__msgpack_skip(reader);
    *reader = list;
    header->buffer_count = (size_t)items;
    header->has_buffers = true;
    return true;
}

/* Which sub-frames are compressed. Only the order of nothing and something matters; the
 * value's decoder reads the names. */
static bool read_compression(spw__sub_header *header, spw_context *context,
                             spw__byte_reader *reader, uint64_t frames_behind,
                             spw_status *ret_status, spw_error *error)
{
    header->compressed_count = 0;
    spw__byte_reader list = *reader;
    uint64_t items;
    if (!read_array(&list, &items))
        return spw__msgpack_skip(reader);
    if (items > frames_behind)
        items = frames_behind;
    *ret_status =
        spw__grow(context, &header->is_compressed, &header->compressed_capacity,
                  (size_t)items, sizeof(bool), error);
    if (*ret_status != SPW_STATUS_OK)
        return false;
    for (uint64_t i = 0; i < items; i++) {
        spw__byte_reader name = list;
        spw__msgpack_item item;
        if (!spw__msgpack_skip(&list) || !spw__msgpack_next(&name, &item))
            return false;
        header->is_compressed[i] = item.kind != SPW__MSGPACK_NIL;
    }
    header->compressed_count = (size_t)items;
    return spw__msgpack_skip(reader);
}

/* Offsets that are not the running sum of the counts share or skip sub-frames; such a
 * value is legal, but its buffers do not lie one after another. */
static bool offsets_follow(const spw__sub_header *header, spw__byte_reader offsets)
{
    uint64_t items, expected = 0;
    if (!read_array(&offsets, &items) || items != header->buffer_count)
        return false;
    for (uint64_t i = 0; i < items; i++) {
        uint64_t offset;
        if (!read_unsigned(&offsets, &offset) || offset != expected)
            return false;
        if (header->buffer_frames[i] > header->sub_frames - expected)
            return false;
        expected += header->buffer_frames[i];
    }
    return expected == header->sub_frames;
}

bool spw__sub_header_parse(spw__sub_header *header, spw_context *context,
                           const void *data, size_t size, uint64_t frames_behind,
                           spw_status *ret_status, spw_error *error)
{
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    spw__byte_reader offsets = spw__byte_reader_over(data, 0);
    bool has_count = false;
    header->has_buffers = false;
    header->buffer_count = header->compressed_count = 0;
    *ret_status = SPW_STATUS_OK;
    spw__msgpack_item map;
    if (!spw__msgpack_next(&reader, &map) || map.kind != SPW__MSGPACK_MAP)
        return false;
    for (uint64_t pair = 0; pair < map.value; pair++) {
        spw__byte_reader name = reader;
        spw__msgpack_item key;
        if (!spw__msgpack_skip(&reader) || !spw__msgpack_next(&name, &key))
            return false;
        bool is_read;
        if (key_is(&name, &key, "num-sub-frames"))
            is_read = has_count = read_unsigned(&reader, &header->sub_frames);
        else if (key_is(&name, &key, "split-num-sub-frames"))
            is_read = read_buffer_frames(header, context, &reader, frames_behind,
                                         ret_status, error);
        else if (key_is(&name, &key, "compression"))
            is_read = read_compression(header, context, &reader, frames_behind,
                                       ret_status, error);
        else {
            if (key_is(&name, &key, "split-offsets"))
                offsets = reader;
            is_read = spw__msgpack_skip(&reader);
        }
        if (!is_read)
            return false;
    }
    if (!has_count || header->sub_frames > frames_behind)
        return false;
    header->has_buffers = header->has_buffers && offsets_follow(header, offsets);
    return true;
}

void spw__sub_header_clear(spw__sub_header *header, spw_context *context)
{
    spw__release(context, header->buffer_frames,
                 header->buffer_capacity * sizeof *header->buffer_frames,
                 sizeof(void *));
    spw__release(context, header->is_compressed,
                 header->compressed_capacity * sizeof(bool), sizeof(void *));
    *header = (spw__sub_header){0};
}
