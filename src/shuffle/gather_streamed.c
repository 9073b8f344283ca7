/* Gathering past the cache: a run of some length is written a line at a time without
 * being read first, since nobody reads a shard before the whole table is split. SSE2
 * has what it takes, and so has every x86-64; instructions that gather bring nothing
 * beside it (docs/decisions/0020-shards.md).
 *
 * Invariant: what is streamed goes to whole lines of 64 bytes, and is seen by other
 * threads from spw__gather_end on. */
#include "shuffle/gather.h"

#include <stdbool.h>
#include <string.h>

#if defined(__SSE2__)

#include <emmintrin.h>

enum {
    LINE_BYTES = 64,
    STREAM_BYTES_MIN = 512 /* of shorter runs too much is lines that are shared */
};

static inline __m128i pair_of_8(const uint8_t *items, const uint32_t *order,
                                size_t stride)
{
    int64_t pair[2];
    memcpy(&pair[0], items + (size_t)order[0] * stride, 8);
    memcpy(&pair[1], items + (size_t)order[1] * stride, 8);
    return _mm_set_epi64x(pair[1], pair[0]);
}

static inline __m128i four_of_4(const uint8_t *items, const uint32_t *order,
                                size_t stride)
{
    int32_t four[4];
    for (size_t i = 0; i < 4; i++)
        memcpy(&four[i], items + (size_t)order[i] * stride, 4);
    return _mm_set_epi32(four[3], four[2], four[1], four[0]);
}

static inline __m128i one_of_16(const uint8_t *items, const uint32_t *order,
                                size_t stride)
{
    return _mm_loadu_si128((const __m128i_u *)(items + (size_t)order[0] * stride));
}

/* Items of a line, whose first one is at order[0]. Inlined with the size known. */
static inline void stream_line(uint8_t *line, const uint8_t *items,
                               const uint32_t *order, size_t item_size, size_t stride)
{
    size_t step = 16 / item_size;
    for (size_t i = 0; i < 4; i++, order += step) {
        __m128i part = item_size == 4   ? four_of_4(items, order, stride)
                       : item_size == 8 ? pair_of_8(items, order, stride)
                                        : one_of_16(items, order, stride);
        _mm_stream_si128((__m128i *)line + i, part);
    }
}

/* Inlined with the size known, and the stride too where items lie side by side. */
static inline void gather(uint8_t *out, const uint8_t *items, const uint32_t *order,
                          size_t count, size_t item_size, size_t stride)
{
    size_t over = (uintptr_t)out % LINE_BYTES, i = 0;
    size_t per_line = LINE_BYTES / item_size;
    if (over % item_size == 0 && count * item_size >= STREAM_BYTES_MIN) {
        for (; over > 0 && i < (LINE_BYTES - over) / item_size; i++)
            memcpy(out + i * item_size, items + order[i] * stride, item_size);
        for (; i + per_line <= count; i += per_line)
            stream_line(out + i * item_size, items, order + i, item_size, stride);
    }
    for (; i < count; i++)
        memcpy(out + i * item_size, items + order[i] * stride, item_size);
}

SPW__GATHER_ITEMS_OF(4)
SPW__GATHER_ITEMS_OF(8)
SPW__GATHER_ITEMS_OF(16)

spw__gather_fn spw__gather_for_streamed(size_t item_size, size_t stride)
{
    switch (item_size) {
    case 4:
        return stride == 4 ? gather_items_of_4 : gather_strided_of_4;
    case 8:
        return stride == 8 ? gather_items_of_8 : gather_strided_of_8;
    case 16:
        return stride == 16 ? gather_items_of_16 : gather_strided_of_16;
    default:
        return NULL;
    }
}

void spw__gather_end(void)
{
    _mm_sfence();
}

#else

spw__gather_fn spw__gather_for_streamed(size_t item_size, size_t stride)
{
    (void)item_size, (void)stride;
    return NULL;
}

void spw__gather_end(void) {}

#endif
