/* The inside of spw_split_rows, for tests and benchmarks that compare its ways. */
#ifndef SPW_SHUFFLE_SPLIT_H
#define SPW_SHUFFLE_SPLIT_H

#include "shuffle/gather.h"
#include "spillway/shuffle.h"

/* spw_split_rows by no better way than the given one. */
spw_status spw__split_rows_by(spw__gather_way way, spw_context *context,
                              const spw_column *columns, size_t column_count,
                              uint64_t row_count, const spw_partitioning *partitions,
                              spw_split **ret_split, spw_error *error);

#endif
