/* Where things are in a shard: docs/shuffle_layout.md in code, for who writes shards
 * and who reads them. Columns of one length stand side by side, and behind them, in the
 * same order, what is inside of each. A column is parts, each of which ends on a
 * multiple of 8 bytes: its validity if the type has one, then items, or bits, or ends
 * and data, or data. */
#ifndef SPW_SHUFFLE_SHARD_LAYOUT_H
#define SPW_SHUFFLE_SHARD_LAYOUT_H

#include "spillway/shuffle.h"

/* Counted from the first byte of the column, where its validity is. */
typedef struct spw__shard_parts {
    uint64_t values; /* items, bits or ends */
    uint64_t data;   /* of BINARY and BLOB; the end otherwise */
    uint64_t end;
} spw__shard_parts;

static inline uint64_t spw__shard_align(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

static inline uint64_t spw__bitmap_bytes(uint64_t bits)
{
    return (bits + 7) / 8;
}

static inline bool spw__column_has_data(const spw_column_type *type)
{
    return type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_BLOB;
}

static inline bool spw__column_has_offsets(const spw_column_type *type)
{
    return type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_LIST;
}

static inline bool spw__column_has_count(const spw_column_type *type)
{
    return spw__column_has_data(type) || type->kind == SPW_COLUMN_LIST;
}

/* How many rows the columns inside of a list have, of so many rows and such a count. */
static inline uint64_t spw__column_inner_rows(const spw_column_type *type,
                                              uint64_t rows, uint64_t count)
{
    return type->kind == SPW_COLUMN_LIST ? count : rows * type->item_size;
}

/* Of a column with offsets a shard has the end of each row, counted from the first
 * row's begin, and the begin of none: it is the end of the row before. */
static inline uint32_t spw__shard_end_size(uint64_t count)
{
    return count <= UINT32_MAX ? 4 : 8;
}

/* Bytes of the part that has values, without what fills it up. */
static inline uint64_t spw__shard_values_bytes(const spw_column_type *type,
                                               uint32_t rows, uint64_t count)
{
    if (type->kind == SPW_COLUMN_BITS)
        return spw__bitmap_bytes(rows);
    if (type->kind == SPW_COLUMN_BLOB || type->kind == SPW_COLUMN_FIXED_LIST)
        return 0;
    uint32_t size =
        type->kind == SPW_COLUMN_FIXED ? type->item_size : spw__shard_end_size(count);
    return (uint64_t)rows * size;
}

/* count (0 of what has none) is at most half of the address space, and of a LIST at
 * most UINT32_MAX; then
 * nothing here overflows, since the rest is below 2^64 - 2^32 for any type. */
static inline spw__shard_parts spw__shard_parts_of(const spw_column_type *type,
                                                   uint32_t rows, uint64_t count)
{
    spw__shard_parts parts;
    parts.values = type->has_validity ? spw__shard_align(spw__bitmap_bytes(rows)) : 0;
    parts.data =
        parts.values + spw__shard_align(spw__shard_values_bytes(type, rows, count));
    parts.end = parts.data + (spw__column_has_data(type) ? spw__shard_align(count) : 0);
    return parts;
}

/* See that types make sense, each and as a tree; they are stride bytes apart.
 * Returns: in ret_count_columns (NULL allowed), how many have a count. Errors:
 * INVALID_ARGUMENT, LIMIT_EXCEEDED (the depth), with the column's number. */
spw_status spw__column_types_check(const spw_column_type *types, size_t stride,
                                   size_t column_count, size_t *ret_count_columns,
                                   spw_error *error);

/* Returns: how many columns have a count. Thread: any. */
static inline size_t spw__count_columns(const spw_column_type *types,
                                        size_t column_count)
{
    size_t count = 0;
    for (size_t i = 0; i < column_count; i++)
        count += spw__column_has_count(&types[i]);
    return count;
}

#endif
