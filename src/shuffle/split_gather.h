/* Filling the shards of a split, whose sizes are known. */
#ifndef SPW_SHUFFLE_SPLIT_GATHER_H
#define SPW_SHUFFLE_SPLIT_GATHER_H

#include "shuffle/gather.h"
#include "spillway/shuffle.h"

typedef struct spw__split_job {
    spw_context *context;
    const spw_column *columns; /* checked */
    size_t column_count;
    uint64_t row_count;
    const uint32_t *ids; /* checked */
    spw_split_tables tables;
    uint8_t *data; /* as large as the tables say */
    spw__gather_way way;
} spw__split_job;

/* Write every byte of data. Thread: any. Errors: NO_MEMORY, LIMIT_EXCEEDED (for what it
 * needs meanwhile). */
spw_status spw__split_gather(const spw__split_job *job, spw_error *error);

#endif
