/* The plain way to gather items, and the choice of a better one. A size that the
 * compiler knows is a load and a store; memcpy, because nobody promises that items lie
 * on boundaries of their size. */
#include "shuffle/gather.h"

#include <string.h>

enum { LINE_BYTES = 64 };

#define GATHER_ITEMS_OF(bytes)                                                         \
    static void gather_items_of_##bytes(uint8_t *out, const uint8_t *items,            \
                                        const uint32_t *order, size_t count,           \
                                        size_t item_size)                              \
    {                                                                                  \
        (void)item_size;                                                               \
        for (size_t i = 0; i < count; i++)                                             \
            memcpy(out + i * (bytes), items + (size_t)order[i] * (bytes), (bytes));    \
    }

GATHER_ITEMS_OF(1)
GATHER_ITEMS_OF(2)
GATHER_ITEMS_OF(4)
GATHER_ITEMS_OF(8)
GATHER_ITEMS_OF(12)
GATHER_ITEMS_OF(16)

static void gather_items(uint8_t *out, const uint8_t *items, const uint32_t *order,
                         size_t count, size_t item_size)
{
    for (size_t i = 0; i < count; i++)
        memcpy(out + i * item_size, items + (size_t)order[i] * item_size, item_size);
}

spw__gather_fn spw__gather_for(spw__gather_way most, size_t item_size)
{
    spw__gather_fn streamed = NULL;
    if (most == SPW__GATHER_STREAMED)
        streamed = spw__gather_for_streamed(item_size);
    if (streamed != NULL)
        return streamed;
    switch (item_size) {
    case 1:
        return gather_items_of_1;
    case 2:
        return gather_items_of_2;
    case 4:
        return gather_items_of_4;
    case 8:
        return gather_items_of_8;
    case 12:
        return gather_items_of_12;
    case 16:
        return gather_items_of_16;
    default:
        return gather_items;
    }
}

void spw__gather_touch(const uint8_t *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += LINE_BYTES)
        (void)*(const volatile uint8_t *)(bytes + i);
}
