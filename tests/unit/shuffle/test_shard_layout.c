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
        {{SPW_COLUMN_FIXED, 8, false}, 3, 0, 0, 24, 24},
        {{SPW_COLUMN_FIXED, 3, false}, 3, 0, 0, 16, 16},
        {{SPW_COLUMN_FIXED, 1, true}, 65, 0, 16, 88, 88},
        {{SPW_COLUMN_BITS, 0, false}, 64, 0, 0, 8, 8},
        {{SPW_COLUMN_BITS, 0, true}, 65, 0, 16, 32, 32},
        {{SPW_COLUMN_BLOB, 0, false}, 3, 5, 0, 0, 8},
        {{SPW_COLUMN_BINARY, 4, false}, 3, 5, 0, 16, 24},
        {{SPW_COLUMN_BINARY, 8, true}, 3, 0, 8, 24, 24},
        /* Ends are as wide as the bytes need, whatever offsets are. */
        {{SPW_COLUMN_BINARY, 4, false}, 3, UINT32_MAX, 0, 16, (1ull << 32) + 16},
        {{SPW_COLUMN_BINARY, 4, false}, 3, 1ull << 32, 0, 24, (1ull << 32) + 24},
        {{SPW_COLUMN_FIXED, UINT32_MAX, true}, 0, 0, 0, 0, 0},
        /* The most that there can be is no overflow. */
        {{SPW_COLUMN_FIXED, UINT32_MAX, true},
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

static void a_type_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const spw_column_type BAD[] = {
        {SPW_COLUMN_FIXED, 0, false},    {SPW_COLUMN_BITS, 1, false},
        {SPW_COLUMN_BINARY, 0, false},   {SPW_COLUMN_BINARY, 5, false},
        {(spw_column_kind)0, 8, false},  {SPW_COLUMN_BLOB, 8, false},
        {SPW_COLUMN_BLOB, 0, true},      {(spw_column_kind)9, 8, false},
        {(spw_column_kind)-1, 8, false},
    };
    static const spw_column_type GOOD[] = {
        {SPW_COLUMN_FIXED, 1, false}, {SPW_COLUMN_FIXED, UINT32_MAX, true},
        {SPW_COLUMN_BITS, 0, true},   {SPW_COLUMN_BINARY, 4, false},
        {SPW_COLUMN_BLOB, 0, false},  {SPW_COLUMN_BINARY, 8, false},
    };
    spw_error error;
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        assert_status(spw__column_type_check(&BAD[i], i, &error), INVALID_ARGUMENT);
    assert_string_equal(error.message,
                        "column 8: no column of kind -1 has items of 8 bytes");
    for (size_t i = 0; i < COUNT_OF(GOOD); i++)
        assert_ok(spw__column_type_check(&GOOD[i], i, &error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_end_on_multiples_of_eight),
        cmocka_unit_test(a_type_that_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
