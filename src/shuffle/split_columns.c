/* Invariant: what passes here can be read for each of its rows, and sums of sizes of
 * what is made of it do not overflow: all later arithmetic relies on it. That values,
 * bitmaps and offsets have as many items as the caller says is the caller's word. */
#include "shuffle/split_columns.h"

#include <inttypes.h>

#include "context/error.h"
#include "shuffle/numbers.h"
#include "shuffle/shard_layout.h"

static spw_status refuse(size_t number, const char *what, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0, "column %zu %s",
                          number, what);
}

/* Whether first + offset + rows items of item_size bytes fit the address space. */
static bool is_reachable(uint64_t first, uint64_t offset, uint64_t rows,
                         uint64_t item_size)
{
    uint64_t most = (uint64_t)PTRDIFF_MAX / item_size;
    return first <= most && offset <= most - first && rows <= most - first - offset;
}

/* What is there besides the offset of rows, and is not for the column's kind. */
static spw_status check_extras(const spw_column *column, size_t number,
                               spw_error *error)
{
    spw_column_kind kind = column->type.kind;
    if (kind != SPW_COLUMN_BITS && column->values_bit_offset != 0)
        return refuse(number, "has no bits to skip", error);
    if (kind != SPW_COLUMN_FIXED && column->stride != 0)
        return refuse(number, "has a stride, which only fixed ones have", error);
    if (column->stride != 0 && column->stride < column->type.item_size)
        return refuse(number, "has a stride that is smaller than an item", error);
    if (kind == SPW_COLUMN_BLOB && column->offset != 0)
        return refuse(number, "has no rows to skip", error);
    if (kind == SPW_COLUMN_FIXED_LIST && column->values != NULL)
        return refuse(number, "has values, which are in the columns inside", error);
    return SPW_STATUS_OK;
}

static spw_status check_values(const spw_column *column, size_t number, uint64_t first,
                               uint64_t row_count, spw_error *error)
{
    bool is_bits = column->type.kind == SPW_COLUMN_BITS;
    bool has_offsets = spw__column_has_offsets(&column->type);
    bool has_data = spw__column_has_data(&column->type);
    if (row_count > 0 && column->values == NULL &&
        column->type.kind != SPW_COLUMN_FIXED_LIST)
        return refuse(number, "has no values", error);
    uint64_t item_size =
        column->type.item_size == 0 ? 1 : spw__split_column_stride(column);
    if (column->offset > PTRDIFF_MAX ||
        !is_reachable(is_bits ? column->values_bit_offset : 0, column->offset + first,
                      row_count + has_offsets, item_size))
        return refuse(number, "is longer than the address space", error);
    bool has_size = has_data || column->type.kind == SPW_COLUMN_LIST;
    if ((!has_data && column->data != NULL) || (!has_size && column->data_size != 0))
        return refuse(number, "has data, which only binary ones and blobs have", error);
    if (has_data && column->data == NULL && column->data_size != 0)
        return refuse(number, "has data without an address", error);
    if (column->data_size > PTRDIFF_MAX)
        return refuse(number, "has more data than the address space", error);
    return SPW_STATUS_OK;
}

static spw_status check_validity(const spw_column *column, size_t number,
                                 uint64_t first, uint64_t row_count, spw_error *error)
{
    if (column->validity == NULL)
        return SPW_STATUS_OK;
    if (!column->type.has_validity)
        return refuse(number, "has a validity bitmap that its type does not have",
                      error);
    if (!is_reachable(column->validity_bit_offset, column->offset + first, row_count,
                      1))
        return refuse(number, "is longer than the address space", error);
    return SPW_STATUS_OK;
}

/* At least what all shards have of a column, filled up; below 2^64, since rows are
 * below 2^32, partitions at most 2^24, and data below 2^63. */
static uint64_t bound(const spw_column *column, uint64_t row_count,
                      uint32_t partition_count)
{
    uint64_t item_size = column->type.item_size;
    if (spw__column_has_offsets(&column->type))
        item_size = 8;
    else if (column->type.kind == SPW_COLUMN_FIXED_LIST)
        item_size = 0; /* what is inside is counted by itself */
    uint64_t values = row_count * item_size + row_count / 4;
    uint64_t filling = (uint64_t)partition_count * 32;
    uint64_t fixed = values + filling;
    bool is_large = fixed > PTRDIFF_MAX || !spw__column_has_data(&column->type);
    return is_large ? fixed : fixed + column->data_size;
}

spw_status spw__split_column_check(const spw_column *column, size_t number,
                                   uint64_t first, uint64_t row_count,
                                   uint32_t partition_count, uint64_t *bytes,
                                   spw_error *error)
{
    spw_status status = check_extras(column, number, error);
    if (status == SPW_STATUS_OK)
        status = check_values(column, number, first, row_count, error);
    if (status == SPW_STATUS_OK)
        status = check_validity(column, number, first, row_count, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint64_t most = bound(column, row_count, partition_count);
    if (most > PTRDIFF_MAX - *bytes)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "the columns up to %zu may have more bytes than the "
                              "address space",
                              number);
    *bytes += most;
    return SPW_STATUS_OK;
}

/* Inlined with the size of an offset known. Returns: the row that cannot be followed,
 * or row_count. */
static inline uint64_t sum(const uint8_t *offsets, uint32_t size, uint64_t data_size,
                           uint64_t row_count, const uint32_t *ids, uint64_t *sums,
                           size_t stride)
{
    uint64_t before = spw__offset_at(offsets, size, 0);
    for (uint64_t row = 0; row < row_count; row++) {
        uint64_t after = spw__offset_at(offsets, size, row + 1);
        if (before > after || after > data_size)
            return row;
        sums[stride * ids[row]] += after - before;
        before = after;
    }
    return row_count;
}

spw_status spw__split_column_sum(const spw_column *column, size_t number,
                                 uint64_t first, uint64_t row_count,
                                 const uint32_t *ids, uint64_t *sums, size_t stride,
                                 spw_error *error)
{
    if (row_count == 0)
        return SPW_STATUS_OK;
    uint32_t size = column->type.item_size;
    const uint8_t *offsets =
        (const uint8_t *)column->values + (column->offset + first) * size;
    uint64_t bad;
    if (size == 4)
        bad = sum(offsets, 4, column->data_size, row_count, ids, sums, stride);
    else
        bad = sum(offsets, 8, column->data_size, row_count, ids, sums, stride);
    if (bad == row_count)
        return SPW_STATUS_OK;
    return spw__error_set(
        error, SPW_STATUS_INVALID_ARGUMENT, 0,
        "column %zu, row %" PRIu64 ": offsets %" PRId64 " and %" PRId64
        " are no range of its %" PRIu64 " %s",
        number, bad, (int64_t)spw__offset_at(offsets, size, bad),
        (int64_t)spw__offset_at(offsets, size, bad + 1), column->data_size,
        column->type.kind == SPW_COLUMN_LIST ? "items" : "bytes of data");
}

spw_status spw__split_blobs_count(const spw_column *column, size_t number,
                                  uint32_t partition_count, const uint32_t *rows,
                                  uint64_t *counts, size_t stride, spw_error *error)
{
    if (column->values == NULL && partition_count > 0)
        return refuse(number, "has no values", error);
    for (uint32_t p = 0; p < partition_count; p++) {
        uint64_t from = spw__number_at(column->values, 8, p);
        uint64_t to = spw__number_at(column->values, 8, (uint64_t)p + 1);
        if (from > to || to > column->data_size)
            return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                  "column %zu, partition %u: offsets %" PRIu64
                                  " and %" PRIu64 " are no range of its %" PRIu64
                                  " bytes of data",
                                  number, p, from, to, column->data_size);
        if (from < to && rows[p] == 0)
            return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                  "column %zu has bytes for partition %u, which has no "
                                  "rows",
                                  number, p);
        counts[stride * p] = to - from;
    }
    return SPW_STATUS_OK;
}
