/* Fuzz target: shards that come from anywhere. The input says what the columns are,
 * and then shards with rows and bytes that need not be true. Beyond "no crash": what
 * cannot be joined changes nothing unless it is CORRUPT; what can be is the same in one
 * call and in a call for each shard; and its offsets can be followed, so that splitting
 * it again into one partition and joining that gives the same columns.
 *
 * The input: how many columns; for each of them its kind (1 to 4), whether it has
 * validity (128), and a size; how many shards; for each of them rows in four bytes, the
 * count of each column that has one in eight, its size in two, and as many bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory/byte_reader.h"
#include "spillway/spillway.h"

enum { COLUMNS_MAX = 4, SHARDS_MAX = 4, ROWS_MAX = 1 << 16, BYTES_MAX = 1 << 20 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

typedef struct input {
    spw_column_type types[COLUMNS_MAX];
    size_t column_count, counts_per_shard;
    spw_shard shards[SHARDS_MAX];
    uint64_t counts[SHARDS_MAX][COLUMNS_MAX];
    size_t shard_count;
} input;

/* What is missing at the end of the input is zero. */
static uint64_t number(spw__byte_reader *reader, unsigned width)
{
    uint64_t value = 0;
    return spw__byte_reader_le(reader, width, &value) ? value : 0;
}

static void read_types(input *in, spw__byte_reader *reader)
{
    in->column_count = number(reader, 1) % (COLUMNS_MAX + 1);
    for (size_t i = 0; i < in->column_count; i++) {
        uint64_t how = number(reader, 1);
        in->types[i] = (spw_column_type){.kind = (spw_column_kind)(how & 127),
                                         .item_size = (uint32_t)number(reader, 1),
                                         .has_validity = (how & 128) != 0};
        in->counts_per_shard += in->types[i].kind == SPW_COLUMN_BINARY ||
                                in->types[i].kind == SPW_COLUMN_BLOB;
    }
}

/* A shard's bytes are memory of exactly its size. */
static void read_shards(input *in, spw__byte_reader *reader)
{
    in->shard_count = number(reader, 1) % (SHARDS_MAX + 1);
    for (size_t i = 0; i < in->shard_count; i++) {
        spw_shard *shard = &in->shards[i];
        shard->rows = (uint32_t)number(reader, 4);
        for (size_t j = 0; j < in->counts_per_shard; j++)
            in->counts[i][j] = number(reader, 8);
        shard->counts = in->counts[i];
        shard->size = number(reader, 2);
        if (shard->size > spw__byte_reader_left(reader))
            shard->size = spw__byte_reader_left(reader);
        uint8_t *data = malloc(shard->size > 0 ? (size_t)shard->size : 1);
        require(data != NULL);
        memcpy(data, reader->next, (size_t)shard->size);
        require(spw__byte_reader_skip(reader, shard->size));
        shard->data = data;
    }
}

static void clear_shards(input *in)
{
    for (size_t i = 0; i < in->shard_count; i++)
        free((void *)(uintptr_t)in->shards[i].data);
}

/* ----- places ----- */

static void *zeros(uint64_t size)
{
    void *memory = calloc(1, size > 0 ? (size_t)size : 1);
    require(memory != NULL);
    return memory;
}

static uint64_t values_bytes(const spw_column_type *type, uint64_t rows)
{
    if (type->kind == SPW_COLUMN_BITS)
        return (rows + 7) / 8;
    if (type->kind == SPW_COLUMN_BLOB)
        return 0;
    return (rows + (type->kind == SPW_COLUMN_BINARY)) * type->item_size;
}

static void make_places(const input *in, uint64_t rows, const uint64_t *bytes,
                        spw_column_place *places)
{
    for (size_t i = 0; i < in->column_count; i++) {
        places[i] = (spw_column_place){0};
        if (in->types[i].kind != SPW_COLUMN_BLOB)
            places[i].values = zeros(values_bytes(&in->types[i], rows));
        if (in->types[i].has_validity)
            places[i].validity = zeros((rows + 7) / 8);
        if (in->types[i].kind != SPW_COLUMN_BINARY &&
            in->types[i].kind != SPW_COLUMN_BLOB)
            continue;
        places[i].data_size = *bytes++;
        places[i].data = zeros(places[i].data_size);
    }
}

static void free_places(const input *in, spw_column_place *places)
{
    for (size_t i = 0; i < in->column_count; i++) {
        free(places[i].values);
        free(places[i].validity);
        free(places[i].data);
    }
}

static void require_same(const input *in, uint64_t rows, const spw_column_place *a,
                         const spw_column_place *b)
{
    for (size_t i = 0; i < in->column_count; i++) {
        size_t size = (size_t)values_bytes(&in->types[i], rows);
        if (size > 0)
            require(memcmp(a[i].values, b[i].values, size) == 0);
        if (a[i].validity != NULL)
            require(memcmp(a[i].validity, b[i].validity, (size_t)(rows + 7) / 8) == 0);
        if (a[i].data_size > 0)
            require(memcmp(a[i].data, b[i].data, (size_t)a[i].data_size) == 0);
    }
}

/* ----- what has to hold of what was joined ----- */

static void join_one_by_one(const input *in, uint64_t rows, const uint64_t *bytes,
                            const spw_column_place *joined)
{
    spw_column_place places[COLUMNS_MAX];
    uint64_t first_row = 0;
    make_places(in, rows, bytes, places);
    for (size_t i = 0; i < in->shard_count; i++) {
        require(spw_shards_read(in->types, in->column_count, &in->shards[i], 1,
                                first_row, rows, places, NULL) == SPW_STATUS_OK);
        first_row += in->shards[i].rows;
    }
    if (in->shard_count > 0)
        require_same(in, rows, joined, places);
    free_places(in, places);
}

static void split_and_join(const input *in, spw_context *context, uint64_t rows,
                           const uint64_t *bytes, const spw_column_place *joined)
{
    spw_column columns[COLUMNS_MAX];
    spw_column_place places[COLUMNS_MAX];
    spw_split *split;
    spw_shard shard;
    uint32_t *ids = zeros(rows * sizeof *ids);
    uint64_t blob[COLUMNS_MAX][2] = {{0}};
    for (size_t i = 0; i < in->column_count; i++) {
        blob[i][1] = joined[i].data_size;
        columns[i] = (spw_column){.type = in->types[i],
                                  .values = joined[i].values,
                                  .data = joined[i].data,
                                  .data_size = joined[i].data_size,
                                  .validity = joined[i].validity};
        if (in->types[i].kind == SPW_COLUMN_BLOB)
            columns[i].values = blob[i];
    }
    const spw_partitions partitions = {.ids = ids, .count = 1};
    require(spw_split_rows(context, columns, in->column_count, rows, &partitions,
                           &split, NULL) == SPW_STATUS_OK);
    spw_split_read_shard(split, 0, &shard);
    make_places(in, rows, bytes, places);
    require(spw_shards_read(in->types, in->column_count, &shard, 1, 0, rows, places,
                            NULL) == SPW_STATUS_OK);
    require_same(in, rows, joined, places);
    free_places(in, places);
    spw_split_free(split);
    free(ids);
}

static void join(const input *in, spw_context *context, uint64_t rows,
                 const uint64_t *bytes)
{
    spw_column_place places[COLUMNS_MAX];
    spw_error error;
    make_places(in, rows, bytes, places);
    spw_status status = spw_shards_read(in->types, in->column_count, in->shards,
                                        in->shard_count, 0, rows, places, &error);
    /* Sizes have been found right, and there is room. */
    require(status == SPW_STATUS_OK || status == SPW_STATUS_CORRUPT);
    if (status == SPW_STATUS_OK) {
        join_one_by_one(in, rows, bytes, places);
        split_and_join(in, context, rows, bytes, places);
    }
    free_places(in, places);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {0};
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    read_types(&in, &reader);
    read_shards(&in, &reader);
    spw_budget *budget;
    require(spw_budget_create(0, &budget, NULL) == SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    options.pool = SPW_POOL_OFF; /* AddressSanitizer sees where a block ends */
    spw_context *context;
    require(spw_context_create(&options, &context, NULL) == SPW_STATUS_OK);

    uint64_t rows = 0, bytes[COLUMNS_MAX] = {0};
    spw_error error;
    spw_status status = spw_shards_measure(in.types, in.column_count, in.shards,
                                           in.shard_count, &rows, bytes, &error);
    bool is_small = rows <= ROWS_MAX;
    for (size_t i = 0; i < in.counts_per_shard; i++)
        is_small = is_small && bytes[i] <= BYTES_MAX;
    if (status != SPW_STATUS_OK)
        require(status == error.status && rows == 0);
    else if (is_small)
        join(&in, context, rows, bytes);

    clear_shards(&in);
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_HELD] == 0);
    spw_context_unref(context);
    spw_budget_free(budget);
    return 0;
}
