#include "shuffle/split_columns.h"

#include <stdio.h>

#include "testing.h"

static const uint32_t IDS[4] = {0, 1, 1, 0};
static const uint64_t ITEMS[8];
static const int32_t OFFSETS[6] = {0, 2, 2, 5, 9, 9};

static spw_status check(const spw_column *column, spw_error *error)
{
    uint64_t bytes = 0;
    return spw__split_column_check(column, 1, 0, 4, 2, &bytes, error);
}

static void what_cannot_be_read_is_refused_by_its_number(void **state)
{
    (void)state;
    const spw_column_type fixed = {SPW_COLUMN_FIXED, 8, false, 0};
    const spw_column_type bits = {SPW_COLUMN_BITS, 0, true, 0};
    const spw_column_type binary = {SPW_COLUMN_BINARY, 4, false, 0};
    const struct {
        spw_column column;
        const char *message;
    } CASES[] = {
        {{.type = {SPW_COLUMN_FIXED_LIST, 2, false, 0}, .values = ITEMS},
         "column 1 has values, which are in the columns inside"},
        {{.type = {SPW_COLUMN_FIXED_LIST, 2, false, 0}, .offset = PTRDIFF_MAX / 2},
         "column 1 is longer than the address space"},
        {{.type = {SPW_COLUMN_LIST, 4, false, 0}, .values = OFFSETS, .data = ITEMS},
         "column 1 has data, which only binary ones and blobs have"},
        {{.type = fixed}, "column 1 has no values"},
        {{.type = fixed, .values = ITEMS, .values_bit_offset = 8},
         "column 1 has no bits to skip"},
        {{.type = bits, .values = ITEMS, .stride = 8},
         "column 1 has a stride, which only fixed ones have"},
        {{.type = {SPW_COLUMN_BLOB, 0, false, 0}, .values = ITEMS, .offset = 1},
         "column 1 has no rows to skip"},
        {{.type = fixed, .values = ITEMS, .stride = 7},
         "column 1 has a stride that is smaller than an item"},
        {{.type = fixed, .values = ITEMS, .stride = PTRDIFF_MAX / 4 + 1},
         "column 1 is longer than the address space"},
        {{.type = fixed, .values = ITEMS, .offset = PTRDIFF_MAX / 8 - 3},
         "column 1 is longer than the address space"},
        {{.type = fixed, .values = ITEMS, .offset = UINT64_MAX},
         "column 1 is longer than the address space"},
        {{.type = bits, .values = ITEMS, .values_bit_offset = UINT64_MAX},
         "column 1 is longer than the address space"},
        {{.type = bits, .values = ITEMS, .offset = 9, .values_bit_offset = INT64_MAX},
         "column 1 is longer than the address space"},
        {{.type = bits,
          .values = ITEMS,
          .validity = ITEMS,
          .offset = 9,
          .validity_bit_offset = INT64_MAX - 12},
         "column 1 is longer than the address space"},
        {{.type = fixed, .values = ITEMS, .validity = ITEMS},
         "column 1 has a validity bitmap that its type does not have"},
        {{.type = fixed, .values = ITEMS, .data = ITEMS},
         "column 1 has data, which only binary ones and blobs have"},
        {{.type = binary, .values = OFFSETS, .data_size = 9},
         "column 1 has data without an address"},
        {{.type = binary, .values = OFFSETS, .data = ITEMS, .data_size = UINT64_MAX},
         "column 1 has more data than the address space"},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_error error;
        assert_status(check(&CASES[i].column, &error), INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
    }
    spw_error error;
    assert_ok(
        check(&(spw_column){.type = fixed, .values = ITEMS, .offset = 4}, &error));
    assert_ok(
        check(&(spw_column){.type = fixed, .values = ITEMS, .stride = 16}, &error));
    assert_ok(check(&(spw_column){.type = binary, .values = OFFSETS}, &error));
}

static void blobs_of_partitions_are_counted(void **state)
{
    (void)state;
    static const struct {
        uint64_t offsets[4];
        const char *message;
    } CASES[] = {
        {{2, 5, 5, 9}, NULL},
        {{0, 4, 3, 9},
         "column 7, partition 1: offsets 4 and 3 are no range of its 9 bytes of data"},
        {{0, 4, 4, 10},
         "column 7, partition 2: offsets 4 and 10 are no range of its 9 bytes of data"},
        {{0, 4, 5, 9}, "column 7 has bytes for partition 1, which has no rows"},
    };
    static const uint32_t ROWS[3] = {1, 0, 7};
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_column column = {.type = {SPW_COLUMN_BLOB, 0, false, 0},
                             .values = CASES[i].offsets,
                             .data = "nine byte",
                             .data_size = 9};
        uint64_t counts[6] = {0, 100, 0, 100, 0, 100};
        spw_error error;
        spw_status status =
            spw__split_blobs_count(&column, 7, 3, ROWS, counts, 2, &error);
        if (CASES[i].message == NULL) {
            assert_ok(status);
            assert_memory_equal(counts, ((uint64_t[]){3, 100, 0, 100, 4, 100}), 48);
            continue;
        }
        assert_status(status, INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
    }
    const spw_column unsaid = {.type = {SPW_COLUMN_BLOB, 0, false, 0}};
    assert_status(spw__split_blobs_count(&unsaid, 7, 3, ROWS, NULL, 2, NULL),
                  INVALID_ARGUMENT);
}

static void what_may_be_larger_than_the_address_space_is_refused(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    spw_error error;
    spw_column wide = {.type = {SPW_COLUMN_FIXED, UINT32_MAX, true, 0},
                       .values = ITEMS};
    assert_status(spw__split_column_check(&wide, 0, 0, UINT32_MAX,
                                          SPW_PARTITION_COUNT_MAX, &bytes, &error),
                  INVALID_ARGUMENT); /* it is so already where it stands */
    spw_column two[2] = {{.type = {SPW_COLUMN_BINARY, 8, false, 0},
                          .values = ITEMS,
                          .data = ITEMS,
                          .data_size = PTRDIFF_MAX / 2},
                         {.type = {SPW_COLUMN_BINARY, 8, false, 0},
                          .values = ITEMS,
                          .data = ITEMS,
                          .data_size = PTRDIFF_MAX / 2}};
    assert_ok(spw__split_column_check(&two[0], 0, 0, 4, 1, &bytes, &error));
    assert_status(spw__split_column_check(&two[1], 1, 0, 4, 1, &bytes, &error),
                  LIMIT_EXCEEDED);
    assert_string_equal(error.message, "the columns up to 1 may have more bytes than "
                                       "the address space");
}

static void offsets_that_leave_the_data_are_refused_by_row(void **state)
{
    (void)state;
    static const struct {
        int64_t offsets[5];
        int bad; /* the row; -1: none */
    } CASES[] = {
        {{0, 2, 2, 5, 9}, -1}, {{3, 3, 3, 3, 3}, -1},  {{9, 9, 9, 9, 9}, -1},
        {{0, 2, 1, 5, 9}, 1},  {{0, 2, 2, 5, 10}, 3},  {{-1, 2, 2, 5, 9}, 0},
        {{0, 2, -2, 5, 9}, 1}, {{10, 10, 9, 9, 9}, 0}, {{0, 0, 0, 0, -1}, 3},
        {{5, 4, 3, 2, 1}, 0},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        int32_t narrow[5];
        for (size_t j = 0; j < 5; j++)
            narrow[j] = (int32_t)CASES[i].offsets[j];
        for (uint32_t size = 4; size <= 8; size += 4) {
            spw_column column = {.type = {SPW_COLUMN_BINARY, size, false, 0},
                                 .values = size == 4 ? (const void *)narrow
                                                     : (const void *)CASES[i].offsets,
                                 .data = "nine byte",
                                 .data_size = 9};
            uint64_t sums[4] = {0, 100, 0, 100};
            spw_error error;
            spw_status status =
                spw__split_column_sum(&column, 7, 0, 4, IDS, sums, 2, &error);
            if (CASES[i].bad < 0) {
                assert_ok(status);
                const int64_t *at = CASES[i].offsets;
                assert_int_equal(sums[0], at[1] - at[0] + at[4] - at[3]);
                assert_int_equal(sums[2], at[3] - at[1]);
                assert_int_equal(sums[1] + sums[3], 200);
                continue;
            }
            char message[sizeof error.message];
            int64_t from = CASES[i].offsets[CASES[i].bad];
            snprintf(message, sizeof message,
                     "column 7, row %d: offsets %lld and %lld are no range of its 9 "
                     "bytes of data",
                     CASES[i].bad, (long long)from,
                     (long long)CASES[i].offsets[CASES[i].bad + 1]);
            assert_status(status, INVALID_ARGUMENT);
            assert_string_equal(error.message, message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_read_is_refused_by_its_number),
        cmocka_unit_test(blobs_of_partitions_are_counted),
        cmocka_unit_test(what_may_be_larger_than_the_address_space_is_refused),
        cmocka_unit_test(offsets_that_leave_the_data_are_refused_by_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
