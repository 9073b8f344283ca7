/* Reading from the wire: every read is checked against what is there. */
#ifndef SPW_MEMORY_BYTE_READER_H
#define SPW_MEMORY_BYTE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct spw__byte_reader {
    const uint8_t *next; /* invariant: next <= end */
    const uint8_t *end;
} spw__byte_reader;

static inline spw__byte_reader spw__byte_reader_over(const void *data, size_t size)
{
    const uint8_t *start = data;
    /* No arithmetic on NULL, not even by 0. */
    return (spw__byte_reader){start, size > 0 ? start + size : start};
}

static inline size_t spw__byte_reader_left(const spw__byte_reader *reader)
{
    return (size_t)(reader->end - reader->next);
}

static inline bool spw__byte_reader_skip(spw__byte_reader *reader, uint64_t bytes)
{
    if (bytes > spw__byte_reader_left(reader))
        return false;
    reader->next += bytes;
    return true;
}

static inline bool spw__byte_reader_u8(spw__byte_reader *reader, uint8_t *ret_value)
{
    if (reader->next == reader->end)
        return false;
    *ret_value = *reader->next++;
    return true;
}

/* An unsigned number of width bytes (1 to 8), most significant byte first. */
static inline bool spw__byte_reader_be(spw__byte_reader *reader, unsigned width,
                                       uint64_t *ret_value)
{
    if (width > spw__byte_reader_left(reader))
        return false;
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++)
        value = value << 8 | reader->next[i];
    reader->next += width;
    *ret_value = value;
    return true;
}

/* An unsigned number of width bytes (1 to 8), least significant byte first. */
static inline bool spw__byte_reader_le(spw__byte_reader *reader, unsigned width,
                                       uint64_t *ret_value)
{
    if (width > spw__byte_reader_left(reader))
        return false;
    uint64_t value = 0;
    for (unsigned i = width; i-- > 0;)
        value = value << 8 | reader->next[i];
    reader->next += width;
    *ret_value = value;
    return true;
}

#endif
