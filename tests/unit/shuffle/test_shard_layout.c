#include "shuffle/shard_layout.h"

#include "testing.h"

static void parts_end_on_multiples_of_eight(void **state)
{
    (void)state;
    static const struct {
        spw_column_type type;
        uint32_t rows;
        uint64_t bytes, values, data, end;
    } CASES[] = {
        {{SPW_COLUMN_FIXED, 8, false, 0}, 3, 0, 0, 24, 24},
        {{SPW_COLUMN_FIXED, 3, false, 0}, 3, 0, 0, 16, 16},
        {{SPW_COLUMN_FIXED, 1, true, 0}, 65, 0, 16, 88, 88},
        {{SPW_COLUMN_BITS, 0, false, 0}, 64, 0, 0, 8, 8},
        {{SPW_COLUMN_BITS, 0, true, 0}, 65, 0, 16, 32, 32},
        {{SPW_COLUMN_BLOB, 0, false, 0}, 3, 5, 0, 0, 8},
        {{SPW_COLUMN_LIST, 8, true, 0}, 3, 5, 8, 24, 24},
        {{SPW_COLUMN_FIXED_LIST, 7, true, 0}, 3, 0, 8, 8, 8},
        {{SPW_COLUMN_BINARY, 4, false, 0}, 3, 5, 0, 16, 24},
        {{SPW_COLUMN_BINARY, 8, true, 0}, 3, 0, 8, 24, 24},
        /* Ends are as wide as the bytes need, whatever offsets are. */
        {{SPW_COLUMN_BINARY, 4, false, 0}, 3, UINT32_MAX, 0, 16, (1ull << 32) + 16},
        {{SPW_COLUMN_BINARY, 4, false, 0}, 3, 1ull << 32, 0, 24, (1ull << 32) + 24},
        {{SPW_COLUMN_FIXED, UINT32_MAX, true, 0}, 0, 0, 0, 0, 0},
        /* The most that there can be is no overflow. */
        {{SPW_COLUMN_FIXED, UINT32_MAX, true, 0},
         UINT32_MAX,
         0,
         1ull << 29,
         (1ull << 29) + 0xfffffffe00000008u,
         (1ull << 29) + 0xfffffffe00000008u},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw__shard_parts parts =
            spw__shard_parts_of(&CASES[i].type, CASES[i].rows, CASES[i].bytes);
        assert_int_equal(parts.values, CASES[i].values);
        assert_int_equal(parts.data, CASES[i].data);
        assert_int_equal(parts.end, CASES[i].end);
    }
}

static spw_status check(const spw_column_type *types, size_t count, spw_error *error)
{
    return spw__column_types_check(types, sizeof *types, count, NULL, error);
}

static void a_type_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const spw_column_type BAD[] = {
        {SPW_COLUMN_FIXED, 0, false, 0},   {SPW_COLUMN_BITS, 1, false, 0},
        {SPW_COLUMN_BINARY, 0, false, 0},  {SPW_COLUMN_BINARY, 5, false, 0},
        {SPW_COLUMN_BLOB, 8, false, 0},    {SPW_COLUMN_BLOB, 0, true, 0},
        {SPW_COLUMN_LIST, 0, false, 0},    {(spw_column_kind)0, 8, false, 0},
        {(spw_column_kind)7, 8, false, 0}, {(spw_column_kind)-1, 8, false, 0},
    };
    static const spw_column_type GOOD[] = {
        {SPW_COLUMN_FIXED, 1, false, 0},     {SPW_COLUMN_FIXED, UINT32_MAX, true, 0},
        {SPW_COLUMN_BITS, 0, true, 0},       {SPW_COLUMN_BINARY, 4, false, 0},
        {SPW_COLUMN_BINARY, 8, false, 0},    {SPW_COLUMN_BLOB, 0, false, 0},
        {SPW_COLUMN_LIST, 4, true, 0},       {SPW_COLUMN_LIST, 8, false, 0},
        {SPW_COLUMN_FIXED_LIST, 0, true, 0}, {SPW_COLUMN_FIXED_LIST, 7, false, 0},
    };
    spw_error error;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        spw_column_type types[2] = {GOOD[0], BAD[i]};
        assert_status(check(types, 2, &error), INVALID_ARGUMENT);
    }
    assert_string_equal(error.message,
                        "column 1: no column of kind -1 has items of 8 bytes");
    assert_ok(check(GOOD, COUNT_OF(GOOD), &error));
}

static void a_tree_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    const spw_column_type fixed = {SPW_COLUMN_FIXED, 8, false, 0};
    const spw_column_type blob = {SPW_COLUMN_BLOB, 0, false, 0};
    const spw_column_type one = {SPW_COLUMN_LIST, 4, false, 1};
    const spw_column_type two = {SPW_COLUMN_FIXED_LIST, 4, false, 2};
    const struct {
        spw_column_type types[4];
        const char *message;
    } CASES[] = {
        {{fixed, fixed, fixed, one}, "column 3 cannot have 1 columns inside"},
        {{fixed, fixed, two, fixed}, "column 2 cannot have 2 columns inside"},
        /* The inner list ends before the outer one. */
        {{two, fixed, one, fixed}, "column 2 cannot have 1 columns inside"},
        {{two, fixed, blob, fixed}, "column 2: a blob is inside of no list"},
        {{{SPW_COLUMN_FIXED, 8, false, 1}, fixed, fixed, fixed},
         "column 0 cannot have 1 columns inside"},
        {{two, one, fixed, blob}, NULL},
        {{one, fixed, two, fixed}, "column 2 cannot have 2 columns inside"},
        {{one, fixed, one, fixed}, NULL},
    };
    spw_error error;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_status status = check(CASES[i].types, 4, &error);
        if (CASES[i].message == NULL) {
            assert_ok(status);
            continue;
        }
        assert_status(status, INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
    }
    spw_column_type deep[SPW_COLUMN_DEPTH_MAX + 2];
    for (uint32_t i = 0; i < COUNT_OF(deep); i++)
        deep[i] = (spw_column_type){SPW_COLUMN_LIST, 8, false,
                                    (uint32_t)COUNT_OF(deep) - 1 - i};
    assert_ok(check(deep + 1, COUNT_OF(deep) - 1, &error));
    assert_status(check(deep, COUNT_OF(deep), &error), LIMIT_EXCEEDED);
    assert_string_equal(error.message, "column 64 is a list in more than 63 others");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_end_on_multiples_of_eight),
        cmocka_unit_test(a_type_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_tree_that_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
