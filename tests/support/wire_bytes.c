#include "wire_bytes.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

void wire_clear(wire_bytes *wire)
{
    free(wire->bytes);
    *wire = (wire_bytes){0};
}

static uint8_t *grow(wire_bytes *wire, size_t size)
{
    if (size > wire->room - wire->size) {
        wire->room = 2 * (wire->size + size);
        wire->bytes = realloc(wire->bytes, wire->room);
        assert_non_null(wire->bytes);
    }
    wire->size += size;
    return wire->bytes + wire->size - size;
}

void wire_put(wire_bytes *wire, const void *data, size_t size)
{
    if (size > 0)
        memcpy(grow(wire, size), data, size);
}

static void put_number(wire_bytes *wire, uint64_t value, unsigned width,
                       bool is_big_endian)
{
    uint8_t *to = grow(wire, width);
    for (unsigned i = 0; i < width; i++)
        to[is_big_endian ? width - 1 - i : i] = (uint8_t)(value >> 8 * i);
}

void wire_put_u64(wire_bytes *wire, uint64_t value)
{
    put_number(wire, value, 8, false);
}

void wire_put_noise(wire_bytes *wire, size_t size, unsigned seed)
{
    if (size == 0)
        return;
    uint8_t *to = grow(wire, size);
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (uint8_t)(state >> 24);
    }
}

void wire_put_corpus(wire_bytes *wire, const char *path)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", TEST_CORPUS_DIR, path);
    FILE *file = fopen(name, "rb");
    if (file == NULL)
        fail_msg("%s cannot be opened", name);
    uint8_t piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;)
        wire_put(wire, piece, n);
    fclose(file);
}

static void put_head(wire_bytes *wire, uint8_t head, uint64_t value, unsigned width)
{
    wire_put(wire, &head, 1);
    put_number(wire, value, width, true);
}

void wire_put_map(wire_bytes *wire, size_t pairs)
{
    put_head(wire, 0xdf, pairs, 4);
}

void wire_put_array(wire_bytes *wire, size_t items)
{
    put_head(wire, 0xdd, items, 4);
}

void wire_put_unsigned(wire_bytes *wire, uint64_t value)
{
    if (value < 0x80)
        wire_put(wire, &(uint8_t){(uint8_t)value}, 1);
    else
        put_head(wire, 0xcf, value, 8);
}

void wire_put_string(wire_bytes *wire, const char *text)
{
    put_head(wire, 0xda, strlen(text), 2);
    wire_put(wire, text, strlen(text));
}

void wire_put_nil(wire_bytes *wire)
{
    wire_put(wire, "\xc0", 1);
}

static void put_compression(wire_bytes *wire, const wire_value *value)
{
    wire_put_string(wire, "compression");
    wire_put_array(wire, value->sub_frames);
    for (size_t i = 0; i < value->sub_frames; i++)
        if (value->compression[i] == NULL)
            wire_put_nil(wire);
        else
            wire_put_string(wire, value->compression[i]);
}

void wire_put_sub_header(wire_bytes *wire, const wire_value *value)
{
    size_t pairs = 2;
    pairs += value->compression != NULL ? 1 : 0;
    pairs += value->shards != NULL ? 2 : 0;
    wire_put_map(wire, pairs);
    wire_put_string(wire, "serializer");
    wire_put_string(wire, "dask");
    if (value->compression != NULL)
        put_compression(wire, value);
    if (value->shards != NULL) {
        wire_put_string(wire, "split-num-sub-frames");
        wire_put_array(wire, value->buffers);
        for (size_t i = 0; i < value->buffers; i++)
            wire_put_unsigned(wire, value->shards[i]);
        wire_put_string(wire, "split-offsets");
        wire_put_array(wire, value->buffers);
        size_t offset = 0;
        for (size_t i = 0; i < value->buffers; i++) {
            wire_put_unsigned(wire, offset);
            offset += value->shards[i];
        }
    }
    wire_put_string(wire, "num-sub-frames");
    wire_put_unsigned(wire, value->sub_frames);
}

void wire_put_message(wire_bytes *wire, const wire_bytes *frames, size_t count,
                      size_t first_frames)
{
    uint64_t first_segment = 8 + 8 * count;
    for (size_t i = 0; i < first_frames; i++)
        first_segment += frames[i].size;
    wire_put_u64(wire, first_segment);
    wire_put_u64(wire, count);
    for (size_t i = 0; i < count; i++)
        wire_put_u64(wire, frames[i].size);
    for (size_t i = 0; i < count; i++)
        wire_put(wire, frames[i].bytes, frames[i].size);
}

void wire_put_referenced(wire_bytes *wire, const wire_bytes *frames, size_t count,
                         const uint64_t *places)
{
    wire_put_u64(wire, (uint64_t)1 << 63 | (8 + 16 * count));
    wire_put_u64(wire, count);
    for (size_t i = 0; i < count; i++)
        wire_put_u64(wire, frames[i].size);
    for (size_t i = 0; i < count; i++)
        wire_put_u64(wire, places[i]);
    for (size_t i = 0; i < count; i++)
        if (places[i] == 0)
            wire_put(wire, frames[i].bytes, frames[i].size);
}

uint64_t wire_number_at(const uint8_t *data)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | data[i];
    return value;
}

void wire_begin(wire_bytes *wire, uint64_t first_segment, uint64_t frames)
{
    wire_clear(wire);
    wire_put_u64(wire, first_segment);
    wire_put_u64(wire, frames);
}
