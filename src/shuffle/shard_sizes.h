/* What shards say of themselves, held against their sizes. Thread: any. */
#ifndef SPW_SHUFFLE_SHARD_SIZES_H
#define SPW_SHUFFLE_SHARD_SIZES_H

#include "spillway/shuffle.h"

/* See that types make sense, and that each shard has the size which its rows and counts
 * lead to. Errors: INVALID_ARGUMENT, CORRUPT, LIMIT_EXCEEDED (the depth). */
spw_status spw__shards_check(const spw_column_type *types, size_t column_count,
                             const spw_shard *shards, size_t shard_count,
                             spw_error *error);
/* What a shard of so many rows takes, which may be no more than most. Nothing is
 * trusted but the types; number is for messages. Errors: CORRUPT, INVALID_ARGUMENT (no
 * counts).
 */
spw_status spw__shard_size(const spw_column_type *types, size_t column_count,
                           size_t number, uint32_t rows, const uint64_t *counts,
                           uint64_t most, uint64_t *ret_size, spw_error *error);
/* Errors: LIMIT_EXCEEDED. */
spw_status spw__shards_sum_rows(const spw_shard *shards, size_t shard_count,
                                uint64_t *ret_rows, spw_error *error);
/* Of the column with the given number of those that have counts, one after another, so
 * that nothing has to be kept for them. Errors: LIMIT_EXCEEDED. */
spw_status spw__shards_sum_counts(const spw_shard *shards, size_t shard_count,
                                  size_t number, uint64_t *ret_sum, spw_error *error);

#endif
