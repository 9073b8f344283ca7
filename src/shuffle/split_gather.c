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
#include "shuffle/split_level.h"

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
    const spw__split_level *level;
    uint8_t **begins;   /* of the level in each partition that has rows of it */
    spw_buffer *memory; /* of all that follows */
    uint8_t **next;     /* by partition */
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
static size_t choose_block_rows(const spw__split_job *job,
                                const spw__split_level *level)
{
    uint64_t most = (uint64_t)job->tables.partition_count * RUN_ROWS;
    if (most < BLOCK_ROWS_MIN)
        most = BLOCK_ROWS_MIN;
    if (most > BLOCK_ROWS_MAX)
        most = BLOCK_ROWS_MAX;
    uint64_t blocks = (level->row_count + most - 1) / most;
    return (size_t)((level->row_count + blocks - 1) / blocks);
}

static spw_status splitter_init(splitter *s, const spw__split_job *job,
                                const spw__split_level *level, uint8_t **begins,
                                spw_error *error)
{
    size_t partitions = job->tables.partition_count;
    size_t block_rows = choose_block_rows(job, level);
    size_t bytes = partitions * (sizeof *s->next + 2 * sizeof *s->rows_before) +
                   (block_rows + AHEAD_ROWS) * sizeof *s->order;
    *s = (splitter){
        .job = job, .level = level, .begins = begins, .block_rows = block_rows};
    spw_status status =
        spw_buffer_create(job->context, bytes, SPW_CHARGE_HELD, &s->memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    s->next = spw_buffer_data(s->memory);
    s->rows_before = (uint32_t *)(s->next + partitions);
    s->ends = s->rows_before + partitions;
    s->order = s->ends + partitions;
    memset(s->rows_before, 0, partitions * sizeof *s->rows_before);
    return SPW_STATUS_OK;
}

/* Put the rows of the block in order of their partitions. Until a partition's rows are
 * placed, ends has where the next one goes. */
static void sort_block(splitter *s)
{
    const spw__split_job *job = s->job;
    const uint32_t *ids = s->level->ids + s->block;
    size_t partitions = job->tables.partition_count;
    if (s->block_rows == s->level->row_count) {
        memcpy(s->ends, s->level->rows, partitions * sizeof *s->ends);
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
    r->rows = s->level->rows[r->partition];
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

/* Of a list: what its ends count is moved with the columns inside. */
static void gather_ends(splitter *s, const uint8_t *offsets, uint32_t size)
{
    for (run r = BEFORE_FIRST_RUN; next_run(s, &r);) {
        uint8_t *ends = next_part(s, &r, r.rows * (uint64_t)sizeof(uint32_t));
        size_t row = r.rows_before;
        uint64_t end = row > 0 ? spw__number_at(ends, 4, row - 1) : 0;
        for (uint32_t i = r.begin; i < r.end; i++, row++) {
            uint64_t from = s->order[i];
            end += spw__number_at(offsets, size, from + 1) -
                   spw__number_at(offsets, size, from);
            spw__number_put(ends, 4, row, end);
        }
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
    uint64_t first = column->offset + s->level->first + s->block;
    uint32_t size = column->type.item_size;
    uint64_t stride = spw__split_column_stride(column);
    if (column->type.kind == SPW_COLUMN_BLOB ||
        column->type.kind == SPW_COLUMN_FIXED_LIST)
        return; /* read from end to end; nothing to read */
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
    uint64_t first = column->offset + s->level->first + s->block;
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
    if (column->type.kind == SPW_COLUMN_FIXED_LIST)
        return;
    size_t stride = (size_t)spw__split_column_stride(column);
    values += first * stride;
    if (column->type.kind == SPW_COLUMN_FIXED) {
        gather_items(s, values, size, stride);
        return;
    }
    if (column->type.kind == SPW_COLUMN_LIST) {
        gather_ends(s, values, size);
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
    for (spw__level_column at = spw__level_begin(s->level); at.column < s->level->end;
         spw__level_next(job, &at)) {
        touch_column(s, &job->columns[at.column]);
        gather_column(s, &job->columns[at.column], at.number);
    }
    for (size_t p = 0; p < partitions; p++)
        s->rows_before[p] += s->ends[p] - (p > 0 ? s->ends[p - 1] : 0);
}

static spw_status gather_columns(const spw__split_job *job,
                                 const spw__split_level *level, uint8_t **begins,
                                 spw_error *error)
{
    if (level->row_count == 0)
        return SPW_STATUS_OK;
    splitter s;
    spw_status status = splitter_init(&s, job, level, begins, error);
    if (status != SPW_STATUS_OK)
        return status;
    size_t block_rows = s.block_rows;
    for (; s.block < level->row_count; s.block += s.block_rows) {
        uint64_t left = level->row_count - s.block;
        s.block_rows = left < block_rows ? (size_t)left : block_rows;
        gather_block(&s);
    }
    spw_buffer_unref(s.memory);
    return SPW_STATUS_OK;
}

/* Where what follows a level's columns begins in each shard. */
static void pass_columns(const spw__split_job *job, const spw__split_level *level,
                         uint8_t **begins)
{
    const spw__split_tables *tables = &job->tables;
    for (spw__level_column at = spw__level_begin(level); at.column < level->end;
         spw__level_next(job, &at)) {
        const spw_column_type *type = &job->columns[at.column].type;
        for (size_t p = 0; p < tables->partition_count; p++) {
            uint64_t count = 0;
            if (level->rows[p] == 0)
                continue; /* and perhaps no buffer */
            if (spw__column_has_count(type))
                count = tables->counts[p * tables->counts_per_shard + at.number];
            begins[p] += spw__shard_parts_of(type, level->rows[p], count).end;
        }
    }
}

/* As deep as lists are, which is limited. */
static spw_status gather_level(const spw__split_job *job, const spw__split_level *level,
                               uint8_t **begins, spw_error *error)
{
    spw_status status = gather_columns(job, level, begins, error);
    bool is_last = true;
    for (size_t i = level->begin; i < level->end && is_last; i++)
        is_last = level->begin == 0 && job->columns[i].type.inner_columns == 0;
    if (status != SPW_STATUS_OK || is_last)
        return status;
    pass_columns(job, level, begins);
    for (spw__level_column at = spw__level_begin(level);
         at.column < level->end && status == SPW_STATUS_OK; spw__level_next(job, &at)) {
        spw__split_level inner;
        if (job->columns[at.column].type.inner_columns == 0)
            continue;
        status = spw__split_level_open(job, level, at.column, at.number, &inner, error);
        if (status != SPW_STATUS_OK)
            return status;
        status = gather_level(job, &inner, begins, error);
        spw__split_level_close(&inner);
    }
    return status;
}

/* No arithmetic on the address of a buffer that is not there. */
static void find_begins(const spw__split_tables *tables, uint8_t **begins)
{
    for (uint32_t i = 0; i < tables->range_count; i++) {
        const spw_split_range *range = &tables->ranges[i];
        uint8_t *data = range->buffer != NULL ? spw_buffer_data(range->buffer) : NULL;
        for (uint32_t p = 0; p < range->partition_count; p++)
            begins[range->first_partition + p] =
                data != NULL ? data + range->begins[p] : NULL;
    }
}

spw_status spw__split_gather(const spw__split_job *job, spw_error *error)
{
    spw_buffer *memory;
    if (job->row_count == 0)
        return SPW_STATUS_OK;
    spw_status status =
        spw_buffer_create(job->context, job->tables.partition_count * sizeof(uint8_t *),
                          SPW_CHARGE_HELD, &memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint8_t **begins = spw_buffer_data(memory);
    find_begins(&job->tables, begins);
    spw__split_level outermost = spw__split_level_outermost(job);
    status = gather_level(job, &outermost, begins, error);
    spw__gather_end();
    spw_buffer_unref(memory);
    return status;
}
