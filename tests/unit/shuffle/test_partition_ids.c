/* Numbering partitions: ids of every width, and those that have no number. */
#include <string.h>

#include "spillway/shuffle.h"
#include "testing.h"

static const uint32_t NUMBERS[4] = {2, 0, 7, 1};

static void ids_of_every_width_get_their_numbers(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 8; size *= 2)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            static const uint8_t IDS[5] = {3, 0, 2, 1, 3};
            uint8_t ids[41] = {0};
            uint32_t found[5];
            spw_partition_id_type type = {size, is_signed != 0};
            for (size_t i = 0; i < 5; i++)
                ids[1 + i * size] = IDS[i]; /* little-endian, on no boundary */
            assert_ok(
                spw_partition_ids_number(ids + 1, &type, 5, NUMBERS, 4, found, NULL));
            assert_memory_equal(found, ((uint32_t[]){1, 2, 7, 0, 1}), sizeof found);
        }
}

static void refuse(const void *ids, uint32_t size, bool is_signed, const char *text)
{
    uint32_t found[2];
    spw_error error;
    spw_partition_id_type type = {size, is_signed};
    assert_int_equal(spw_partition_ids_number(ids, &type, 2, NUMBERS, 4, found, &error),
                     SPW_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, text));
}

static void an_id_without_a_number_is_refused_by_its_row(void **state)
{
    (void)state;
    refuse(((int8_t[]){0, -1}), 1, true, "row 1 is of partition -1, and there are 4");
    refuse(((int16_t[]){4, 0}), 2, true, "row 0 is of partition 4, and there are 4");
    refuse(((int32_t[]){0, -7}), 4, true, "row 1 is of partition -7");
    refuse(((int64_t[]){0, INT64_MIN}), 8, true,
           "row 1 is of partition -9223372036854775808");
    refuse(((uint8_t[]){0, 255}), 1, false, "row 1 is of partition 255");
    refuse(((uint16_t[]){0, 65535}), 2, false, "row 1 is of partition 65535");
    refuse(((uint32_t[]){UINT32_MAX, 0}), 4, false, "row 0 is of partition 4294967295");
    refuse(((uint64_t[]){0, (uint64_t)1 << 32}), 8, false,
           "row 1 is of partition 4294967296");
}

static void sizes_that_no_integer_has_are_refused(void **state)
{
    (void)state;
    refuse(NUMBERS, 3, false, "not 3");
    refuse(NUMBERS, 0, false, "not 0");
    refuse(NUMBERS, 16, true, "not 16");
}

static void no_rows_have_no_ids(void **state)
{
    (void)state;
    spw_partition_id_type type = {8, true};
    assert_ok(spw_partition_ids_number(NULL, &type, 0, NULL, 0, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_every_width_get_their_numbers),
        cmocka_unit_test(an_id_without_a_number_is_refused_by_its_row),
        cmocka_unit_test(sizes_that_no_integer_has_are_refused),
        cmocka_unit_test(no_rows_have_no_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
