/* The columns of a table that is to be split: looked at before anything is made of
 * them. Thread: any. */
#ifndef SPW_SHUFFLE_SPLIT_COLUMNS_H
#define SPW_SHUFFLE_SPLIT_COLUMNS_H

#include "spillway/shuffle.h"

/* Bytes from one item or offset to the next. */
static inline uint64_t spw__split_column_stride(const spw_column *column)
{
    return column->stride != 0 ? column->stride : column->type.item_size;
}

/* See that a column of a type that makes sense can be read for row_count rows from row
 * `first` behind its offset on, and that what splitting makes of all columns cannot be
 * larger than the address space: bytes has how much that may be, and grows.
 * Errors: INVALID_ARGUMENT, LIMIT_EXCEEDED; a column is named by its number. */
spw_status spw__split_column_check(const spw_column *column, size_t number,
                                   uint64_t first, uint64_t row_count,
                                   uint32_t partition_count, uint64_t *bytes,
                                   spw_error *error);

/* Add what each row of a column with offsets has, bytes or items, to its partition's
 * sum, which is sums[stride * id], and see that every offset can be followed. ids have
 * been checked.
 * Errors: INVALID_ARGUMENT, with column and row; some sums may have grown. */
spw_status spw__split_column_sum(const spw_column *column, size_t number,
                                 uint64_t first, uint64_t row_count,
                                 const uint32_t *ids, uint64_t *sums, size_t stride,
                                 spw_error *error);

/* Put the bytes that each partition has of a BLOB column to counts[stride * p], and see
 * that every offset can be followed, and that bytes come with rows.
 * Errors: INVALID_ARGUMENT, with column and partition; some counts may be there. */
spw_status spw__split_blobs_count(const spw_column *column, size_t number,
                                  uint32_t partition_count, const uint32_t *rows,
                                  uint64_t *counts, size_t stride, spw_error *error);

#endif
