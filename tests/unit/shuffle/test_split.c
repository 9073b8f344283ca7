/* Splitting as a whole: split.c, split_gather.c that fills what it lays out, and
 * split_level.c, by which both come to what is inside of lists. */
#include "shuffle/split.h"

#include <stdlib.h>
#include <string.h>

#include "counted_context.h"
#include "shuffle_tables.h"
#include "testing.h"
#include "torture.h"

/* The example of docs/shuffle_layout.md. */
static void the_example_has_the_bytes_of_its_document(void **state)
{
    (void)state;
    static const uint16_t numbers[5] = {10, 20, 30, 40, 50};
    static const uint8_t validity = 0x1b;
    static const int32_t offsets[6] = {0, 1, 3, 3, 6, 8};
    static const uint32_t ids[5] = {1, 0, 1, 1, 0};
    static const uint8_t EXPECTED[] = {0x03, 0,   0,   0, 0, 0, 0,  0,    20,
                                       0,    50,  0,   0, 0, 0, 0, /* partition 0 */
                                       2,    0,   0,   0, 4, 0, 0,  0,    'b',
                                       'c',  'g', 'h', 0, 0, 0, 0,  0x05, 0,
                                       0,    0,   0,   0, 0, 0, 10, 0,    30,
                                       0,    40,  0,   0, 0, /* partition 1 */
                                       1,    0,   0,   0, 1, 0, 0,  0,    4,
                                       0,    0,   0,   0, 0, 0, 0,  'a',  'd',
                                       'e',  'f', 0,   0, 0, 0};
    const spw_column columns[2] = {{.type = {SPW_COLUMN_FIXED, 2, true, 0},
                                    .values = numbers,
                                    .validity = &validity},
                                   {.type = {SPW_COLUMN_BINARY, 4, false, 0},
                                    .values = offsets,
                                    .data = "abcdefgh",
                                    .data_size = 8}};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_split *split;
    spw_split_range range;
    const spw_partitioning partitions = {.ids = ids, .count = 3};
    assert_ok(
        spw_split_rows(counted.context, columns, 2, 5, &partitions, &split, NULL));
    assert_int_equal(spw_split_range_count(split), 1);
    spw_split_read_range(split, 0, &range);
    assert_int_equal(spw_buffer_size(range.buffer), sizeof EXPECTED);
    assert_memory_equal(spw_buffer_data(range.buffer), EXPECTED, sizeof EXPECTED);
    assert_memory_equal(range.begins, ((uint64_t[]){0, 32, 72, 72}), 32);
    assert_memory_equal(range.rows, ((uint32_t[]){2, 3, 0}), 12);
    assert_memory_equal(range.counts, ((uint64_t[]){4, 4, 0}), 24);
    spw_split_free(split);
    counted_context_close(&counted);
}

static void check_random(spw_context *context, uint64_t rows, uint32_t partitions,
                         unsigned *seed)
{
    shuffle_table table;
    spw_split *split;
    shuffle_table_choose_types(&table, seed);
    shuffle_table_fill(&table, rows, partitions, seed);
    spw_partitioning parts = shuffle_table_partitions(&table);
    for (int way = 0; way <= SPW__GATHER_STREAMED; way++) {
        assert_ok(spw__split_rows_by((spw__gather_way)way, context, table.columns,
                                     table.column_count, rows, &parts, &split, NULL));
        shuffle_table_check_split(&table, split);
        spw_split_free(split);
    }
    shuffle_table_clear(&table);
}

static void random_tables_become_what_row_by_row_makes_of_them(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    unsigned seed = 1;
    for (int round = 0; round < 1500; round++) {
        uint64_t rows = (uint64_t)rand_r(&seed) % (round % 10 == 0 ? 2000 : 60);
        check_random(counted.context, rows, 1 + (uint32_t)rand_r(&seed) % 20, &seed);
    }
    counted_context_close(&counted);
}

/* More rows than a block has, with few partitions and with many, in memory that was
 * used before. */
static void tables_of_several_blocks_do_too(void **state)
{
    (void)state;
    static const struct {
        uint64_t rows;
        uint32_t partitions;
    } CASES[] = {{32768, 1},   {32769, 2},   {70000, 3},  {100000, 40},
                 {65537, 256}, {70000, 257}, {40000, 500}};
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    unsigned seed = 77;
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        for (int round = 0; round < 3; round++)
            check_random(counted.context, CASES[i].rows, CASES[i].partitions, &seed);
    counted_context_close(&counted);
}

/* The second example of the document: lists of numbers, in an order of their own. */
static void items_follow_the_rows_that_they_are_in(void **state)
{
    (void)state;
    static const int32_t offsets[5] = {9, 1, 3, 3, 6}; /* one row is skipped */
    static const uint16_t items[7] = {77, 10, 20, 30, 40, 50, 77};
    static const uint32_t ids[3] = {1, 0, 1};
    static const uint8_t EXPECTED[] = {
        0,  0, 0,  0, 0,  0, 0,  0, /* partition 0 */
        2,  0, 0,  0, 5,  0, 0,  0, /* partition 1: ends */
        10, 0, 20, 0, 30, 0, 40, 0, 50, 0, 0, 0, 0, 0, 0, 0};
    const spw_column columns[2] = {
        {.type = {SPW_COLUMN_LIST, 4, false, 1},
         .offset = 1,
         .values = offsets,
         .data_size = 6},
        {.type = {SPW_COLUMN_FIXED, 2, false, 0}, .values = items}};
    const spw_partitioning partitions = {.ids = ids, .count = 2};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_split *split;
    spw_split_range range;
    assert_ok(
        spw_split_rows(counted.context, columns, 2, 3, &partitions, &split, NULL));
    spw_split_read_range(split, 0, &range);
    assert_int_equal(spw_buffer_size(range.buffer), sizeof EXPECTED);
    assert_memory_equal(spw_buffer_data(range.buffer), EXPECTED, sizeof EXPECTED);
    assert_memory_equal(range.begins, ((uint64_t[]){0, 8, 32}), 24);
    assert_memory_equal(range.counts, ((uint64_t[]){0, 5}), 16);
    spw_split_free(split);
    counted_context_close(&counted);
}

static void lists_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const uint32_t ids[2];
    static const struct {
        spw_column column;
        int64_t offsets[3];
        uint64_t inner_offset;
        spw_status status;
        const char *message;
    } CASES[] = {
        {{.type = {SPW_COLUMN_LIST, 8, false, 1}, .data_size = 5},
         {0, 4, 3},
         0,
         SPW_STATUS_INVALID_ARGUMENT,
         "column 0, row 1: offsets 4 and 3 are no range of its 5 items"},
        {{.type = {SPW_COLUMN_LIST, 8, false, 1}, .data_size = 5},
         {0, 4, 6},
         0,
         SPW_STATUS_INVALID_ARGUMENT,
         "column 0, row 1: offsets 4 and 6 are no range of its 5 items"},
        {{.type = {SPW_COLUMN_LIST, 8, false, 1}, .data_size = 5},
         {-1, 4, 5},
         0,
         SPW_STATUS_INVALID_ARGUMENT,
         "column 0, row 0: offsets -1 and 4 are no range of its 5 items"},
        {{.type = {SPW_COLUMN_LIST, 8, false, 1}, .data_size = 5},
         {0, 4, 5},
         PTRDIFF_MAX / 8 - 3,
         SPW_STATUS_INVALID_ARGUMENT,
         "column 1 is longer than the address space"},
        {{.type = {SPW_COLUMN_LIST, 8, false, 1}, .data_size = 1ull << 40},
         {0, 4, 1ll << 32},
         0,
         SPW_STATUS_LIMIT_EXCEEDED,
         "column 0 has 4294967296 items, more than a list may"},
        {{.type = {SPW_COLUMN_FIXED_LIST, UINT32_MAX, false, 1}},
         {0},
         0,
         SPW_STATUS_LIMIT_EXCEEDED,
         "column 0 has 8589934590 items, more than a list may"},
    };
    static const uint64_t items[5];
    const spw_partitioning partitions = {.ids = ids, .count = 1};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_column columns[2] = {CASES[i].column,
                                 {.type = {SPW_COLUMN_FIXED, 8, false, 0},
                                  .offset = CASES[i].inner_offset,
                                  .values = items}};
        if (columns[0].type.kind == SPW_COLUMN_LIST)
            columns[0].values = CASES[i].offsets;
        spw_split *split = NULL;
        spw_error error;
        assert_int_equal(
            spw_split_rows(counted.context, columns, 2, 2, &partitions, &split, &error),
            CASES[i].status);
        assert_string_equal(error.message, CASES[i].message);
        assert_null(split);
    }
    counted_context_close(&counted);
}

static void nothing_at_all_can_be_split(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    static const uint32_t ids[3] = {1, 1, 0};
    static const spw_column columns[3] = {{.type = {SPW_COLUMN_FIXED, 8, true, 0}},
                                          {.type = {SPW_COLUMN_BITS, 0, false, 0}},
                                          {.type = {SPW_COLUMN_BINARY, 4, false, 0}}};
    static const struct {
        size_t columns;
        uint64_t rows;
        uint32_t partitions;
    } CASES[] = {{0, 0, 0}, {3, 0, 0}, {3, 0, 4}, {0, 3, 4}, {0, 0, 4}};
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_split *split;
        spw_split_range tables;
        const spw_partitioning partitions = {.ids = CASES[i].rows > 0 ? ids : NULL,
                                             .count = CASES[i].partitions};
        assert_ok(spw_split_rows(counted.context, columns, CASES[i].columns,
                                 CASES[i].rows, &partitions, &split, NULL));
        spw_split_read_range(split, 0, &tables);
        if (CASES[i].rows > 0)
            assert_int_equal(spw_buffer_size(tables.buffer), 0);
        else
            assert_null(tables.buffer);
        assert_int_equal(tables.partition_count, CASES[i].partitions);
        for (uint32_t p = 0; p < CASES[i].partitions; p++) {
            assert_int_equal(tables.rows[p], CASES[i].rows > 0 && p < 2 ? 1 + p : 0);
            assert_int_equal(tables.begins[p], 0);
        }
        spw_split_free(split);
    }
    counted_context_close(&counted);
}

static void an_id_that_is_no_partition_is_refused_by_its_row(void **state)
{
    (void)state;
    static const uint64_t items[4];
    const spw_column column = {.type = {SPW_COLUMN_FIXED, 8, false, 0},
                               .values = items};
    static const struct {
        uint32_t ids[4], partitions;
        const char *message;
    } CASES[] = {
        {{0, 1, 2, 3}, 3, "row 3 is for partition 3 of 3"},
        {{UINT32_MAX, 1, 2, 3}, 3, "row 0 is for partition 4294967295 of 3"},
        {{0, 0, 0, 0}, 0, "row 0 is for partition 0 of 0"},
    };
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_split *split = NULL;
        spw_error error;
        const spw_partitioning partitions = {.ids = CASES[i].ids,
                                             .count = CASES[i].partitions};
        assert_status(
            spw_split_rows(counted.context, &column, 1, 4, &partitions, &split, &error),
            INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
        assert_null(split);
    }
    counted_context_close(&counted);
}

static void more_than_can_be_counted_is_refused(void **state)
{
    (void)state;
    static const uint32_t ids[1];
    const spw_partitioning one = {.ids = ids, .count = 1}, without = {.count = 1};
    const spw_partitioning most = {.ids = ids, .count = 1u << 24};
    const spw_partitioning many = {.ids = ids, .count = (1u << 24) + 1};
    counted_context counted;
    counted_context_open(&counted, 0, 1 << 20);
    spw_split *split = NULL;
    spw_error error;
    assert_status(
        spw_split_rows(counted.context, NULL, 0, 1ull << 32, &one, &split, &error),
        LIMIT_EXCEEDED);
    assert_string_equal(error.message, "4294967296 rows, more than a table may have");
    assert_status(spw_split_rows(counted.context, NULL, 0, 1, &many, &split, &error),
                  LIMIT_EXCEEDED);
    assert_string_equal(error.message, "16777217 partitions, more than 16777216");
    assert_status(spw_split_rows(counted.context, NULL, 0, 1, &without, &split, &error),
                  INVALID_ARGUMENT);
    /* The budget: the tables alone, and the shards. */
    assert_status(spw_split_rows(counted.context, NULL, 0, 1, &most, &split, &error),
                  LIMIT_EXCEEDED);
    uint8_t *item = calloc(2, 1 << 20);
    spw_column column = {.type = {SPW_COLUMN_FIXED, 2 << 20, false, 0}, .values = item};
    assert_status(spw_split_rows(counted.context, &column, 1, 1, &one, &split, &error),
                  LIMIT_EXCEEDED);
    free(item);
    assert_null(split);
    counted_context_close(&counted);
}

/* What the document says that a shard costs beside its bytes. */
static void a_shard_takes_few_bytes_beside_its_rows(void **state)
{
    (void)state;
    enum { ROWS = 10000, PARTITIONS = 2000, COLUMNS = 13 };
    static uint64_t items[ROWS];
    static uint32_t ids[ROWS];
    static int64_t offsets[ROWS + 1];
    const spw_partitioning partitions = {.ids = ids, .count = PARTITIONS};
    spw_column columns[COLUMNS + 1];
    for (size_t i = 0; i < ROWS; i++) {
        ids[i] = (uint32_t)(i * 7919 % PARTITIONS);
        offsets[i + 1] = offsets[i] + 8;
    }
    for (size_t i = 0; i < COLUMNS; i++)
        columns[i] =
            (spw_column){.type = {SPW_COLUMN_FIXED, 8, false, 0}, .values = items};
    columns[COLUMNS] = (spw_column){.type = {SPW_COLUMN_BINARY, 8, false, 0},
                                    .values = offsets,
                                    .data = items,
                                    .data_size = ROWS * 8};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    for (size_t strings = 0; strings < 2; strings++) {
        spw_split *split;
        assert_ok(spw_split_rows(counted.context, columns, COLUMNS + strings, ROWS,
                                 &partitions, &split, NULL));
        uint64_t held = counted_context_charged(&counted, SPW_CHARGE_HELD);
        uint64_t rows = ROWS * (uint64_t)(COLUMNS * 8 + strings * 12);
        assert_in_range(held - rows, PARTITIONS * 12,
                        PARTITIONS * (12 + strings * 12) + 8 + sizeof(spw_split_range));
        spw_split_free(split);
    }
    counted_context_close(&counted);
}

/* 2^24 partitions, nearly all of them empty. */
static void there_may_be_very_many_partitions(void **state)
{
    (void)state;
    static const uint32_t ids[3] = {(1u << 24) - 1, 0, (1u << 24) - 1};
    static const uint32_t items[3] = {1, 2, 3};
    const spw_partitioning partitions = {.ids = ids, .count = 1u << 24};
    const spw_column column = {.type = {SPW_COLUMN_FIXED, 4, false, 0},
                               .values = items};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_split *split;
    spw_shard shard;
    assert_ok(
        spw_split_rows(counted.context, &column, 1, 3, &partitions, &split, NULL));
    spw_split_read_shard(split, (1u << 24) - 1, &shard);
    assert_int_equal(shard.rows, 2);
    assert_memory_equal(shard.data, ((uint32_t[]){1, 3}), 8);
    assert_null(shard.counts);
    spw_split_read_shard(split, 77, &shard);
    assert_int_equal(shard.rows, 0);
    assert_int_equal(shard.size, 0);
    spw_split_free(split);
    counted_context_close(&counted);
}

static void ranges_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const uint32_t ids[1];
    static const struct {
        uint32_t count, ends[3];
        const char *message;
    } CASES[] = {
        {1, {2}, "range 0 of 1 ends before partition 2 of 3, and begins at 0"},
        {2, {4, 4}, "range 0 of 2 ends before partition 4 of 3, and begins at 0"},
        {3, {2, 1, 3}, "range 1 of 3 ends before partition 1 of 3, and begins at 2"},
        {3, {1, 2, 2}, "range 2 of 3 ends before partition 2 of 3, and begins at 2"},
    };
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_split *split = NULL;
    spw_error error;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const spw_partitioning partitions = {ids, 3, CASES[i].count, CASES[i].ends};
        assert_status(
            spw_split_rows(counted.context, NULL, 0, 1, &partitions, &split, &error),
            INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
    }
    const spw_partitioning unsaid = {ids, 3, 2, NULL};
    assert_status(spw_split_rows(counted.context, NULL, 0, 1, &unsaid, &split, &error),
                  INVALID_ARGUMENT);
    const spw_partitioning many = {ids, 3, (1u << 24) + 1, ids};
    assert_status(spw_split_rows(counted.context, NULL, 0, 1, &many, &split, &error),
                  LIMIT_EXCEEDED);
    assert_null(split);
    counted_context_close(&counted);
}

/* What goes to one worker is given up without the others. */
static void each_buffer_may_outlive_the_split_by_itself(void **state)
{
    (void)state;
    static const uint32_t ids[6] = {4, 0, 4, 1, 0, 4};
    static const uint64_t items[6] = {10, 20, 30, 40, 50, 60};
    static const uint32_t ends[4] = {2, 2, 4, 5};
    const spw_partitioning partitions = {ids, 5, 4, ends};
    const spw_column column = {.type = {SPW_COLUMN_FIXED, 8, false, 0},
                               .values = items};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_split *split;
    spw_split_range ranges[4];
    assert_ok(
        spw_split_rows(counted.context, &column, 1, 6, &partitions, &split, NULL));
    for (uint32_t i = 0; i < 4; i++) {
        spw_split_read_range(split, i, &ranges[i]);
        if (ranges[i].buffer != NULL)
            spw_buffer_ref(ranges[i].buffer);
    }
    assert_null(ranges[1].buffer); /* has no partitions */
    assert_null(ranges[2].buffer); /* has no rows */
    spw_split_free(split);
    spw_split_free(NULL);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 48);
    assert_memory_equal(spw_buffer_data(ranges[0].buffer), ((uint64_t[]){20, 50, 40}),
                        24);
    spw_buffer_unref(ranges[0].buffer);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 24);
    assert_memory_equal(spw_buffer_data(ranges[3].buffer), ((uint64_t[]){10, 30, 60}),
                        24);
    spw_buffer_unref(ranges[3].buffer);
    counted_context_close(&counted);
}

static void splits(void **state)
{
    torture *t = *state;
    unsigned seed = 4;
    spw_split *split = NULL;
    shuffle_table table = {.column_count = 5,
                           .counts_per_shard = 2,
                           .types = {{SPW_COLUMN_FIXED, 8, true, 0},
                                     {SPW_COLUMN_BINARY, 4, false, 0},
                                     {SPW_COLUMN_BITS, 0, true, 0},
                                     {SPW_COLUMN_LIST, 8, true, 1},
                                     {SPW_COLUMN_FIXED, 4, false, 0}}};
    shuffle_table_fill(&table, 3000, 7, &seed);
    TRY(shuffle_table_split(&table, t->context, &split, &t->error));
    shuffle_table_check_split(&table, split);
end:
    spw_split_free(split);
    shuffle_table_clear(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_has_the_bytes_of_its_document),
        cmocka_unit_test(random_tables_become_what_row_by_row_makes_of_them),
        cmocka_unit_test(tables_of_several_blocks_do_too),
        cmocka_unit_test(items_follow_the_rows_that_they_are_in),
        cmocka_unit_test(lists_that_make_no_sense_are_refused),
        cmocka_unit_test(nothing_at_all_can_be_split),
        cmocka_unit_test(an_id_that_is_no_partition_is_refused_by_its_row),
        cmocka_unit_test(more_than_can_be_counted_is_refused),
        cmocka_unit_test(a_shard_takes_few_bytes_beside_its_rows),
        cmocka_unit_test(there_may_be_very_many_partitions),
        cmocka_unit_test(ranges_that_make_no_sense_are_refused),
        cmocka_unit_test(each_buffer_may_outlive_the_split_by_itself),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(splits)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("split", scenarios);
}
