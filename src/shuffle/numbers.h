/* Arrays of numbers of 4 or 8 bytes that need not lie on boundaries: offsets and ends.
 * Whoever loops over them calls these with a size that the compiler knows. Numbers of
 * shards are little-endian, as the machines are that this runs on. */
#ifndef SPW_SHUFFLE_NUMBERS_H
#define SPW_SHUFFLE_NUMBERS_H

#include <stdint.h>
#include <string.h>

static inline uint64_t spw__number_at(const void *numbers, uint32_t size, uint64_t i)
{
    uint64_t wide;
    uint32_t narrow;
    if (size == 8) {
        memcpy(&wide, (const uint8_t *)numbers + i * 8, 8);
        return wide;
    }
    memcpy(&narrow, (const uint8_t *)numbers + i * 4, 4);
    return narrow;
}

static inline void spw__number_put(void *numbers, uint32_t size, uint64_t i,
                                   uint64_t number)
{
    uint32_t narrow = (uint32_t)number;
    if (size == 8)
        memcpy((uint8_t *)numbers + i * 8, &number, 8);
    else
        memcpy((uint8_t *)numbers + i * 4, &narrow, 4);
}

/* Offsets are signed: a negative one is as far outside as can be. */
static inline uint64_t spw__offset_at(const void *offsets, uint32_t size, uint64_t i)
{
    uint64_t number = spw__number_at(offsets, size, i);
    return size == 8 ? number : (uint64_t)(int64_t)(int32_t)number;
}

#endif
