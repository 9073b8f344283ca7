/* Splitting: one pass over the ids counts rows, one over the offsets of each binary
 * column adds up bytes; then sizes are known, and every column is gathered once into
 * its final place. Invariant: nothing is written that was not counted, and all that was
 * counted is written, so that the buffer shows nothing of what its memory held before.
 */
#include "shuffle/split.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "shuffle/shard_layout.h"
#include "shuffle/split_columns.h"
#include "shuffle/split_gather.h"
#include "shuffle/split_level.h"

struct spw_split {
    spw_context *context; /* one reference */
    spw_buffer *memory;   /* of the tables */
    spw__split_tables tables;
};

/* The tables while they are filled. begins has one more for each range than it has
 * partitions. */
typedef struct table_memory {
    spw_split_range *ranges;
    uint64_t *begins, *counts;
    uint32_t *rows;
} table_memory;

static spw_status check_ranges(const spw_partitioning *partitions, spw_error *error)
{
    uint32_t before = 0, count = partitions->range_count;
    if (count > SPW_PARTITION_COUNT_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%u ranges, more than %u", count,
                              SPW_PARTITION_COUNT_MAX);
    if (count > 0 && partitions->range_ends == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "%u ranges have no ends", count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t end = partitions->range_ends[i];
        if (end < before || end > partitions->count ||
            (i + 1 == count && end < partitions->count))
            return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                  "range %u of %u ends before partition %u of %u, and "
                                  "begins at %u",
                                  i, count, end, partitions->count, before);
        before = end;
    }
    return SPW_STATUS_OK;
}

static spw_status check_counts(uint64_t row_count, const spw_partitioning *partitions,
                               spw_error *error)
{
    if (row_count > UINT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%" PRIu64 " rows, more than a table may have",
                              row_count);
    if (partitions->count > SPW_PARTITION_COUNT_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%u partitions, more than %u", partitions->count,
                              SPW_PARTITION_COUNT_MAX);
    if (row_count > 0 && partitions->ids == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "%" PRIu64 " rows have no partition ids", row_count);
    return check_ranges(partitions, error);
}

/* Where each range's part of the tables is; nothing is in them. */
static void divide_tables(const spw_partitioning *partitions, uint32_t range_count,
                          size_t counts_per_shard, const table_memory *tables)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < range_count; i++) {
        uint32_t end =
            partitions->range_count > 0 ? partitions->range_ends[i] : partitions->count;
        tables->ranges[i] =
            (spw_split_range){.first_partition = first,
                              .partition_count = end - first,
                              .counts_per_shard = (uint32_t)counts_per_shard,
                              .begins = tables->begins + first + i,
                              .rows = tables->rows + first,
                              .counts = tables->counts + first * counts_per_shard};
        first = end;
    }
}

static spw_status make_tables(spw_split *split, const spw_partitioning *partitions,
                              size_t counts_per_shard, table_memory *ret,
                              spw_error *error)
{
    uint32_t range_count = partitions->range_count > 0 ? partitions->range_count : 1;
    size_t begins = (size_t)partitions->count + range_count;
    /* At most 2^24 times what a caller's array of columns has: far below 2^64. */
    size_t counts = partitions->count * counts_per_shard;
    size_t bytes = range_count * sizeof *ret->ranges +
                   (begins + counts) * sizeof(uint64_t) +
                   (size_t)partitions->count * sizeof(uint32_t);
    if (counts_per_shard > UINT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%zu columns with counts are too many", counts_per_shard);
    spw_status status = spw_buffer_create(split->context, bytes, SPW_CHARGE_HELD,
                                          &split->memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    ret->ranges = spw_buffer_data(split->memory);
    ret->begins = (uint64_t *)(ret->ranges + range_count);
    ret->counts = ret->begins + begins;
    ret->rows = (uint32_t *)(ret->counts + counts);
    memset(ret->ranges, 0, bytes);
    divide_tables(partitions, range_count, counts_per_shard, ret);
    split->tables = (spw__split_tables){.partition_count = partitions->count,
                                        .counts_per_shard = (uint32_t)counts_per_shard,
                                        .range_count = range_count,
                                        .rows = ret->rows,
                                        .counts = ret->counts,
                                        .ranges = ret->ranges};
    return SPW_STATUS_OK;
}

static spw_status count_rows(const spw__split_job *job, uint32_t *rows,
                             spw_error *error)
{
    const uint32_t *ids = job->ids;
    uint32_t partition_count = job->tables.partition_count;
    for (uint64_t i = 0; i < job->row_count; i++) {
        if (ids[i] >= partition_count)
            return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                  "row %" PRIu64 " is for partition %u of %u", i,
                                  ids[i], partition_count);
        rows[ids[i]]++;
    }
    return SPW_STATUS_OK;
}

/* See that the columns of a level can be read, and count what is in them. */
static spw_status count_columns(const spw__split_job *job,
                                const spw__split_level *level, uint64_t *counts,
                                uint64_t *bytes, spw_error *error)
{
    const spw__split_tables *tables = &job->tables;
    spw_status status = SPW_STATUS_OK;
    for (spw__level_column at = spw__level_begin(level);
         at.column < level->end && status == SPW_STATUS_OK; spw__level_next(job, &at)) {
        const spw_column *column = &job->columns[at.column];
        status =
            spw__split_column_check(column, at.column, level->first, level->row_count,
                                    tables->partition_count, bytes, error);
        if (status != SPW_STATUS_OK)
            return status;
        if (spw__column_has_offsets(&column->type))
            status = spw__split_column_sum(
                column, at.column, level->first, level->row_count, level->ids,
                counts + at.number, tables->counts_per_shard, error);
        else if (column->type.kind == SPW_COLUMN_BLOB)
            status = spw__split_blobs_count(column, at.column, tables->partition_count,
                                            tables->rows, counts + at.number,
                                            tables->counts_per_shard, error);
    }
    return status;
}

/* The same for what is inside of them too. As deep as lists are, which is limited. */
static spw_status count_level(const spw__split_job *job, const spw__split_level *level,
                              uint64_t *counts, uint64_t *bytes, spw_error *error)
{
    spw_status status = count_columns(job, level, counts, bytes, error);
    for (spw__level_column at = spw__level_begin(level);
         at.column < level->end && status == SPW_STATUS_OK; spw__level_next(job, &at)) {
        spw__split_level inner;
        const spw_column_type *type = &job->columns[at.column].type;
        /* The items of a list are counted, whatever they are. */
        if (type->inner_columns == 0 && type->kind != SPW_COLUMN_LIST)
            continue;
        status = spw__split_level_open(job, level, at.column, at.number, &inner, error);
        if (status != SPW_STATUS_OK)
            return status;
        status = count_level(job, &inner, counts, bytes, error);
        spw__split_level_close(&inner);
    }
    return status;
}

/* Of columns of so many rows, and what is inside of them. counts goes on to the next
 * one that is not theirs. */
static uint64_t shard_bytes(const spw_column *columns, size_t column_count,
                            uint32_t rows, const uint64_t **counts)
{
    uint64_t size = 0;
    for (size_t i = 0; i < column_count; i++) {
        const spw_column_type *type = &columns[i].type;
        uint64_t count = spw__column_has_count(type) ? *(*counts)++ : 0;
        size += spw__shard_parts_of(type, rows, count).end;
        if (type->inner_columns == 0)
            continue;
        uint64_t inner_rows = spw__column_inner_rows(type, rows, count);
        size += shard_bytes(columns + i + 1, type->inner_columns, (uint32_t)inner_rows,
                            counts);
        i += type->inner_columns;
    }
    return size;
}

/* Returns: whether the range has rows. */
static bool lay_out(const spw__split_job *job, const spw_split_range *range,
                    uint64_t *begins)
{
    bool has_rows = false;
    for (uint32_t p = 0; p < range->partition_count; p++) {
        const uint64_t *counts = range->counts + (size_t)p * range->counts_per_shard;
        uint64_t bytes = 0;
        if (range->rows[p] > 0)
            bytes =
                shard_bytes(job->columns, job->column_count, range->rows[p], &counts);
        begins[p + 1] = begins[p] + bytes;
        has_rows |= range->rows[p] > 0;
    }
    return has_rows;
}

static spw_status make_buffers(const spw__split_job *job, const table_memory *tables,
                               spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    uint64_t *begins = tables->begins;
    for (uint32_t i = 0; i < job->tables.range_count && status == SPW_STATUS_OK; i++) {
        spw_split_range *range = &tables->ranges[i];
        if (lay_out(job, range, begins))
            status =
                spw_buffer_create(job->context, (size_t)begins[range->partition_count],
                                  SPW_CHARGE_HELD, &range->buffer, error);
        begins += (size_t)range->partition_count + 1;
    }
    return status;
}

static spw_status fill(spw_split *split, spw__split_job *job, size_t counts_per_shard,
                       const spw_partitioning *partitions, spw_error *error)
{
    table_memory tables = {0};
    spw_status status =
        make_tables(split, partitions, counts_per_shard, &tables, error);
    if (status != SPW_STATUS_OK)
        return status;
    job->tables = split->tables;
    status = count_rows(job, tables.rows, error);
    uint64_t bytes = 0;
    spw__split_level outermost = spw__split_level_outermost(job);
    if (status == SPW_STATUS_OK)
        status = count_level(job, &outermost, tables.counts, &bytes, error);
    if (status == SPW_STATUS_OK)
        status = make_buffers(job, &tables, error);
    if (status != SPW_STATUS_OK)
        return status;
    return spw__split_gather(job, error);
}

spw_status spw__split_rows_by(spw__gather_way way, spw_context *context,
                              const spw_column *columns, size_t column_count,
                              uint64_t row_count, const spw_partitioning *partitions,
                              spw_split **ret_split, spw_error *error)
{
    size_t counts_per_shard = 0;
    spw_status status = check_counts(row_count, partitions, error);
    if (status == SPW_STATUS_OK)
        status = spw__column_types_check(column_count > 0 ? &columns[0].type : NULL,
                                         sizeof *columns, column_count,
                                         &counts_per_shard, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_split *split = spw__allocate(context, sizeof *split, _Alignof(spw_split));
    if (split == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a split");
    *split = (spw_split){.context = spw_context_ref(context)};
    spw__split_job job = {.context = context,
                          .columns = columns,
                          .column_count = column_count,
                          .row_count = row_count,
                          .ids = partitions->ids,
                          .way = way};
    status = fill(split, &job, counts_per_shard, partitions, error);
    if (status != SPW_STATUS_OK) {
        spw_split_free(split);
        return status;
    }
    *ret_split = split;
    return SPW_STATUS_OK;
}

spw_status spw_split_rows(spw_context *context, const spw_column *columns,
                          size_t column_count, uint64_t row_count,
                          const spw_partitioning *partitions, spw_split **ret_split,
                          spw_error *error)
{
    return spw__split_rows_by(SPW__GATHER_STREAMED, context, columns, column_count,
                              row_count, partitions, ret_split, error);
}

void spw_split_free(spw_split *split)
{
    if (split == NULL)
        return;
    spw_context *context = split->context;
    for (uint32_t i = 0; i < split->tables.range_count; i++)
        spw_buffer_unref(split->tables.ranges[i].buffer);
    spw_buffer_unref(split->memory);
    spw__release(context, split, sizeof *split, _Alignof(spw_split));
    spw_context_unref(context);
}

uint32_t spw_split_range_count(const spw_split *split)
{
    return split->tables.range_count;
}

void spw_split_read_range(const spw_split *split, uint32_t range,
                          spw_split_range *ret_range)
{
    assert(range < split->tables.range_count);
    *ret_range = split->tables.ranges[range];
}

/* Returns: the range that has the partition. */
static const spw_split_range *find_range(const spw__split_tables *tables,
                                         uint32_t partition)
{
    uint32_t first = 0, count = tables->range_count;
    /* The first one that ends behind the partition. */
    while (count > 0) {
        const spw_split_range *middle = &tables->ranges[first + count / 2];
        if (middle->first_partition + middle->partition_count > partition) {
            count /= 2;
        } else {
            first += count / 2 + 1;
            count -= count / 2 + 1;
        }
    }
    return &tables->ranges[first];
}

void spw_split_read_shard(const spw_split *split, uint32_t partition,
                          spw_shard *ret_shard)
{
    assert(partition < split->tables.partition_count);
    const spw_split_range *range = find_range(&split->tables, partition);
    size_t at = partition - range->first_partition;
    *ret_shard = (spw_shard){.size = range->begins[at + 1] - range->begins[at],
                             .rows = range->rows[at]};
    if (range->buffer != NULL)
        ret_shard->data =
            (const uint8_t *)spw_buffer_data(range->buffer) + range->begins[at];
    if (range->counts_per_shard > 0)
        ret_shard->counts = range->counts + at * range->counts_per_shard;
}
