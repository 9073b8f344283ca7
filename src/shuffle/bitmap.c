/* Bits are written a byte at a time. A byte that is begun in one call and ended in the
 * next is read back, so that no state is kept between them. */
#include "shuffle/bitmap.h"

#include <string.h>

/* The lowest bits of a byte. */
static uint8_t low_bits(uint64_t count)
{
    return (uint8_t)((1u << count) - 1);
}

/* What a byte has before bit used, and value from there on. */
static uint8_t join(uint8_t byte, unsigned used, unsigned value)
{
    return (uint8_t)((byte & low_bits(used)) | value << used);
}

void spw__bitmap_append_ones(uint8_t *bitmap, uint64_t at, uint64_t count)
{
    uint8_t *byte = bitmap + at / 8;
    unsigned used = (unsigned)(at % 8);
    if (used > 0 && count > 0) {
        uint64_t taken = count < 8 - used ? count : 8 - used;
        *byte = join(*byte, used, low_bits(taken));
        count -= taken;
        byte++;
    }
    memset(byte, 0xff, (size_t)(count / 8));
    if (count % 8 > 0)
        byte[count / 8] = low_bits(count % 8);
}

void spw__bitmap_append(uint8_t *bitmap, uint64_t at, const uint8_t *source,
                        uint64_t count)
{
    uint8_t *byte = bitmap + at / 8;
    unsigned used = (unsigned)(at % 8);
    size_t whole = (size_t)(count / 8);
    unsigned rest = (unsigned)(count % 8);
    if (used == 0) {
        if (whole > 0)
            memcpy(byte, source, whole);
    } else {
        for (size_t i = 0; i < whole; i++) {
            byte[i] = join(byte[i], used, source[i]);
            byte[i + 1] = (uint8_t)(source[i] >> (8 - used));
        }
    }
    if (rest == 0)
        return;
    unsigned last = source[whole] & low_bits(rest);
    byte[whole] = join(byte[whole], used, last);
    if (used + rest > 8)
        byte[whole + 1] = (uint8_t)(last >> (8 - used));
}

static unsigned bit_at(const uint8_t *source, uint64_t bit)
{
    return (unsigned)source[bit / 8] >> (bit % 8) & 1u;
}

void spw__bitmap_append_gathered(uint8_t *bitmap, uint64_t at, const uint8_t *source,
                                 uint64_t first, const uint32_t *order, size_t count)
{
    uint8_t *byte = bitmap + at / 8;
    unsigned used = (unsigned)(at % 8);
    size_t i = 0;
    if (used > 0 && count > 0) {
        unsigned value = 0;
        for (unsigned bit = 0; i < count && bit < 8 - used; i++, bit++)
            value |= bit_at(source, first + order[i]) << bit;
        *byte = join(*byte, used, value);
        byte++;
    }
    for (; i + 8 <= count; i += 8) {
        unsigned value = 0;
        for (unsigned bit = 0; bit < 8; bit++)
            value |= bit_at(source, first + order[i + bit]) << bit;
        *byte++ = (uint8_t)value;
    }
    if (i == count)
        return;
    unsigned value = 0;
    for (unsigned bit = 0; i < count; i++, bit++)
        value |= bit_at(source, first + order[i]) << bit;
    *byte = (uint8_t)value;
}
