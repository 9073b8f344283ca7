/* Filling the shards of a split, whose sizes are known. */
#ifndef SPW_SHUFFLE_SPLIT_GATHER_H
#define SPW_SHUFFLE_SPLIT_GATHER_H

#include "shuffle/gather.h"
#include "spillway/shuffle.h"

/* What is written of each partition, and where. */
typedef struct spw__split_tables {
    uint32_t partition_count, counts_per_shard, range_count;
    const uint32_t *rows;
    const uint64_t *counts;        /* partition_count times counts_per_shard */
    const spw_split_range *ranges; /* with buffers as large as their begins say */
} spw__split_tables;

typedef struct spw__split_job {
    spw_context *context;
    const spw_column *columns; /* checked */
    size_t column_count;
    uint64_t row_count;
    const uint32_t *ids; /* checked */
    spw__split_tables tables;
    spw__gather_way way;
} spw__split_job;

/* Write every byte of the ranges' buffers. Thread: any. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED (for what it needs meanwhile). */
spw_status spw__split_gather(const spw__split_job *job, spw_error *error);

#endif
