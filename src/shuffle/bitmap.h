/* Bitmaps that grow by a run of bits at a time, bit 0 of a byte first, as Arrow has
 * them. Each of these writes count bits from bit at on: what stands before it in its
 * byte stays, what is behind the last one in its byte is cleared, and no other byte is
 * touched. Thread: any. */
#ifndef SPW_SHUFFLE_BITMAP_H
#define SPW_SHUFFLE_BITMAP_H

#include <stddef.h>
#include <stdint.h>

/* Ones. */
void spw__bitmap_append_ones(uint8_t *bitmap, uint64_t at, uint64_t count);
/* The first count bits of source. */
void spw__bitmap_append(uint8_t *bitmap, uint64_t at, const uint8_t *source,
                        uint64_t count);
/* Bits first + order[0], first + order[1], ... of source. */
void spw__bitmap_append_gathered(uint8_t *bitmap, uint64_t at, const uint8_t *source,
                                 uint64_t first, const uint32_t *order, size_t count);

#endif
