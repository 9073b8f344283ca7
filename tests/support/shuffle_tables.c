#include "shuffle_tables.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

/* ----- making ----- */

static unsigned below(unsigned *seed, unsigned count)
{
    return (unsigned)rand_r(seed) % count;
}

static uint8_t *noise(size_t size, unsigned *seed)
{
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(rand_r(seed) >> 3);
    return bytes;
}

void shuffle_table_choose_types(shuffle_table *table, unsigned *seed)
{
    static const uint32_t SIZES[] = {1, 2, 3, 4, 4, 5, 7, 8, 8, 8, 12, 16, 24, 33};
    *table = (shuffle_table){.column_count = below(seed, TABLE_COLUMNS_MAX + 1)};
    for (size_t i = 0; i < table->column_count; i++) {
        spw_column_type *type = &table->types[i];
        type->has_validity = below(seed, 2) == 0;
        type->kind = (spw_column_kind)(1 + below(seed, 4));
        if (type->kind == SPW_COLUMN_BLOB)
            type->has_validity = false;
        if (type->kind == SPW_COLUMN_FIXED)
            type->item_size = SIZES[below(seed, COUNT_OF(SIZES))];
        else if (type->kind == SPW_COLUMN_BINARY)
            type->item_size = below(seed, 2) == 0 ? 4 : 8;
        table->counts_per_shard +=
            type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_BLOB;
    }
}

static void fill_binary(spw_column *column, uint64_t rows, unsigned *seed)
{
    size_t count = (size_t)(column->offset + rows + 1), size = column->type.item_size;
    uint8_t *offsets = noise(count * size, seed);
    uint64_t at = below(seed, 50); /* what stands before is of no row */
    for (size_t i = (size_t)column->offset; i < count; i++) {
        memcpy(offsets + i * size, &at, size);
        if (i + 1 < count)
            at += below(seed, 20) == 0 ? below(seed, 400) : below(seed, 40);
    }
    column->data_size = at + (below(seed, 2) == 0 ? below(seed, 50) : 0);
    column->data = noise((size_t)column->data_size, seed);
    column->values = offsets;
}

static void fill_blobs(const shuffle_table *table, spw_column *column, unsigned *seed)
{
    size_t count = (size_t)table->partition_count + 1;
    uint64_t *offsets = (uint64_t *)(void *)noise(count * sizeof *offsets, seed);
    uint64_t at = below(seed, 50);
    for (uint32_t p = 0; p < table->partition_count; p++) {
        bool has_rows = false;
        for (uint64_t i = 0; i < table->row_count && !has_rows; i++)
            has_rows = table->ids[i] == p;
        offsets[p] = at;
        at += has_rows ? below(seed, 100) : 0;
    }
    offsets[count - 1] = at;
    column->data_size = at + below(seed, 20);
    column->data = noise((size_t)column->data_size, seed);
    column->values = offsets;
}

static void fill_column(spw_column *column, uint64_t rows, unsigned *seed)
{
    column->offset = below(seed, 2) == 0 ? 0 : below(seed, 70);
    uint64_t end = column->offset + rows;
    if (column->type.kind == SPW_COLUMN_FIXED) {
        size_t size = column->type.item_size, stride = size;
        if (below(seed, 3) == 0)
            column->stride = stride = size + below(seed, 50);
        column->values = noise(end > 0 ? (size_t)(end - 1) * stride + size : 0, seed);
    } else if (column->type.kind == SPW_COLUMN_BITS) {
        column->values_bit_offset = below(seed, 20);
        column->values = noise((size_t)(column->values_bit_offset + end + 7) / 8, seed);
    } else {
        fill_binary(column, rows, seed);
    }
    if (column->type.has_validity && below(seed, 3) > 0) {
        column->validity_bit_offset = below(seed, 20);
        column->validity =
            noise((size_t)(column->validity_bit_offset + end + 7) / 8, seed);
    }
}

static int compare_ends(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void choose_ranges(shuffle_table *table, unsigned *seed)
{
    table->range_count = below(seed, TABLE_RANGES_MAX + 1);
    if (table->range_count == 0)
        return;
    for (uint32_t i = 0; i < table->range_count; i++)
        table->range_ends[i] = below(seed, table->partition_count + 1);
    table->range_ends[0] = table->partition_count;
    qsort(table->range_ends, table->range_count, sizeof(uint32_t), compare_ends);
}

void shuffle_table_fill(shuffle_table *table, uint64_t row_count,
                        uint32_t partition_count, unsigned *seed)
{
    table->row_count = row_count;
    table->partition_count = partition_count;
    for (size_t i = 0; i < table->column_count; i++) {
        table->columns[i] = (spw_column){.type = table->types[i]};
        if (table->types[i].kind != SPW_COLUMN_BLOB)
            fill_column(&table->columns[i], row_count, seed);
    }
    table->ids = malloc((size_t)row_count * sizeof *table->ids + 1);
    assert_non_null(table->ids);
    /* Some partitions get most of the rows, and some none. */
    unsigned favoured = below(seed, partition_count), spread = below(seed, 3);
    for (uint64_t i = 0; i < row_count; i++)
        table->ids[i] =
            below(seed, 3) < spread ? favoured : below(seed, partition_count);
    choose_ranges(table, seed);
    for (size_t i = 0; i < table->column_count; i++)
        if (table->types[i].kind == SPW_COLUMN_BLOB)
            fill_blobs(table, &table->columns[i], seed);
}

void shuffle_table_clear(shuffle_table *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        free((void *)(uintptr_t)table->columns[i].values);
        free((void *)(uintptr_t)table->columns[i].data);
        free((void *)(uintptr_t)table->columns[i].validity);
    }
    free(table->ids);
    table->ids = NULL;
}

/* ----- the oracle ----- */

static bool bit_at(const void *bits, uint64_t i)
{
    return (((const uint8_t *)bits)[i / 8] >> (i % 8) & 1) != 0;
}

static uint64_t offset_at(const void *offsets, size_t size, uint64_t i)
{
    uint64_t offset = 0;
    memcpy(&offset, (const uint8_t *)offsets + i * size, size);
    return offset;
}

bool shuffle_table_is_valid(const spw_column *column, uint64_t row)
{
    return column->validity == NULL ||
           bit_at(column->validity, column->validity_bit_offset + column->offset + row);
}

size_t shuffle_table_value(const spw_column *column, uint64_t row,
                           const uint8_t **ret_bytes)
{
    static const uint8_t BITS[2] = {0, 1};
    uint64_t at = column->offset + row;
    size_t size = column->type.item_size;
    if (column->type.kind == SPW_COLUMN_BITS) {
        *ret_bytes = &BITS[bit_at(column->values, column->values_bit_offset + at)];
        return 1;
    }
    if (column->type.kind == SPW_COLUMN_FIXED) {
        uint64_t stride = column->stride > 0 ? column->stride : size;
        *ret_bytes = (const uint8_t *)column->values + at * stride;
        return size;
    }
    uint64_t from = offset_at(column->values, size, at);
    *ret_bytes = (const uint8_t *)column->data + from;
    return (size_t)(offset_at(column->values, size, at + 1) - from);
}

size_t shuffle_table_blob(const spw_column *column, uint32_t partition,
                          const uint8_t **ret_bytes)
{
    uint64_t from = offset_at(column->values, 8, partition);
    *ret_bytes = (const uint8_t *)column->data + from;
    return (size_t)(offset_at(column->values, 8, (uint64_t)partition + 1) - from);
}

static void put_filling(wire_bytes *wire)
{
    static const uint8_t ZEROS[8];
    wire_put(wire, ZEROS, (8 - wire->size % 8) % 8);
}

/* As many bits as come, and then zeros. */
typedef struct bit_writer {
    uint8_t byte;
    unsigned used;
} bit_writer;

static void put_bit(wire_bytes *wire, bit_writer *writer, bool bit)
{
    writer->byte = (uint8_t)(writer->byte | bit << writer->used);
    if (++writer->used < 8)
        return;
    wire_put(wire, &writer->byte, 1);
    *writer = (bit_writer){0};
}

static void end_bits(wire_bytes *wire, const bit_writer *writer)
{
    if (writer->used > 0)
        wire_put(wire, &writer->byte, 1);
    put_filling(wire);
}

static void put_bitmap(const spw_column *column, const uint64_t *rows, size_t count,
                       bool is_validity, wire_bytes *wire)
{
    bit_writer writer = {0};
    const uint8_t *value;
    for (size_t i = 0; i < count; i++) {
        bool bit = shuffle_table_is_valid(column, rows[i]);
        if (!is_validity) {
            shuffle_table_value(column, rows[i], &value);
            bit = *value;
        }
        put_bit(wire, &writer, bit);
    }
    end_bits(wire, &writer);
}

static uint64_t put_values(const spw_column *column, const uint64_t *rows, size_t count,
                           wire_bytes *wire)
{
    const uint8_t *value;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = shuffle_table_value(column, rows[i], &value);
        if (wire != NULL)
            wire_put(wire, value, size);
        bytes += size;
    }
    if (wire != NULL)
        put_filling(wire);
    return bytes;
}

static void put_ends(const spw_column *column, const uint64_t *rows, size_t count,
                     wire_bytes *wire)
{
    const uint8_t *value;
    uint64_t end = 0, bytes = put_values(column, rows, count, NULL);
    for (size_t i = 0; i < count; i++) {
        end += shuffle_table_value(column, rows[i], &value);
        wire_put(wire, &end, bytes >> 32 == 0 ? 4 : 8);
    }
    put_filling(wire);
}

static uint64_t *rows_of(const shuffle_table *table, uint32_t partition, size_t *ret)
{
    uint64_t *rows = malloc((size_t)table->row_count * sizeof *rows + 1);
    assert_non_null(rows);
    *ret = 0;
    for (uint64_t i = 0; i < table->row_count; i++)
        if (table->ids[i] == partition)
            rows[(*ret)++] = i;
    return rows;
}

void shuffle_table_put_shard(const shuffle_table *table, uint32_t partition,
                             wire_bytes *wire)
{
    size_t count;
    uint64_t *rows = rows_of(table, partition, &count);
    for (size_t i = 0; i < table->column_count; i++) {
        const spw_column *column = &table->columns[i];
        if (column->type.kind == SPW_COLUMN_BLOB) {
            const uint8_t *blob;
            size_t size = shuffle_table_blob(column, partition, &blob);
            wire_put(wire, blob, size);
            put_filling(wire);
            continue;
        }
        if (column->type.has_validity)
            put_bitmap(column, rows, count, true, wire);
        if (column->type.kind == SPW_COLUMN_BITS) {
            put_bitmap(column, rows, count, false, wire);
        } else {
            if (column->type.kind == SPW_COLUMN_BINARY)
                put_ends(column, rows, count, wire);
            put_values(column, rows, count, wire);
        }
    }
    free(rows);
}

static void check_tables(const shuffle_table *table, const spw_split_range *range,
                         uint32_t partition)
{
    size_t count, binary = 0, at = partition - range->first_partition;
    uint64_t *rows = rows_of(table, partition, &count);
    assert_int_equal(range->rows[at], count);
    for (size_t i = 0; i < table->column_count; i++) {
        const spw_column *column = &table->columns[i];
        const uint8_t *blob;
        uint64_t bytes;
        if (column->type.kind == SPW_COLUMN_BINARY)
            bytes = put_values(column, rows, count, NULL);
        else if (column->type.kind == SPW_COLUMN_BLOB)
            bytes = shuffle_table_blob(column, partition, &blob);
        else
            continue;
        assert_int_equal(range->counts[at * table->counts_per_shard + binary++], bytes);
    }
    free(rows);
}

static void check_range(const shuffle_table *table, const spw_split *split,
                        const spw_split_range *range)
{
    wire_bytes wire = {0};
    uint64_t rows = 0;
    assert_int_equal(range->counts_per_shard, table->counts_per_shard);
    for (uint32_t p = 0; p < range->partition_count; p++) {
        uint32_t partition = range->first_partition + p;
        assert_int_equal(range->begins[p], wire.size);
        check_tables(table, range, partition);
        shuffle_table_put_shard(table, partition, &wire);
        spw_shard shard;
        spw_split_read_shard(split, partition, &shard);
        assert_int_equal(shard.size, wire.size - range->begins[p]);
        assert_int_equal(shard.rows, range->rows[p]);
        if (shard.size > 0)
            assert_memory_equal(shard.data, wire.bytes + range->begins[p], shard.size);
        rows += shard.rows;
    }
    assert_int_equal(range->begins[range->partition_count], wire.size);
    assert_int_equal(range->buffer != NULL, rows > 0);
    if (range->buffer != NULL) {
        uintptr_t address = (uintptr_t)spw_buffer_data(range->buffer);
        assert_int_equal(address % SPW_BUFFER_ALIGNMENT, 0);
        assert_int_equal(spw_buffer_size(range->buffer), wire.size);
    }
    wire_clear(&wire);
}

void shuffle_table_check_split(const shuffle_table *table, const spw_split *split)
{
    uint32_t first = 0, count = table->range_count;
    assert_int_equal(spw_split_range_count(split), count > 0 ? count : 1);
    for (uint32_t i = 0; i < spw_split_range_count(split); i++) {
        spw_split_range range;
        spw_split_read_range(split, i, &range);
        assert_int_equal(range.first_partition, first);
        first += range.partition_count;
        assert_int_equal(first,
                         count > 0 ? table->range_ends[i] : table->partition_count);
        check_range(table, split, &range);
    }
}

spw_partitions shuffle_table_partitions(const shuffle_table *table)
{
    return (spw_partitions){.ids = table->ids,
                            .count = table->partition_count,
                            .range_count = table->range_count,
                            .range_ends = table->range_ends};
}

spw_status shuffle_table_split(const shuffle_table *table, spw_context *context,
                               spw_split **ret_split, spw_error *error)
{
    spw_partitions partitions = shuffle_table_partitions(table);
    return spw_split_rows(context, table->columns, table->column_count,
                          table->row_count, &partitions, ret_split, error);
}

/* ----- places ----- */

void shuffle_places_open(spw_column_place *places, const spw_column_type *types,
                         size_t column_count, uint64_t row_count,
                         const uint64_t *counts)
{
    unsigned seed = 3;
    size_t rows = (size_t)row_count, bitmap = (rows + 7) / 8;
    for (size_t i = 0; i < column_count; i++) {
        places[i] = (spw_column_place){0};
        if (types[i].has_validity)
            places[i].validity = noise(bitmap, &seed);
        if (types[i].kind == SPW_COLUMN_FIXED) {
            places[i].values = noise(rows * types[i].item_size, &seed);
        } else if (types[i].kind == SPW_COLUMN_BITS) {
            places[i].values = noise(bitmap, &seed);
        } else if (types[i].kind == SPW_COLUMN_BLOB) {
            places[i].data_size = *counts++;
            places[i].data = noise((size_t)places[i].data_size, &seed);
        } else {
            places[i].values = noise((rows + 1) * types[i].item_size, &seed);
            places[i].data_size = *counts++;
            places[i].data = noise((size_t)places[i].data_size, &seed);
        }
    }
}

void shuffle_places_close(spw_column_place *places, size_t column_count)
{
    for (size_t i = 0; i < column_count; i++) {
        free(places[i].values);
        free(places[i].data);
        free(places[i].validity);
    }
}

void shuffle_places_check_row(const spw_column_place *places,
                              const shuffle_table *table, uint64_t row, uint64_t at)
{
    for (size_t i = 0; i < table->column_count; i++) {
        const spw_column *from = &table->columns[i];
        if (from->type.kind == SPW_COLUMN_BLOB)
            continue;
        /* What is in a place is a column too. */
        spw_column to = {.type = table->types[i],
                         .values = places[i].values,
                         .data = places[i].data,
                         .validity = places[i].validity};
        const uint8_t *expected, *found;
        assert_int_equal(shuffle_table_is_valid(&to, at),
                         shuffle_table_is_valid(from, row));
        size_t size = shuffle_table_value(from, row, &expected);
        assert_int_equal(shuffle_table_value(&to, at, &found), size);
        if (size > 0)
            assert_memory_equal(found, expected, size);
    }
}
