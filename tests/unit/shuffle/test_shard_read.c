/* Joining: shard_read.c, and shard_sizes.c that looks at shards before. */
#include <stdlib.h>
#include <string.h>

#include "counted_context.h"
#include "shuffle_tables.h"
#include "testing.h"

enum { TABLES = 4, PARTITIONS = 5 };

/* Tables of the same types, each of them split. */
typedef struct fixture {
    counted_context counted;
    shuffle_table tables[TABLES];
    spw_split *splits[TABLES];
} fixture;

static void open_fixture(fixture *f, unsigned *seed)
{
    counted_context_open(&f->counted, 0, 0);
    shuffle_table types;
    shuffle_table_choose_types(&types, seed);
    for (size_t i = 0; i < TABLES; i++) {
        f->tables[i] = types;
        uint64_t rows = (uint64_t)rand_r(seed) % 120;
        shuffle_table_fill(&f->tables[i], rows, PARTITIONS, seed);
        f->tables[i].range_count = 0;
        assert_ok(shuffle_table_split(&f->tables[i], f->counted.context, &f->splits[i],
                                      NULL));
    }
}

static void close_fixture(fixture *f)
{
    for (size_t i = 0; i < TABLES; i++) {
        spw_split_free(f->splits[i]);
        shuffle_table_clear(&f->tables[i]);
    }
    counted_context_close(&f->counted);
}

/* The blobs of a partition, one after another. */
static void check_blobs(const fixture *f, uint32_t partition,
                        const spw_column_place *places)
{
    for (size_t c = 0; c < f->tables[0].column_count; c++) {
        if (f->tables[0].types[c].kind != SPW_COLUMN_BLOB)
            continue;
        uint64_t at = 0;
        for (size_t i = 0; i < TABLES; i++) {
            const uint8_t *blob;
            size_t size =
                shuffle_table_blob(&f->tables[i].columns[c], partition, &blob);
            assert_in_range(size, 0, places[c].data_size - at);
            if (size > 0)
                assert_memory_equal((uint8_t *)places[c].data + at, blob, size);
            at += size;
        }
        assert_int_equal(at, places[c].data_size);
        assert_int_equal(at, places[c].data_begin);
    }
}

/* The rows of a partition, in the order of tables and of rows in them. */
static void check_joined(const fixture *f, uint32_t partition,
                         const spw_column_place *places, uint64_t rows)
{
    uint64_t at = 0;
    for (size_t i = 0; i < TABLES; i++)
        for (uint64_t row = 0; row < f->tables[i].row_count; row++)
            if (f->tables[i].ids[row] == partition)
                shuffle_places_check_row(places, &f->tables[i], row, at++);
    assert_int_equal(at, rows);
    check_blobs(f, partition, places);
}

static void shards_of_several_tables_become_columns(void **state)
{
    (void)state;
    unsigned seed = 31;
    for (int round = 0; round < 600; round++) {
        fixture f;
        open_fixture(&f, &seed);
        const spw_column_type *types = f.tables[0].types;
        size_t columns = f.tables[0].column_count;
        for (uint32_t p = 0; p < PARTITIONS; p++) {
            spw_shard shards[TABLES];
            uint64_t rows, bytes[TABLE_COLUMNS_MAX], first = 0;
            for (size_t i = 0; i < TABLES; i++)
                spw_split_read_shard(f.splits[i], p, &shards[i]);
            assert_ok(
                spw_shards_measure(types, columns, shards, TABLES, &rows, bytes, NULL));
            spw_column_place places[TABLE_COLUMNS_MAX];
            shuffle_places_open(places, types, columns, rows, bytes);
            /* All at once, or a few at a time. */
            size_t step = 1 + (size_t)rand_r(&seed) % TABLES;
            for (size_t i = 0; i < TABLES; i += step) {
                size_t count = TABLES - i < step ? TABLES - i : step;
                assert_ok(spw_shards_read(types, columns, &shards[i], count, first,
                                          rows, places, NULL));
                for (size_t j = i; j < i + count; j++)
                    first += shards[j].rows;
            }
            check_joined(&f, p, places, rows);
            shuffle_places_close(places, columns);
        }
        close_fixture(&f);
    }
}

/* A range of partitions is a range of bytes, and can be read wherever it came to lie.
 */
static void shards_can_be_read_at_any_address(void **state)
{
    (void)state;
    unsigned seed = 8;
    for (int round = 0; round < 40; round++) {
        fixture f;
        open_fixture(&f, &seed);
        const shuffle_table *table = &f.tables[0];
        spw_split_range tables;
        spw_split_read_range(f.splits[0], 0, &tables);
        static const uint8_t NOTHING[1];
        const uint8_t *all =
            tables.buffer != NULL ? spw_buffer_data(tables.buffer) : NOTHING;
        size_t lead = (size_t)round % 8;
        size_t from = (size_t)tables.begins[1];
        size_t size = (size_t)tables.begins[4] - from;
        uint8_t *moved = malloc(lead + size + 1);
        memcpy(moved + lead, all + from, size);
        for (uint32_t p = 1; p < 4; p++) {
            spw_shard shard;
            spw_split_read_shard(f.splits[0], p, &shard);
            shard.data = moved + lead + (tables.begins[p] - from);
            spw_column_place places[TABLE_COLUMNS_MAX];
            shuffle_places_open(places, table->types, table->column_count, shard.rows,
                                shard.counts);
            assert_ok(spw_shards_read(table->types, table->column_count, &shard, 1, 0,
                                      shard.rows, places, NULL));
            uint64_t at = 0;
            for (uint64_t row = 0; row < table->row_count; row++)
                if (table->ids[row] == p)
                    shuffle_places_check_row(places, table, row, at++);
            shuffle_places_close(places, table->column_count);
        }
        free(moved);
        close_fixture(&f);
    }
}

/* ----- what is refused ----- */

static const spw_column_type TYPES[2] = {{SPW_COLUMN_FIXED, 2, true, 0},
                                         {SPW_COLUMN_BINARY, 4, false, 0}};
enum { SHARD_BYTES = 40 };
/* Partition 1 of the example in docs/shuffle_layout.md. */
static const uint8_t SHARD[SHARD_BYTES] = {
    0x05, 0, 0, 0, 0, 0, 0, 0, 10, 0, 30, 0, 40,  0,   0,   0,   1, 0, 0, 0,
    1,    0, 0, 0, 4, 0, 0, 0, 0,  0, 0,  0, 'a', 'd', 'e', 'f', 0, 0, 0, 0};
static const uint64_t FOUR = 4;

typedef struct places_of_three {
    uint16_t numbers[3];
    uint8_t validity;
    int32_t offsets[4];
    char data[4];
    spw_column_place places[2];
} places_of_three;

static void open_places(places_of_three *p)
{
    *p = (places_of_three){.numbers = {7, 7, 7}, .offsets = {7, 7, 7, 7}};
    p->places[0] = (spw_column_place){.values = p->numbers, .validity = &p->validity};
    p->places[1] =
        (spw_column_place){.values = p->offsets, .data = p->data, .data_size = 4};
}

static void assert_untouched(const places_of_three *p)
{
    static const places_of_three fresh = {.numbers = {7, 7, 7},
                                          .offsets = {7, 7, 7, 7}};
    assert_memory_equal(p->numbers, fresh.numbers, sizeof p->numbers);
    assert_memory_equal(p->offsets, fresh.offsets, sizeof p->offsets);
    assert_int_equal(p->validity, 0);
}

static void a_shard_of_another_size_is_corrupt(void **state)
{
    (void)state;
    static const uint64_t five = 5, nine = 9, vast = UINT64_MAX - 3;
    static const struct {
        uint64_t size;
        uint32_t rows;
        const uint64_t *bytes;
        const char *message;
    } CASES[] = {
        {32, 3, &FOUR,
         "shard 1, column 1: what its rows and bytes take is more than the shard's 32 "
         "bytes"},
        {39, 3, &FOUR,
         "shard 1, column 1: what its rows and bytes take is more than the shard's 39 "
         "bytes"},
        {8, 3, &FOUR,
         "shard 1, column 0: what its rows and bytes take is more than the shard's 8 "
         "bytes"},
        {40, 2, &FOUR, "shard 1: 40 bytes, of which its columns take only 32"},
        {40, UINT32_MAX, &FOUR,
         "shard 1, column 0: what its rows and bytes take is more than the shard's 40 "
         "bytes"},
        {40, 3, &nine,
         "shard 1, column 1: what its rows and bytes take is more than the shard's 40 "
         "bytes"},
        {40, 3, &vast,
         "shard 1, column 1: what its rows and bytes take is more than the shard's 40 "
         "bytes"},
        {40, 0, &FOUR, "shard 1, column 1: bytes without rows"},
        /* Of the same size, so that only the ends tell. */
        {40, 3, &five,
         "shard 1, column 1: its ends decrease, or do not end with its 5 bytes"},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_shard shards[2] = {{0},
                               {SHARD, CASES[i].size, CASES[i].rows, CASES[i].bytes}};
        static const uint64_t none = 0;
        shards[0].counts = &none;
        places_of_three p;
        spw_error error;
        uint64_t rows = 99, bytes = 99;
        bool is_size = strstr(CASES[i].message, "ends decrease") == NULL;
        open_places(&p);
        if (is_size) {
            assert_status(
                spw_shards_measure(TYPES, 2, shards, 2, &rows, &bytes, &error),
                CORRUPT);
            assert_string_equal(error.message, CASES[i].message);
            assert_int_equal(rows, 99);
            assert_int_equal(bytes, 99);
        }
        char room[5];
        p.places[1].data = room;
        p.places[1].data_size = 5;
        assert_status(spw_shards_read(TYPES, 2, shards, 2, 0, 3, p.places, &error),
                      CORRUPT);
        assert_string_equal(error.message, CASES[i].message);
        if (is_size)
            assert_untouched(&p);
    }
}

static void ends_that_lie_are_corrupt(void **state)
{
    (void)state;
    static const uint32_t ENDS[][3] = {
        {1, 0, 4},          {1, 2, 3},          {0, 0, 0},          {5, 5, 4},
        {1, UINT32_MAX, 4}, {UINT32_MAX, 0, 4}, {1, 2, UINT32_MAX}, {4, 4, 5}};
    for (size_t i = 0; i < COUNT_OF(ENDS); i++) {
        uint8_t bytes[SHARD_BYTES];
        memcpy(bytes, SHARD, SHARD_BYTES);
        memcpy(bytes + 16, ENDS[i], sizeof ENDS[i]);
        spw_shard shard = {bytes, SHARD_BYTES, 3, &FOUR};
        places_of_three p;
        spw_error error;
        open_places(&p);
        assert_status(spw_shards_read(TYPES, 2, &shard, 1, 0, 3, p.places, &error),
                      CORRUPT);
        assert_string_equal(
            error.message,
            "shard 0, column 1: its ends decrease, or do not end with its 4 bytes");
    }
}

static void places_without_room_are_refused_untouched(void **state)
{
    (void)state;
    const spw_shard shards[2] = {{SHARD, SHARD_BYTES, 3, &FOUR},
                                 {NULL, SHARD_BYTES, 3, &FOUR}};
    const spw_shard unsaid = {SHARD, SHARD_BYTES, 3, NULL};
    places_of_three p;
    spw_error error;
    open_places(&p);
    spw_column_place good[2] = {p.places[0], p.places[1]};
    assert_status(spw_shards_read(TYPES, 2, shards, 1, 0, 2, p.places, &error),
                  INVALID_ARGUMENT);
    assert_string_equal(error.message, "room for 2 rows, too few for 3 after 0");
    assert_status(spw_shards_read(TYPES, 2, shards, 1, 5, 4, p.places, &error),
                  INVALID_ARGUMENT);
    assert_status(spw_shards_read(TYPES, 2, shards, 2, 0, 6, p.places, &error),
                  INVALID_ARGUMENT);
    assert_string_equal(error.message, "shard 1 has no address");
    assert_status(spw_shards_read(TYPES, 2, &unsaid, 1, 0, 3, p.places, &error),
                  INVALID_ARGUMENT);
    assert_string_equal(error.message, "shard 0 does not say the count of column 1");
    const struct {
        size_t column;
        spw_column_place place;
        const char *message;
    } CASES[] = {
        {0, {.validity = &p.validity}, "the place of column 0 has no address"},
        {0, {.values = p.numbers}, "the place of column 0 has no validity bitmap"},
        {0,
         {.values = p.numbers, .validity = &p.validity, .data_size = 1},
         "the place of column 0 has data, which only binary ones and blobs have"},
        {0,
         {.values = p.numbers, .validity = &p.validity, .data_begin = 1},
         "the place of column 0 has a begin, which only blobs have"},
        {1,
         {.values = p.offsets, .data = p.data, .data_size = 4, .validity = &p.validity},
         "the place of column 1 has a validity bitmap that its type does not have"},
        {1,
         {.values = p.offsets, .data_size = 4},
         "the place of column 1 has data without an address"},
        {1,
         {.values = p.offsets, .data = p.data, .data_size = 3},
         "the place of column 1 has 3 bytes for data, too few for 4 after 0"},
        {1, {.data = p.data, .data_size = 4}, "the place of column 1 has no address"},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        p.places[0] = good[0];
        p.places[1] = good[1];
        p.places[CASES[i].column] = CASES[i].place;
        assert_status(spw_shards_read(TYPES, 2, shards, 1, 0, 3, p.places, &error),
                      INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
        assert_untouched(&p);
    }
    /* An offset that an earlier call has left, and that somebody changed. */
    spw_column_place more[2] = {good[0], good[1]};
    p.offsets[1] = -1;
    assert_status(spw_shards_read(TYPES, 2, shards, 1, 1, 4, more, &error),
                  INVALID_ARGUMENT);
    spw_column_type bad[2] = {TYPES[0], {SPW_COLUMN_BINARY, 3, false, 0}};
    assert_status(spw_shards_read(bad, 2, shards, 1, 0, 3, good, &error),
                  INVALID_ARGUMENT);
}

/* Shards and places that claim much memory, of which none is there to be touched. */
static void offsets_of_four_bytes_count_two_gigabytes(void **state)
{
    (void)state;
    static const uint64_t much = (1ull << 31) - 8, eight = 8;
    const spw_column_type narrow = {SPW_COLUMN_BINARY, 4, false, 0};
    const spw_shard shards[2] = {{SHARD, 1ull << 31, 1, &much}, {SHARD, 16, 1, &eight}};
    int32_t offsets[3];
    char data;
    spw_column_place place = {
        .values = offsets, .data = &data, .data_size = 1ull << 40};
    spw_error error;
    assert_status(spw_shards_read(&narrow, 1, shards, 2, 0, 2, &place, &error),
                  LIMIT_EXCEEDED);
    assert_string_equal(error.message, "column 0 has 2147483648 bytes, more than "
                                       "offsets of 4 bytes can count");
    uint64_t rows, bytes;
    assert_ok(spw_shards_measure(&narrow, 1, shards, 2, &rows, &bytes, &error));
    assert_int_equal(rows, 2);
    assert_int_equal(bytes, 1ull << 31);
}

static void blobs_are_joined_without_gaps(void **state)
{
    (void)state;
    static const uint64_t three = 3, none = 0, six = 6;
    const spw_column_type type = {SPW_COLUMN_BLOB, 0, false, 0};
    const spw_shard shards[] = {
        {"abc\0\0\0\0", 8, 2, &three}, {"", 0, 1, &none}, {"defghi\0", 8, 1, &six}};
    char data[12] = "            ";
    spw_column_place place = {.data = data, .data_size = 12};
    spw_error error;
    uint64_t rows, bytes;
    assert_ok(spw_shards_measure(&type, 1, shards, 3, &rows, &bytes, &error));
    assert_int_equal(rows, 4);
    assert_int_equal(bytes, 9);
    assert_ok(spw_shards_read(&type, 1, shards, 3, 0, 4, &place, &error));
    assert_memory_equal(data, "abcdefghi   ", 12);
    assert_int_equal(place.data_begin, 9);
    assert_status(spw_shards_read(&type, 1, shards + 2, 1, 4, 5, &place, &error),
                  INVALID_ARGUMENT);
    assert_string_equal(error.message, "the place of column 0 has 12 bytes for data, "
                                       "too few for 6 after 9");
    assert_ok(spw_shards_read(&type, 1, shards, 1, 4, 6, &place, &error));
    assert_memory_equal(data, "abcdefghiabc", 12);
    place = (spw_column_place){.values = data, .data = data, .data_size = 12};
    assert_status(spw_shards_read(&type, 1, shards, 1, 0, 6, &place, &error),
                  INVALID_ARGUMENT);
    assert_string_equal(
        error.message,
        "the place of column 0 has values, which its kind does not have");
    const spw_shard lie = {"abc\0\0\0\0", 8, 0, &three};
    assert_status(spw_shards_measure(&type, 1, &lie, 1, &rows, &bytes, &error),
                  CORRUPT);
}

static void lists_that_lie_are_corrupt(void **state)
{
    (void)state;
    static const spw_column_type types[4] = {{SPW_COLUMN_LIST, 4, false, 1},
                                             {SPW_COLUMN_FIXED, 1, false, 0},
                                             {SPW_COLUMN_FIXED_LIST, 2, false, 1},
                                             {SPW_COLUMN_FIXED, 1, false, 0}};
    static const struct {
        uint32_t rows;
        uint64_t items;
        uint32_t ends[2];
        const char *message; /* NULL: right */
    } CASES[] = {
        {2, 3, {1, 3}, NULL},
        {2,
         3,
         {1, 2},
         "shard 0, column 0: its ends decrease, or do not end with its 3 items"},
        {2,
         3,
         {9, 3},
         "shard 0, column 0: its ends decrease, or do not end with its 3 items"},
        {2,
         9,
         {1, 9},
         "shard 0, column 3: what its rows and bytes take is more than the shard's 24 "
         "bytes"},
        {2, 1ull << 32, {1, 0}, "shard 0, column 0: more items than a shard may have"},
        {2, UINT64_MAX, {1, 0}, "shard 0, column 0: more items than a shard may have"},
        {0, 3, {0, 0}, "shard 0, column 0: bytes without rows"},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        uint8_t bytes[24] = {0};
        memcpy(bytes, CASES[i].ends, 8);
        memcpy(bytes + 8, "abc", 3);
        memcpy(bytes + 16, "uvwx", 4);
        const spw_shard shard = {bytes, 24, CASES[i].rows, &CASES[i].items};
        int32_t offsets[3];
        char items[3], pairs[4];
        spw_column_place places[4] = {{.values = offsets, .data_size = 3},
                                      {.values = items},
                                      {0},
                                      {.values = pairs}};
        spw_error error;
        spw_status status = spw_shards_read(types, 4, &shard, 1, 0, 2, places, &error);
        if (CASES[i].message == NULL) {
            assert_ok(status);
            assert_memory_equal(offsets, ((int32_t[]){0, 1, 3}), 12);
            assert_memory_equal(items, "abc", 3);
            assert_memory_equal(pairs, "uvwx", 4);
            places[0].data_size = 2;
            assert_status(spw_shards_read(types, 4, &shard, 1, 0, 2, places, &error),
                          INVALID_ARGUMENT);
            assert_string_equal(error.message, "the place of column 0 has 2 items "
                                               "inside, too few for 3 after 0");
            places[0].data_size = 3;
            places[2].values = pairs;
            assert_status(spw_shards_read(types, 4, &shard, 1, 0, 2, places, &error),
                          INVALID_ARGUMENT);
            continue;
        }
        assert_status(status, CORRUPT);
        assert_string_equal(error.message, CASES[i].message);
    }
    const spw_column_type wide = {SPW_COLUMN_FIXED_LIST, UINT32_MAX, false, 1};
    const spw_column_type pair[2] = {wide, {SPW_COLUMN_FIXED, 1, false, 0}};
    const spw_shard shard = {"", 0, 2, NULL};
    uint64_t rows;
    spw_error error;
    assert_status(spw_shards_measure(pair, 2, &shard, 1, &rows, NULL, &error), CORRUPT);
    assert_string_equal(error.message,
                        "shard 0, column 0: more items than a shard may have");
}

static void nothing_at_all_can_be_joined(void **state)
{
    (void)state;
    static const uint64_t none = 0;
    const spw_shard empty = {NULL, 0, 0, &none}, rows_only = {NULL, 0, 9, NULL};
    int32_t offset = 7;
    spw_column_place places[2] = {{0}, {.values = &offset}};
    uint64_t rows, bytes;
    assert_ok(spw_shards_measure(TYPES, 2, NULL, 0, &rows, &bytes, NULL));
    assert_int_equal(rows + bytes, 0);
    assert_ok(spw_shards_read(TYPES, 2, NULL, 0, 0, 0, places, NULL));
    assert_int_equal(offset, 0); /* an empty column has one offset */
    offset = 7;
    assert_ok(spw_shards_read(TYPES, 2, &empty, 1, 0, 0, places, NULL));
    assert_int_equal(offset, 0);
    /* So it is of lists of no items. */
    static const spw_column_type hollow = {SPW_COLUMN_FIXED_LIST, 0, false, 0};
    spw_column_place place = {0};
    assert_ok(spw_shards_read(&hollow, 1, &rows_only, 1, 0, 9, &place, NULL));
    /* Rows of no columns are rows. */
    assert_ok(spw_shards_measure(NULL, 0, &rows_only, 1, &rows, NULL, NULL));
    assert_int_equal(rows, 9);
    assert_ok(spw_shards_read(NULL, 0, &rows_only, 1, 0, 9, NULL, NULL));
    assert_status(spw_shards_read(NULL, 0, &rows_only, 1, 0, 8, NULL, NULL),
                  INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_of_several_tables_become_columns),
        cmocka_unit_test(shards_can_be_read_at_any_address),
        cmocka_unit_test(a_shard_of_another_size_is_corrupt),
        cmocka_unit_test(ends_that_lie_are_corrupt),
        cmocka_unit_test(places_without_room_are_refused_untouched),
        cmocka_unit_test(offsets_of_four_bytes_count_two_gigabytes),
        cmocka_unit_test(blobs_are_joined_without_gaps),
        cmocka_unit_test(lists_that_lie_are_corrupt),
        cmocka_unit_test(nothing_at_all_can_be_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
