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

struct spw_split {
    spw_context *context; /* one reference */
    spw_buffer *memory;   /* of the tables */
    spw_buffer *buffer;   /* the shards */
    spw_split_tables tables;
};

/* The tables while they are filled. */
typedef struct table_memory {
    uint64_t *begins, *binary_bytes;
    uint32_t *rows;
} table_memory;

static spw_status check_counts(uint64_t row_count, const uint32_t *partition_ids,
                               uint32_t partition_count, spw_error *error)
{
    if (row_count > UINT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%" PRIu64 " rows, more than a table may have",
                              row_count);
    if (partition_count > SPW_PARTITION_COUNT_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%u partitions, more than %u", partition_count,
                              SPW_PARTITION_COUNT_MAX);
    if (row_count > 0 && partition_ids == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "%" PRIu64 " rows have no partition ids", row_count);
    return SPW_STATUS_OK;
}

static spw_status make_tables(spw_split *split, uint32_t partition_count,
                              size_t binary_count, table_memory *ret, spw_error *error)
{
    size_t begins = (size_t)partition_count + 1;
    /* At most 2^24 times what a caller's array of columns has: far below 2^64. */
    size_t binary = partition_count * binary_count;
    size_t bytes = (begins + binary) * sizeof(uint64_t) +
                   (size_t)partition_count * sizeof(uint32_t);
    if (binary_count > UINT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%zu binary columns are too many", binary_count);
    spw_status status = spw_buffer_create(split->context, bytes, SPW_CHARGE_HELD,
                                          &split->memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    ret->begins = spw_buffer_data(split->memory);
    ret->binary_bytes = ret->begins + begins;
    ret->rows = (uint32_t *)(ret->binary_bytes + binary);
    memset(ret->begins, 0, bytes);
    split->tables = (spw_split_tables){.partition_count = partition_count,
                                       .binary_count = (uint32_t)binary_count,
                                       .begins = ret->begins,
                                       .rows = ret->rows,
                                       .binary_bytes = ret->binary_bytes};
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

static spw_status sum_binary(const spw__split_job *job, uint64_t *binary_bytes,
                             spw_error *error)
{
    size_t binary = 0;
    spw_status status = SPW_STATUS_OK;
    for (size_t i = 0; i < job->column_count && status == SPW_STATUS_OK; i++)
        if (job->columns[i].type.kind == SPW_COLUMN_BINARY)
            status = spw__split_column_sum(&job->columns[i], i, job->row_count,
                                           job->ids, binary_bytes + binary++,
                                           job->tables.binary_count, error);
    return status;
}

static uint64_t shard_bytes(const spw__split_job *job, size_t partition)
{
    const spw_split_tables *tables = &job->tables;
    const uint64_t *bytes = tables->binary_bytes + partition * tables->binary_count;
    uint64_t size = 0;
    for (size_t i = 0; i < job->column_count; i++) {
        const spw_column_type *type = &job->columns[i].type;
        uint64_t of_column = type->kind == SPW_COLUMN_BINARY ? *bytes++ : 0;
        size += spw__shard_parts_of(type, tables->rows[partition], of_column).end;
    }
    return size;
}

static void lay_out(const spw__split_job *job, uint64_t *begins)
{
    size_t partitions = job->tables.partition_count;
    for (size_t p = 0; p < partitions; p++)
        begins[p + 1] = begins[p] + (job->tables.rows[p] > 0 ? shard_bytes(job, p) : 0);
}

static spw_status fill(spw_split *split, spw__split_job *job, size_t binary_count,
                       uint32_t partition_count, spw_error *error)
{
    table_memory tables = {0};
    spw_status status =
        make_tables(split, partition_count, binary_count, &tables, error);
    if (status != SPW_STATUS_OK)
        return status;
    job->tables = split->tables;
    status = count_rows(job, tables.rows, error);
    if (status == SPW_STATUS_OK)
        status = sum_binary(job, tables.binary_bytes, error);
    if (status != SPW_STATUS_OK)
        return status;
    lay_out(job, tables.begins);
    status = spw_buffer_create(split->context, (size_t)tables.begins[partition_count],
                               SPW_CHARGE_HELD, &split->buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    job->data = spw_buffer_data(split->buffer);
    return spw__split_gather(job, error);
}

spw_status spw__split_rows_by(spw__gather_way way, spw_context *context,
                              const spw_column *columns, size_t column_count,
                              uint64_t row_count, const uint32_t *partition_ids,
                              uint32_t partition_count, spw_split **ret_split,
                              spw_error *error)
{
    size_t binary_count = 0;
    spw_status status = check_counts(row_count, partition_ids, partition_count, error);
    if (status == SPW_STATUS_OK)
        status = spw__split_columns_check(columns, column_count, row_count,
                                          partition_count, &binary_count, error);
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
                          .ids = partition_ids,
                          .way = way};
    status = fill(split, &job, binary_count, partition_count, error);
    if (status != SPW_STATUS_OK) {
        spw_split_free(split);
        return status;
    }
    *ret_split = split;
    return SPW_STATUS_OK;
}

spw_status spw_split_rows(spw_context *context, const spw_column *columns,
                          size_t column_count, uint64_t row_count,
                          const uint32_t *partition_ids, uint32_t partition_count,
                          spw_split **ret_split, spw_error *error)
{
    return spw__split_rows_by(SPW__GATHER_STREAMED, context, columns, column_count,
                              row_count, partition_ids, partition_count, ret_split,
                              error);
}

void spw_split_free(spw_split *split)
{
    if (split == NULL)
        return;
    spw_context *context = split->context;
    spw_buffer_unref(split->buffer);
    spw_buffer_unref(split->memory);
    spw__release(context, split, sizeof *split, _Alignof(spw_split));
    spw_context_unref(context);
}

spw_buffer *spw_split_buffer(const spw_split *split)
{
    return split->buffer;
}

void spw_split_read_tables(const spw_split *split, spw_split_tables *ret_tables)
{
    *ret_tables = split->tables;
}

void spw_split_read_shard(const spw_split *split, uint32_t partition,
                          spw_shard *ret_shard)
{
    const spw_split_tables *tables = &split->tables;
    assert(partition < tables->partition_count);
    const uint64_t *begins = tables->begins + partition;
    const uint64_t *bytes =
        tables->binary_bytes + (size_t)partition * tables->binary_count;
    *ret_shard =
        (spw_shard){.data = (const uint8_t *)spw_buffer_data(split->buffer) + begins[0],
                    .size = begins[1] - begins[0],
                    .rows = tables->rows[partition],
                    .binary_bytes = tables->binary_count > 0 ? bytes : NULL};
}
