/* Fuzz target: shards that come from anywhere. The input says what the columns are,
 * and then shards with rows and bytes that need not be true. Beyond "no crash": what
 * cannot be joined changes nothing unless it is CORRUPT; what can be is the same in one
 * call and in a call for each shard; and its offsets can be followed, so that splitting
 * it again into one partition and joining that gives the same columns.
 *
 * The input: how many columns; for each of them its kind (1 to 6), whether it has
 * validity (128), a size, and for lists how many columns are inside; how many shards;
 * for each of them rows in four bytes, the count of each column that has one in eight,
 * its size in two, and as many bytes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory/byte_reader.h"
#include "spillway/spillway.h"

enum { COLUMNS_MAX = 6, SHARDS_MAX = 4, ROWS_MAX = 1 << 16, BYTES_MAX = 1 << 20 };

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

static bool has_count(const spw_column_type *type)
{
    return type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_BLOB ||
           type->kind == SPW_COLUMN_LIST;
}

static void read_types(input *in, spw__byte_reader *reader)
{
    in->column_count = number(reader, 1) % (COLUMNS_MAX + 1);
    for (size_t i = 0; i < in->column_count; i++) {
        uint64_t how = number(reader, 1);
        in->types[i] = (spw_column_type){.kind = (spw_column_kind)(how & 127),
                                         .item_size = (uint32_t)number(reader, 1),
                                         .has_validity = (how & 128) != 0};
        if (in->types[i].kind == SPW_COLUMN_LIST ||
            in->types[i].kind == SPW_COLUMN_FIXED_LIST)
            in->types[i].inner_columns = (uint32_t)number(reader, 1);
        in->counts_per_shard += has_count(&in->types[i]);
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
    switch (type->kind) {
    case SPW_COLUMN_FIXED:
        return rows * type->item_size;
    case SPW_COLUMN_BITS:
        return (rows + 7) / 8;
    case SPW_COLUMN_BINARY:
    case SPW_COLUMN_LIST:
        return (rows + 1) * type->item_size;
    case SPW_COLUMN_BLOB:
    case SPW_COLUMN_FIXED_LIST:
        break;
    }
    return 0;
}

/* The rows that each column has, whatever it is in, of what was found right.
 * Returns: whether that is little. */
static bool find_rows(const input *in, size_t begin, size_t end, uint64_t rows,
                      const uint64_t **counts, uint64_t *ret_rows)
{
    if (rows > ROWS_MAX)
        return false;
    for (size_t i = begin; i < end; i++) {
        const spw_column_type *type = &in->types[i];
        uint64_t count = has_count(type) ? *(*counts)++ : 0;
        ret_rows[i] = rows;
        if (count > BYTES_MAX)
            return false;
        uint64_t items = type->kind == SPW_COLUMN_LIST ? count : rows * type->item_size;
        if (type->inner_columns > 0 &&
            !find_rows(in, i + 1, i + 1 + type->inner_columns, items, counts, ret_rows))
            return false;
        i += type->inner_columns;
    }
    return true;
}

static void make_places(const input *in, const uint64_t *rows, const uint64_t *counts,
                        spw_column_place *places)
{
    for (size_t i = 0; i < in->column_count; i++) {
        const spw_column_type *type = &in->types[i];
        places[i] = (spw_column_place){0};
        if (type->kind != SPW_COLUMN_BLOB && type->kind != SPW_COLUMN_FIXED_LIST)
            places[i].values = zeros(values_bytes(type, rows[i]));
        if (type->has_validity)
            places[i].validity = zeros((rows[i] + 7) / 8);
        if (!has_count(type))
            continue;
        places[i].data_size = *counts++;
        if (type->kind != SPW_COLUMN_LIST)
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

static void require_same(const input *in, const uint64_t *rows,
                         const spw_column_place *a, const spw_column_place *b)
{
    for (size_t i = 0; i < in->column_count; i++) {
        size_t size = (size_t)values_bytes(&in->types[i], rows[i]);
        if (size > 0)
            require(memcmp(a[i].values, b[i].values, size) == 0);
        if (a[i].validity != NULL)
            require(memcmp(a[i].validity, b[i].validity, (size_t)(rows[i] + 7) / 8) ==
                    0);
        if (a[i].data != NULL)
            require(memcmp(a[i].data, b[i].data, (size_t)a[i].data_size) == 0);
    }
}

/* ----- what has to hold of what was joined ----- */

static void join_one_by_one(const input *in, uint64_t rows, const uint64_t *rows_of,
                            const uint64_t *bytes, const spw_column_place *joined)
{
    spw_column_place places[COLUMNS_MAX];
    uint64_t first_row = 0;
    make_places(in, rows_of, bytes, places);
    for (size_t i = 0; i < in->shard_count; i++) {
        require(spw_shards_read(in->types, in->column_count, &in->shards[i], 1,
                                first_row, rows, places, NULL) == SPW_STATUS_OK);
        first_row += in->shards[i].rows;
    }
    if (in->shard_count > 0)
        require_same(in, rows_of, joined, places);
    free_places(in, places);
}

static void split_and_join(const input *in, spw_context *context, uint64_t rows,
                           const uint64_t *rows_of, const uint64_t *bytes,
                           const spw_column_place *joined)
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
    const spw_partitioning partitions = {.ids = ids, .count = 1};
    require(spw_split_rows(context, columns, in->column_count, rows, &partitions,
                           &split, NULL) == SPW_STATUS_OK);
    spw_split_read_shard(split, 0, &shard);
    make_places(in, rows_of, bytes, places);
    require(spw_shards_read(in->types, in->column_count, &shard, 1, 0, rows, places,
                            NULL) == SPW_STATUS_OK);
    require_same(in, rows_of, joined, places);
    free_places(in, places);
    spw_split_free(split);
    free(ids);
}

static void join(const input *in, spw_context *context, uint64_t rows,
                 const uint64_t *rows_of, const uint64_t *bytes)
{
    spw_column_place places[COLUMNS_MAX];
    spw_error error;
    make_places(in, rows_of, bytes, places);
    spw_status status = spw_shards_read(in->types, in->column_count, in->shards,
                                        in->shard_count, 0, rows, places, &error);
    /* Sizes have been found right, and there is room. */
    require(status == SPW_STATUS_OK || status == SPW_STATUS_CORRUPT);
    if (status == SPW_STATUS_OK) {
        join_one_by_one(in, rows, rows_of, bytes, places);
        split_and_join(in, context, rows, rows_of, bytes, places);
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
    uint64_t rows_of[COLUMNS_MAX] = {0};
    const uint64_t *counts = bytes;
    if (status != SPW_STATUS_OK)
        require(status == error.status && rows == 0);
    else if (find_rows(&in, 0, in.column_count, rows, &counts, rows_of))
        join(&in, context, rows, rows_of, bytes);

    clear_shards(&in);
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_HELD] == 0);
    spw_context_unref(context);
    spw_budget_free(budget);
    return 0;
}
