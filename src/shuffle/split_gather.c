/* Rows are taken in blocks: those of a block are put in order of their partitions, and
 * then each column is gathered in that order, a run of rows for a partition. A block is
 * so small that a column's part of it stays in the processor's cache while its lines
 * are read again and again, and so large that runs have some length. Before it is
 * gathered it is read once from end to end, which is the one order in which memory is
 * fast.
 *
 * Invariant: between two blocks a partition has rows_before rows in each of its parts;
 * within a block, next[p] is where its next part begins, if it has rows in that block.
 */
#include "shuffle/split_gather.h"

#include <string.h>

#include "shuffle/bitmap.h"
#include "shuffle/numbers.h"
#include "shuffle/shard_layout.h"
#include "shuffle/split_columns.h"

enum {
    BLOCK_ROWS_MIN = 1 << 15,
    RUN_ROWS = 256, /* on average, where there are as many rows */
    /* Memory for the order of a block is bounded. */
    BLOCK_ROWS_MAX = 1 << 26,
    /* More does not stay in the cache until it is used, or is read whole anyway. */
    TOUCH_BYTES_MAX = 16 << 20,
    TOUCH_ITEM_BYTES_MAX = 32,
    AHEAD_ROWS = SPW__GATHER_AHEAD /* row 0, behind the last one of a block */
};

typedef struct splitter {
    const spw__split_job *job;
    spw_buffer *memory; /* of all that follows */
    uint8_t **begins;   /* by partition; of those that have rows */
    uint8_t **next;
    uint32_t *rows_before;
    uint32_t *ends; /* where a partition's run ends in order */
    uint32_t *order;
    uint64_t block; /* its first row */
    size_t block_rows;
} splitter;

/* The rows of one partition in one block. A loop over them begins with
 * BEFORE_FIRST_RUN.
 */
typedef struct run {
    size_t partition;
    uint32_t begin, end;        /* in order */
    uint32_t rows, rows_before; /* of the partition in all, and before this block */
} run;

#define BEFORE_FIRST_RUN ((run){.partition = SIZE_MAX})

/* All blocks but the last have the same size, and that one about as much. */
static size_t choose_block_rows(const spw__split_job *job)
{
    uint64_t most = (uint64_t)job->tables.partition_count * RUN_ROWS;
    if (most < BLOCK_ROWS_MIN)
        most = BLOCK_ROWS_MIN;
    if (most > BLOCK_ROWS_MAX)
        most = BLOCK_ROWS_MAX;
    uint64_t blocks = (job->row_count + most - 1) / most;
    return (size_t)((job->row_count + blocks - 1) / blocks);
}

/* No arithmetic on the address of a buffer that is not there. */
static void find_begins(splitter *s)
{
    const spw__split_tables *tables = &s->job->tables;
    for (uint32_t i = 0; i < tables->range_count; i++) {
        const spw_split_range *range = &tables->ranges[i];
        uint8_t *data = range->buffer != NULL ? spw_buffer_data(range->buffer) : NULL;
        for (uint32_t p = 0; p < range->partition_count; p++)
            s->begins[range->first_partition + p] =
                data != NULL ? data + range->begins[p] : NULL;
    }
}

static spw_status splitter_init(splitter *s, const spw__split_job *job,
                                spw_error *error)
{
    size_t partitions = job->tables.partition_count;
    size_t block_rows = choose_block_rows(job);
    size_t bytes = partitions * (2 * sizeof *s->next + 2 * sizeof *s->rows_before) +
                   (block_rows + AHEAD_ROWS) * sizeof *s->order;
    *s = (splitter){.job = job, .block_rows = block_rows};
    spw_status status =
        spw_buffer_create(job->context, bytes, SPW_CHARGE_HELD, &s->memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    s->begins = spw_buffer_data(s->memory);
    s->next = s->begins + partitions;
    s->rows_before = (uint32_t *)(s->next + partitions);
    s->ends = s->rows_before + partitions;
    s->order = s->ends + partitions;
    memset(s->rows_before, 0, partitions * sizeof *s->rows_before);
    find_begins(s);
    return SPW_STATUS_OK;
}

/* Put the rows of the block in order of their partitions. Until a partition's rows are
 * placed, ends has where the next one goes. */
static void sort_block(splitter *s)
{
    const spw__split_job *job = s->job;
    const uint32_t *ids = job->ids + s->block;
    size_t partitions = job->tables.partition_count;
    if (s->block_rows == job->row_count) {
        memcpy(s->ends, job->tables.rows, partitions * sizeof *s->ends);
    } else {
        memset(s->ends, 0, partitions * sizeof *s->ends);
        for (size_t i = 0; i < s->block_rows; i++)
            s->ends[ids[i]]++;
    }
    uint32_t at = 0;
    for (size_t p = 0; p < partitions; p++) {
        uint32_t count = s->ends[p];
        s->ends[p] = at;
        at += count;
    }
    for (size_t i = 0; i < s->block_rows; i++)
        s->order[s->ends[ids[i]]++] = (uint32_t)i;
    /* Not what the block before has left there, which may have had more rows. */
    memset(s->order + s->block_rows, 0, AHEAD_ROWS * sizeof *s->order);
}

/* Go on to the next partition that has rows in this block. */
static inline bool next_run(const splitter *s, run *r)
{
    do {
        if (++r->partition == s->job->tables.partition_count)
            return false;
        r->begin = r->end;
        r->end = s->ends[r->partition];
    } while (r->begin == r->end);
    r->rows = s->job->tables.rows[r->partition];
    r->rows_before = s->rows_before[r->partition];
    return true;
}

/* Where the next part of the partition's shard is, of so many bytes. What fills it up
 * is cleared once, with its first rows. */
static inline uint8_t *next_part(splitter *s, const run *r, uint64_t bytes)
{
    uint8_t *part = s->next[r->partition];
    uint64_t filling = spw__shard_align(bytes) - bytes;
    s->next[r->partition] += bytes + filling;
    if (filling > 0 && r->rows_before == 0)
        memset(part + bytes, 0, (size_t)filling);
    return part;
}

/* bits is NULL if all are ones; first is the bit of the block's first row. */
static void gather_bits(splitter *s, const uint8_t *bits, uint64_t first)
{
    for (run r = BEFORE_FIRST_RUN; next_run(s, &r);) {
        uint8_t *part = next_part(s, &r, spw__bitmap_bytes(r.rows));
        if (bits == NULL)
            spw__bitmap_append_ones(part, r.rows_before, r.end - r.begin);
        else
            spw__bitmap_append_gathered(part, r.rows_before, bits, first,
                                        s->order + r.begin, r.end - r.begin);
    }
}

static void gather_items(splitter *s, const uint8_t *items, size_t item_size,
                         size_t stride)
{
    spw__gather_fn gather = spw__gather_for(s->job->way, item_size, stride);
    for (run r = BEFORE_FIRST_RUN; next_run(s, &r);) {
        uint8_t *part = next_part(s, &r, r.rows * (uint64_t)item_size);
        gather(part + r.rows_before * item_size, items, s->order + r.begin,
               r.end - r.begin, item_size, stride);
    }
}

/* number: how many columns with counts come before this one. */
static inline uint64_t count_of(const splitter *s, const run *r, size_t number)
{
    const spw__split_tables *tables = &s->job->tables;
    return tables->counts[r->partition * tables->counts_per_shard + number];
}

/* A blob is put where it belongs with the first rows of its partition. */
static void gather_blobs(splitter *s, const spw_column *column, size_t number)
{
    for (run r = BEFORE_FIRST_RUN; next_run(s, &r);) {
        uint64_t bytes = count_of(s, &r, number);
        uint8_t *part = next_part(s, &r, bytes);
        if (bytes > 0 && r.rows_before == 0)
            memcpy(part,
                   (const uint8_t *)column->data +
                       spw__number_at(column->values, 8, r.partition),
                   (size_t)bytes);
    }
}

static void gather_binary(splitter *s, const spw__binary_source *source, size_t number)
{
    for (run r = BEFORE_FIRST_RUN; next_run(s, &r);) {
        uint64_t bytes = count_of(s, &r, number);
        uint32_t end_size = spw__shard_end_size(bytes);
        spw__binary_run out = {
            .end_size = end_size, .rows_before = r.rows_before, .data_size = bytes};
        out.ends = next_part(s, &r, r.rows * (uint64_t)end_size);
        out.data = next_part(s, &r, bytes);
        spw__gather_binary(&out, source, s->order + r.begin, r.end - r.begin);
    }
}

static void touch(const void *bytes, uint64_t from, uint64_t size)
{
    if (size <= TOUCH_BYTES_MAX)
        spw__gather_touch((const uint8_t *)bytes + from, size);
}

/* Bitmaps are small enough to stay in the cache anyway. */
static void touch_column(const splitter *s, const spw_column *column)
{
    uint64_t first = column->offset + s->block;
    uint32_t size = column->type.item_size;
    uint64_t stride = spw__split_column_stride(column);
    if (column->type.kind == SPW_COLUMN_BLOB)
        return; /* read from end to end */
    if (column->type.kind != SPW_COLUMN_BITS && stride <= TOUCH_ITEM_BYTES_MAX)
        touch(column->values, first * stride, s->block_rows * stride - (stride - size));
    if (column->type.kind != SPW_COLUMN_BINARY || column->data == NULL)
        return;
    uint64_t begin = spw__number_at(column->values, size, first);
    touch(column->data, begin,
          spw__number_at(column->values, size, first + s->block_rows) - begin);
}

static void gather_column(splitter *s, const spw_column *column, size_t number)
{
    uint64_t first = column->offset + s->block;
    uint32_t size = column->type.item_size;
    const uint8_t *values = column->values;
    if (column->type.has_validity)
        gather_bits(s, column->validity, column->validity_bit_offset + first);
    if (column->type.kind == SPW_COLUMN_BITS) {
        gather_bits(s, values, column->values_bit_offset + first);
        return;
    }
    if (column->type.kind == SPW_COLUMN_BLOB) {
        gather_blobs(s, column, number);
        return;
    }
    size_t stride = (size_t)spw__split_column_stride(column);
    values += first * stride;
    if (column->type.kind == SPW_COLUMN_FIXED) {
        gather_items(s, values, size, stride);
        return;
    }
    spw__binary_source source = {.offsets = values,
                                 .offset_size = size,
                                 /* No arithmetic on NULL, not even by 0. */
                                 .data = column->data != NULL ? column->data
                                                              : column->values,
                                 .data_size = column->data_size};
    gather_binary(s, &source, number);
}

static void gather_block(splitter *s)
{
    const spw__split_job *job = s->job;
    size_t partitions = job->tables.partition_count;
    memcpy(s->next, s->begins, partitions * sizeof *s->next);
    sort_block(s);
    size_t number = 0;
    for (size_t i = 0; i < job->column_count; i++) {
        touch_column(s, &job->columns[i]);
        gather_column(s, &job->columns[i], number);
        number += spw__column_has_count(&job->columns[i].type);
    }
    for (size_t p = 0; p < partitions; p++)
        s->rows_before[p] += s->ends[p] - (p > 0 ? s->ends[p - 1] : 0);
}

spw_status spw__split_gather(const spw__split_job *job, spw_error *error)
{
    if (job->row_count == 0)
        return SPW_STATUS_OK;
    splitter s;
    spw_status status = splitter_init(&s, job, error);
    if (status != SPW_STATUS_OK)
        return status;
    size_t block_rows = s.block_rows;
    for (; s.block < job->row_count; s.block += s.block_rows) {
        uint64_t left = job->row_count - s.block;
        s.block_rows = left < block_rows ? (size_t)left : block_rows;
        gather_block(&s);
    }
    spw__gather_end();
    spw_buffer_unref(s.memory);
    return SPW_STATUS_OK;
}
