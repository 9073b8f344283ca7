/* Gathering values of any length. Most strings are short, and a copy whose length is
 * not known costs more than their bytes: up to PIECE_BYTES * 2 bytes are copied as one
 * or two pieces of fixed length. What is copied too much is written over by the next
 * row, so it must stay within the shard's own data, and is read from within the
 * column's. */
#include <string.h>

#include "context/compiler.h"
#include "shuffle/gather.h"
#include "shuffle/numbers.h"

enum { PIECE_BYTES = 16 };

/* room and left: bytes from out and from value on that may be written and read. */
static inline void copy_value(uint8_t *out, uint64_t room, const uint8_t *value,
                              uint64_t left, uint64_t size)
{
    uint64_t least = room < left ? room : left;
    if (size <= PIECE_BYTES && least >= PIECE_BYTES) {
        memcpy(out, value, PIECE_BYTES);
    } else if (size <= 2 * PIECE_BYTES && least >= 2 * PIECE_BYTES) {
        memcpy(out, value, PIECE_BYTES);
        memcpy(out + PIECE_BYTES, value + PIECE_BYTES, PIECE_BYTES);
    } else {
        memcpy(out, value, (size_t)size);
    }
}

/* Inlined with both sizes known. A value is found by way of its offset, and neither is
 * where the last one was: more of them have to be under way than a processor begins by
 * itself. (Not in a function of its own, which GCC takes for one without effect.) */
static inline void gather(const spw__binary_run *run, const spw__binary_source *source,
                          const uint32_t *order, size_t count, uint32_t end_size,
                          uint32_t offset_size)
{
    size_t row = run->rows_before;
    uint64_t end = row > 0 ? spw__number_at(run->ends, end_size, row - 1) : 0;
    for (size_t i = 0; i < count; i++, row++) {
        uint64_t far = order[i + SPW__GATHER_AHEAD];
        uint64_t near = spw__number_at(source->offsets, offset_size,
                                       order[i + SPW__GATHER_AHEAD / 2]);
        SPW_PREFETCH(source->offsets + far * offset_size);
        SPW_PREFETCH(source->data + near);
        uint64_t from = spw__number_at(source->offsets, offset_size, order[i]);
        uint64_t to =
            spw__number_at(source->offsets, offset_size, (uint64_t)order[i] + 1);
        copy_value(run->data + end, run->data_size - end, source->data + from,
                   source->data_size - from, to - from);
        end += to - from;
        spw__number_put(run->ends, end_size, row, end);
    }
}

void spw__gather_binary(const spw__binary_run *run, const spw__binary_source *source,
                        const uint32_t *order, size_t count)
{
    if (run->end_size == 4 && source->offset_size == 4)
        gather(run, source, order, count, 4, 4);
    else if (run->end_size == 4)
        gather(run, source, order, count, 4, 8);
    else if (source->offset_size == 4)
        gather(run, source, order, count, 8, 4);
    else
        gather(run, source, order, count, 8, 8);
}
