/* Dask's TCP message format (docs/wire_format.md): u64 bytes of the first segment,
 * u64 frames, one u64 length a frame, then the frames. All little-endian. */
#ifndef SPW_FRAMING_WIRE_H
#define SPW_FRAMING_WIRE_H

#include <stdint.h>

/* The first two numbers, which every message has. */
enum { SPW__WIRE_HEAD_BYTES = 16 };

static inline uint64_t spw__wire_prelude_bytes(uint64_t frames)
{
    return SPW__WIRE_HEAD_BYTES + 8 * frames;
}

/* The first number has its top bit set where bodies come by another way than the
 * stream: a second table, of u64 places, then follows the lengths and ends the first
 * segment. */
#define SPW__WIRE_REFERENCED (UINT64_C(1) << 63)
enum {
    SPW__WIRE_IN_STREAM = 0,
    SPW__WIRE_BY_DESCRIPTOR =
        1 /* any other place is an address in the sender's memory */
};

static inline uint64_t spw__wire_referenced_prelude_bytes(uint64_t frames)
{
    return SPW__WIRE_HEAD_BYTES + 16 * frames;
}

/* Write a number. Returns: the place after it. */
static inline char *spw__wire_put(char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (char)(value >> (8 * i));
    return to + 8;
}

#endif
