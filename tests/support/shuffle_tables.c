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

static void choose_type(spw_column_type *type, unsigned *seed)
{
    static const uint32_t SIZES[] = {1, 2, 3, 4, 4, 5, 7, 8, 8, 8, 12, 16, 24, 33};
    type->has_validity = below(seed, 2) == 0;
    type->kind = (spw_column_kind)(1 + below(seed, 6));
    if (type->kind == SPW_COLUMN_FIXED)
        type->item_size = SIZES[below(seed, COUNT_OF(SIZES))];
    else if (type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_LIST)
        type->item_size = below(seed, 2) == 0 ? 4 : 8;
    else if (type->kind == SPW_COLUMN_FIXED_LIST)
        type->item_size = below(seed, 4);
    else if (type->kind == SPW_COLUMN_BLOB)
        type->has_validity = false;
}

/* Of count columns, and depth lists around them. */
static void choose_level(spw_column_type *types, size_t count, unsigned depth,
                         unsigned *seed)
{
    for (size_t i = 0; i < count; i++) {
        do {
            choose_type(&types[i], seed);
        } while (depth > 0 && types[i].kind == SPW_COLUMN_BLOB);
        if (types[i].kind != SPW_COLUMN_LIST && types[i].kind != SPW_COLUMN_FIXED_LIST)
            continue;
        types[i].inner_columns = below(seed, (unsigned)(count - i));
        choose_level(types + i + 1, types[i].inner_columns, depth + 1, seed);
        i += types[i].inner_columns;
    }
}

static bool has_count(const spw_column_type *type)
{
    return type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_BLOB ||
           type->kind == SPW_COLUMN_LIST;
}

void shuffle_table_choose_types(shuffle_table *table, unsigned *seed)
{
    *table = (shuffle_table){.column_count = below(seed, TABLE_COLUMNS_MAX + 1)};
    choose_level(table->types, table->column_count, 0, seed);
    for (size_t i = 0; i < table->column_count; i++)
        table->counts_per_shard += has_count(&table->types[i]);
}

static void fill_offsets(spw_column *column, uint64_t rows, unsigned *seed)
{
    size_t count = (size_t)(column->offset + rows + 1), size = column->type.item_size;
    bool is_list = column->type.kind == SPW_COLUMN_LIST;
    uint8_t *offsets = noise(count * size, seed);
    uint64_t at = below(seed, is_list ? 5 : 50); /* what stands before is of no row */
    for (size_t i = (size_t)column->offset; i < count; i++) {
        memcpy(offsets + i * size, &at, size);
        if (i + 1 < count)
            at += below(seed, is_list ? 4 : below(seed, 20) == 0 ? 400 : 40);
    }
    column->data_size = at + (below(seed, 2) == 0 ? below(seed, is_list ? 4 : 50) : 0);
    if (!is_list)
        column->data = noise((size_t)column->data_size, seed);
    column->values = offsets;
}

static void fill_blobs(const shuffle_table *table, spw_column *column, unsigned *seed)
{
    size_t count = (size_t)table->partition_count + 1;
    uint64_t *offsets = (uint64_t *)(void *)noise(count * sizeof *offsets, seed);
    uint64_t at = below(seed, 50);
    memset(offsets, 0, count * sizeof *offsets);
    for (uint64_t i = 0; i < table->row_count; i++)
        offsets[table->ids[i]] = 1;
    for (uint32_t p = 0; p < table->partition_count; p++) {
        bool has_rows = offsets[p] > 0;
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
    } else if (column->type.kind != SPW_COLUMN_FIXED_LIST) {
        fill_offsets(column, rows, seed);
    }
    if (column->type.has_validity && below(seed, 3) > 0) {
        column->validity_bit_offset = below(seed, 20);
        column->validity =
            noise((size_t)(column->validity_bit_offset + end + 7) / 8, seed);
    }
}

/* How many rows, from no offset on, the columns inside have. */
static uint64_t inner_rows(const spw_column *column, uint64_t rows)
{
    if (column->type.kind == SPW_COLUMN_LIST)
        return column->data_size;
    return (column->offset + rows) * column->type.item_size;
}

static void fill_level(shuffle_table *table, size_t begin, size_t end, uint64_t rows,
                       unsigned *seed)
{
    for (size_t i = begin; i < end; i++) {
        spw_column *column = &table->columns[i];
        *column = (spw_column){.type = table->types[i]};
        if (column->type.kind == SPW_COLUMN_BLOB)
            continue;
        fill_column(column, rows, seed);
        size_t inner = column->type.inner_columns;
        fill_level(table, i + 1, i + 1 + inner, inner_rows(column, rows), seed);
        i += inner;
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
    fill_level(table, 0, table->column_count, row_count, seed);
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

/* The bytes or items of a row, of those that have a count. */
static uint64_t size_of_row(const spw_column *column, uint64_t row)
{
    uint64_t at = column->offset + row;
    if (column->type.kind == SPW_COLUMN_FIXED_LIST)
        return column->type.item_size;
    size_t size = column->type.item_size;
    return offset_at(column->values, size, at + 1) -
           offset_at(column->values, size, at);
}

static uint64_t size_of_rows(const spw_column *column, const uint64_t *rows,
                             size_t count)
{
    uint64_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += size_of_row(column, rows[i]);
    return size;
}

static void put_values(const spw_column *column, const uint64_t *rows, size_t count,
                       wire_bytes *wire)
{
    const uint8_t *value;
    for (size_t i = 0; i < count; i++) {
        size_t size = shuffle_table_value(column, rows[i], &value);
        wire_put(wire, value, size);
    }
    put_filling(wire);
}

static void put_ends(const spw_column *column, const uint64_t *rows, size_t count,
                     wire_bytes *wire)
{
    uint64_t end = 0, size = size_of_rows(column, rows, count);
    for (size_t i = 0; i < count; i++) {
        end += size_of_row(column, rows[i]);
        wire_put(wire, &end, size >> 32 == 0 ? 4 : 8);
    }
    put_filling(wire);
}

static uint64_t first_item(const spw_column *column, uint64_t row)
{
    uint64_t at = column->offset + row;
    if (column->type.kind == SPW_COLUMN_FIXED_LIST)
        return at * column->type.item_size;
    return offset_at(column->values, column->type.item_size, at);
}

/* Which rows of the columns inside are those of a list's rows. */
static uint64_t *items_of(const spw_column *column, const uint64_t *rows, size_t count,
                          size_t *ret)
{
    uint64_t *items =
        malloc((size_t)size_of_rows(column, rows, count) * sizeof *items + 1);
    assert_non_null(items);
    *ret = 0;
    for (size_t i = 0; i < count; i++)
        for (uint64_t j = 0; j < size_of_row(column, rows[i]); j++)
            items[(*ret)++] = first_item(column, rows[i]) + j;
    return items;
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

static void put_column(const spw_column *column, uint32_t partition,
                       const uint64_t *rows, size_t count, wire_bytes *wire)
{
    spw_column_kind kind = column->type.kind;
    if (kind == SPW_COLUMN_BLOB) {
        const uint8_t *blob;
        size_t size = shuffle_table_blob(column, partition, &blob);
        wire_put(wire, blob, size);
        put_filling(wire);
        return;
    }
    if (column->type.has_validity)
        put_bitmap(column, rows, count, true, wire);
    if (kind == SPW_COLUMN_BITS)
        put_bitmap(column, rows, count, false, wire);
    if (kind == SPW_COLUMN_BINARY || kind == SPW_COLUMN_LIST)
        put_ends(column, rows, count, wire);
    if (kind == SPW_COLUMN_BINARY || kind == SPW_COLUMN_FIXED)
        put_values(column, rows, count, wire);
}

static void put_level(const shuffle_table *table, size_t begin, size_t end,
                      uint32_t partition, const uint64_t *rows, size_t count,
                      wire_bytes *wire)
{
    for (size_t i = begin; i < end; i += 1 + table->types[i].inner_columns)
        put_column(&table->columns[i], partition, rows, count, wire);
    for (size_t i = begin; i < end; i += 1 + table->types[i].inner_columns) {
        size_t item_count, inner = table->types[i].inner_columns;
        if (inner == 0)
            continue;
        uint64_t *items = items_of(&table->columns[i], rows, count, &item_count);
        put_level(table, i + 1, i + 1 + inner, partition, items, item_count, wire);
        free(items);
    }
}

void shuffle_table_put_shard(const shuffle_table *table, uint32_t partition,
                             wire_bytes *wire)
{
    size_t count;
    uint64_t *rows = rows_of(table, partition, &count);
    put_level(table, 0, table->column_count, partition, rows, count, wire);
    free(rows);
}

/* counts goes on to the next one that is not of these columns. */
static void check_counts(const shuffle_table *table, size_t begin, size_t end,
                         uint32_t partition, const uint64_t *rows, size_t count,
                         const uint64_t **counts)
{
    for (size_t i = begin; i < end; i += 1 + table->types[i].inner_columns) {
        const spw_column *column = &table->columns[i];
        const uint8_t *blob;
        size_t item_count, inner = column->type.inner_columns;
        if (column->type.kind == SPW_COLUMN_BLOB)
            assert_int_equal(*(*counts)++,
                             shuffle_table_blob(column, partition, &blob));
        else if (has_count(&column->type))
            assert_int_equal(*(*counts)++, size_of_rows(column, rows, count));
        if (inner == 0)
            continue;
        uint64_t *items = items_of(column, rows, count, &item_count);
        check_counts(table, i + 1, i + 1 + inner, partition, items, item_count, counts);
        free(items);
    }
}

static void check_tables(const shuffle_table *table, const spw_split_range *range,
                         uint32_t partition)
{
    size_t count, at = partition - range->first_partition;
    const uint64_t *counts = range->counts + at * table->counts_per_shard;
    uint64_t *rows = rows_of(table, partition, &count);
    assert_int_equal(range->rows[at], count);
    check_counts(table, 0, table->column_count, partition, rows, count, &counts);
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

spw_partitioning shuffle_table_partitions(const shuffle_table *table)
{
    return (spw_partitioning){.ids = table->ids,
                              .count = table->partition_count,
                              .range_count = table->range_count,
                              .range_ends = table->range_ends};
}

spw_status shuffle_table_split(const shuffle_table *table, spw_context *context,
                               spw_split **ret_split, spw_error *error)
{
    spw_partitioning partitions = shuffle_table_partitions(table);
    return spw_split_rows(context, table->columns, table->column_count,
                          table->row_count, &partitions, ret_split, error);
}

/* ----- places ----- */

static void open_level(spw_column_place *places, const spw_column_type *types,
                       size_t column_count, uint64_t row_count, const uint64_t **counts,
                       unsigned *seed)
{
    size_t rows = (size_t)row_count, bitmap = (rows + 7) / 8;
    for (size_t i = 0; i < column_count; i++) {
        const spw_column_type *type = &types[i];
        places[i] = (spw_column_place){0};
        if (has_count(type))
            places[i].data_size = *(*counts)++;
        if (type->has_validity)
            places[i].validity = noise(bitmap, seed);
        if (type->kind == SPW_COLUMN_FIXED)
            places[i].values = noise(rows * type->item_size, seed);
        else if (type->kind == SPW_COLUMN_BITS)
            places[i].values = noise(bitmap, seed);
        else if (type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_LIST)
            places[i].values = noise((rows + 1) * type->item_size, seed);
        if (type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_BLOB)
            places[i].data = noise((size_t)places[i].data_size, seed);
        uint64_t items = type->kind == SPW_COLUMN_LIST ? places[i].data_size
                                                       : row_count * type->item_size;
        open_level(places + i + 1, types + i + 1, type->inner_columns, items, counts,
                   seed);
        i += type->inner_columns;
    }
}

void shuffle_places_open(spw_column_place *places, const spw_column_type *types,
                         size_t column_count, uint64_t row_count,
                         const uint64_t *counts)
{
    unsigned seed = 3;
    open_level(places, types, column_count, row_count, &counts, &seed);
}

void shuffle_places_close(spw_column_place *places, size_t column_count)
{
    for (size_t i = 0; i < column_count; i++) {
        free(places[i].values);
        free(places[i].data);
        free(places[i].validity);
    }
}

static void check_rows(const spw_column_place *places, const shuffle_table *table,
                       size_t begin, size_t end, uint64_t row, uint64_t at)
{
    for (size_t i = begin; i < end; i += 1 + table->types[i].inner_columns) {
        const spw_column *from = &table->columns[i];
        if (from->type.kind == SPW_COLUMN_BLOB)
            continue;
        /* What is in a place is a column too. */
        spw_column to = {.type = table->types[i],
                         .values = places[i].values,
                         .data = places[i].data,
                         .validity = places[i].validity};
        const uint8_t *expected, *found;
        size_t inner = from->type.inner_columns;
        assert_int_equal(shuffle_table_is_valid(&to, at),
                         shuffle_table_is_valid(from, row));
        if (from->type.kind == SPW_COLUMN_LIST ||
            from->type.kind == SPW_COLUMN_FIXED_LIST) {
            uint64_t items = size_of_row(from, row);
            assert_int_equal(size_of_row(&to, at), items);
            for (uint64_t j = 0; j < items; j++)
                check_rows(places, table, i + 1, i + 1 + inner,
                           first_item(from, row) + j, first_item(&to, at) + j);
            continue;
        }
        size_t size = shuffle_table_value(from, row, &expected);
        assert_int_equal(shuffle_table_value(&to, at, &found), size);
        if (size > 0)
            assert_memory_equal(found, expected, size);
    }
}

void shuffle_places_check_row(const spw_column_place *places,
                              const shuffle_table *table, uint64_t row, uint64_t at)
{
    check_rows(places, table, 0, table->column_count, row, at);
}
