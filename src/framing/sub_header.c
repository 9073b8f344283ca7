/* Sub-headers: a top-level msgpack map, of which four keys matter here. Whatever does
 * not fit is left to plain placement, which is always right, only not zero-copy. */
#include "framing/sub_header.h"

#include "context/allocate.h"
#include "framing/msgpack_scan.h"

static bool key_is(const uint8_t *key, uint64_t size, const char *name)
{
    return size == strlen(name) && memcmp(key, name, (size_t)size) == 0;
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

static bool read_buffer_frames(spw__sub_header *header, spw_context *context,
                               spw__byte_reader *reader, spw_status *ret_status,
                               spw_error *error)
{
    uint64_t items;
    if (!read_array(reader, &items))
        return false;
    *ret_status =
        spw__grow(context, (void **)&header->buffer_frames, &header->buffer_capacity,
                  (size_t)items, sizeof *header->buffer_frames, error);
    if (*ret_status != SPW_STATUS_OK)
        return false;
    for (uint64_t i = 0; i < items; i++)
        if (!read_unsigned(reader, &header->buffer_frames[i]))
            return false;
    header->buffer_count = (size_t)items;
    header->has_buffers = true;
    return true;
}

static bool read_compression(spw__sub_header *header, spw_context *context,
                             spw__byte_reader *reader, spw_status *ret_status,
                             spw_error *error)
{
    spw__byte_reader ahead = *reader;
    spw__msgpack_item item;
    if (spw__msgpack_next(&ahead, &item) && item.kind == SPW__MSGPACK_NIL) {
        *reader = ahead;
        return true;
    }
    uint64_t items;
    if (!read_array(reader, &items))
        return false;
    *ret_status =
        spw__grow(context, (void **)&header->is_compressed,
                  &header->compressed_capacity, (size_t)items, sizeof(bool), error);
    if (*ret_status != SPW_STATUS_OK)
        return false;
    for (uint64_t i = 0; i < items; i++) {
        if (!spw__msgpack_next(reader, &item))
            return false;
        header->is_compressed[i] = item.kind != SPW__MSGPACK_NIL;
        if ((item.kind == SPW__MSGPACK_STRING || item.kind == SPW__MSGPACK_OTHER) &&
            !spw__byte_reader_skip(reader, item.value))
            return false;
        if (item.kind == SPW__MSGPACK_ARRAY || item.kind == SPW__MSGPACK_MAP)
            return false;
    }
    header->compressed_count = (size_t)items;
    return true;
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
                           const void *data, size_t size, spw_status *ret_status,
                           spw_error *error)
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
        spw__msgpack_item key;
        if (!spw__msgpack_next(&reader, &key) || key.kind != SPW__MSGPACK_STRING)
            return false;
        const uint8_t *name = reader.next;
        if (!spw__byte_reader_skip(&reader, key.value))
            return false;
        if (key_is(name, key.value, "num-sub-frames")) {
            has_count = read_unsigned(&reader, &header->sub_frames);
            if (!has_count)
                return false;
        } else if (key_is(name, key.value, "split-num-sub-frames")) {
            if (!read_buffer_frames(header, context, &reader, ret_status, error))
                return false;
        } else if (key_is(name, key.value, "compression")) {
            if (!read_compression(header, context, &reader, ret_status, error))
                return false;
        } else {
            if (key_is(name, key.value, "split-offsets"))
                offsets = reader;
            if (!spw__msgpack_skip(&reader))
                return false;
        }
    }
    if (!has_count)
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
