/* Gathering: values of rows that lie apart, put side by side. What splitting spends its
 * time in. Rows are told by their number from the first one that may be meant, Thread:
 * any. */
#ifndef SPW_SHUFFLE_GATHER_H
#define SPW_SHUFFLE_GATHER_H

#include <stddef.h>
#include <stdint.h>

/* Puts items[order[i]] at out[i], count times. stride: bytes from one item to the next,
 * at least item_size; what is gathered has no gaps. */
typedef void (*spw__gather_fn)(uint8_t *out, const uint8_t *items,
                               const uint32_t *order, size_t count, size_t item_size,
                               size_t stride);

/* The ways there are; all give the same bytes. */
typedef enum spw__gather_way {
    SPW__GATHER_PLAIN = 0,
    SPW__GATHER_STREAMED = 1 /* where the processor has it; plain elsewhere */
} spw__gather_way;

/* The way to gather items of a size and stride that is not above the given one.
 * Returns: never NULL. */
spw__gather_fn spw__gather_for(spw__gather_way most, size_t item_size, size_t stride);
/* gather_streamed.c; NULL for a size that it does not have. */
spw__gather_fn spw__gather_for_streamed(size_t item_size, size_t stride);
/* After the last call of any of them, before anybody is given what they wrote. */
void spw__gather_end(void);

/* The two of a size, for items that lie side by side and for others, of a file's own
 * inlined gather(). */
#define SPW__GATHER_ITEMS_OF(bytes)                                                    \
    static void gather_items_of_##bytes(uint8_t *out, const uint8_t *items,            \
                                        const uint32_t *order, size_t count,           \
                                        size_t item_size, size_t stride)               \
    {                                                                                  \
        (void)item_size, (void)stride;                                                 \
        gather(out, items, order, count, (bytes), (bytes));                            \
    }                                                                                  \
    static void gather_strided_of_##bytes(uint8_t *out, const uint8_t *items,          \
                                          const uint32_t *order, size_t count,         \
                                          size_t item_size, size_t stride)             \
    {                                                                                  \
        (void)item_size;                                                               \
        gather(out, items, order, count, (bytes), stride);                             \
    }

/* Bring size bytes into the cache, in the order in which a processor is good at that,
 * because they will be read in another. */
void spw__gather_touch(const uint8_t *bytes, uint64_t size);

/* A binary column to gather from, whose offsets have been checked. */
typedef struct spw__binary_source {
    const uint8_t *offsets; /* of the row that order counts from */
    uint32_t offset_size;   /* 4 or 8 */
    const uint8_t *data;    /* not NULL */
    uint64_t data_size;
} spw__binary_source;

/* The ends and data of one shard, of which rows have been gathered before. */
typedef struct spw__binary_run {
    uint8_t *ends;
    uint32_t end_size; /* 4 or 8 */
    uint32_t rows_before;
    uint8_t *data;
    uint64_t data_size; /* bytes that it will have when all rows are there */
} spw__binary_run;

/* Behind order's count rows there are so many more, of which any may be looked at:
 * those of the next partition, or row 0. */
#define SPW__GATHER_AHEAD 32

void spw__gather_binary(const spw__binary_run *run, const spw__binary_source *source,
                        const uint32_t *order, size_t count);

#endif
