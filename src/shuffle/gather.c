/* The plain way to gather items, and the choice of a better one. A size that the
 * compiler knows is a load and a store; memcpy, because nobody promises that items lie
 * on boundaries of their size. */
#include "shuffle/gather.h"

#include <string.h>

enum { LINE_BYTES = 64 };

/* Inlined with the size known, and the stride too where items lie side by side. */
static inline void gather(uint8_t *out, const uint8_t *items, const uint32_t *order,
                          size_t count, size_t item_size, size_t stride)
{
    for (size_t i = 0; i < count; i++)
        memcpy(out + i * item_size, items + (size_t)order[i] * stride, item_size);
}

SPW__GATHER_ITEMS_OF(1)
SPW__GATHER_ITEMS_OF(2)
SPW__GATHER_ITEMS_OF(4)
SPW__GATHER_ITEMS_OF(8)
SPW__GATHER_ITEMS_OF(12)
SPW__GATHER_ITEMS_OF(16)

static void gather_items(uint8_t *out, const uint8_t *items, const uint32_t *order,
                         size_t count, size_t item_size, size_t stride)
{
    gather(out, items, order, count, item_size, stride);
}

#define CASE_OF(bytes)                                                                 \
    case bytes:                                                                        \
        return stride == (bytes) ? gather_items_of_##bytes : gather_strided_of_##bytes

spw__gather_fn spw__gather_for(spw__gather_way most, size_t item_size, size_t stride)
{
    spw__gather_fn streamed = NULL;
    if (most == SPW__GATHER_STREAMED)
        streamed = spw__gather_for_streamed(item_size, stride);
    if (streamed != NULL)
        return streamed;
    switch (item_size) {
        CASE_OF(1);
        CASE_OF(2);
        CASE_OF(4);
        CASE_OF(8);
        CASE_OF(12);
        CASE_OF(16);
    default:
        return gather_items;
    }
}

void spw__gather_touch(const uint8_t *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += LINE_BYTES)
        (void)*(const volatile uint8_t *)(bytes + i);
}
