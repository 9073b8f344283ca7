/* Tables for tests of the shuffle, made from a seed, and the same shards written a
 * second time: row by row, from docs/shuffle_layout.md, independently of the code under
 * test. */
#ifndef TEST_SHUFFLE_TABLES_H
#define TEST_SHUFFLE_TABLES_H

#include "spillway/shuffle.h"
#include "wire_bytes.h"

enum { TABLE_COLUMNS_MAX = 10, TABLE_RANGES_MAX = 4 };

/* Each piece of memory of a column is as long as its rows need, and no longer. */
typedef struct shuffle_table {
    uint64_t row_count;
    uint32_t partition_count;
    size_t column_count, counts_per_shard;
    spw_column columns[TABLE_COLUMNS_MAX];
    spw_column_type types[TABLE_COLUMNS_MAX];
    uint32_t *ids;
    uint32_t range_count;
    uint32_t range_ends[TABLE_RANGES_MAX];
} shuffle_table;

/* Types only, of up to TABLE_COLUMNS_MAX columns, some in lists in lists. */
void shuffle_table_choose_types(shuffle_table *table, unsigned *seed);
/* Columns of these types, with slices and bits at any offset, ids, and ranges. */
void shuffle_table_fill(shuffle_table *table, uint64_t row_count,
                        uint32_t partition_count, unsigned *seed);
void shuffle_table_clear(shuffle_table *table);

/* What a BLOB column has for a partition. Returns: how many bytes. */
size_t shuffle_table_blob(const spw_column *column, uint32_t partition,
                          const uint8_t **ret_bytes);
/* Whether a row of a column has a value, and which, in ret_bytes: the item, a byte for
 * a bit, or the bytes of a BINARY one. Returns: how many bytes. */
bool shuffle_table_is_valid(const spw_column *column, uint64_t row);
size_t shuffle_table_value(const spw_column *column, uint64_t row,
                           const uint8_t **ret_bytes);

/* The shard of a partition, put at the end of wire. */
void shuffle_table_put_shard(const shuffle_table *table, uint32_t partition,
                             wire_bytes *wire);
/* Fails the test unless the split has the shards of the table, byte by byte. */
void shuffle_table_check_split(const shuffle_table *table, const spw_split *split);

spw_partitioning shuffle_table_partitions(const shuffle_table *table);
/* A call of spw_split_rows with what the table has. */
spw_status shuffle_table_split(const shuffle_table *table, spw_context *context,
                               spw_split **ret_split, spw_error *error);

/* Places for rows, and for as much as counts say of each column that has one, of memory
 * that ends where they end and starts with noise. */
void shuffle_places_open(spw_column_place *places, const spw_column_type *types,
                         size_t column_count, uint64_t row_count,
                         const uint64_t *counts);
void shuffle_places_close(spw_column_place *places, size_t column_count);
/* Fails the test unless place row `at` of each column but BLOBs is the table's row,
 * with all items of lists. */
void shuffle_places_check_row(const spw_column_place *places,
                              const shuffle_table *table, uint64_t row, uint64_t at);

#endif
