/* There and back: arrays of all types to columns, split, joined, and arrays again. */
#include <stdlib.h>
#include <string.h>

#include "arrow_arrays.h"
#include "counted_context.h"
#include "testing.h"

enum { COLUMNS_MAX = 16, PARTITIONS = 3, TEXT_MAX = 20000 };

static const char *const TYPES[] = {
    "n",
    "?b",
    "b",
    "?c",
    "S",
    "?i",
    "?l",
    "e",
    "?f",
    "g",
    "?d:9,2,32",
    "d:18,0,64",
    "?d:38,4",
    "?d:76,10,256",
    "?tdD",
    "tdm",
    "?tts",
    "ttn",
    "?tsu:",
    "?tsn:Europe/Rome",
    "tDm",
    "?tiM",
    "?tiD",
    "?tin",
    "?w:5",
    "?w:0",
    "w:0",
    "?z",
    "?u",
    "Z",
    "?U",
    "?+l(?i)",
    "+L(?u)",
    "?+w:3(?f)",
    "?+w:0(?f)",
    "?+s(?i u)",
    "+s(?i u)",
    "+s",
    "?+s",
    "?+m(+s(u ?l))",
    "?i@",
    "+s(?c@ ?+l(s@))",
    "?+l(n)",
    "?+l(+s)",
    "?+l(?+l(?+L(?u)))",
    "?+s(?+l(?+s(?b ?u ?+w:2(?+s(?i ?u)))) ?l)",
    "+w:2(+w:3(?b))",
    "?+l(?+w:2(?+l(?i)))",
    "+s(?n ?+l(?u) g ?+l(?c) ?z)",
};

static void check_partition(const struct ArrowSchema *schema,
                            const struct ArrowArray *array, const uint32_t *ids,
                            const spw_split *split, uint32_t partition,
                            spw_context *context)
{
    static char expected[TEXT_MAX], found[TEXT_MAX];
    spw_column_type types[COLUMNS_MAX];
    spw_column_place places[COLUMNS_MAX];
    uint64_t rows, counts[COLUMNS_MAX];
    size_t count;
    spw_shard shard;
    struct ArrowArray joined;
    spw_split_read_shard(split, partition, &shard);
    assert_ok(spw_arrow_types(schema, types, COLUMNS_MAX, &count, NULL));
    assert_ok(spw_shards_measure(types, count, &shard, 1, &rows, counts, NULL));
    assert_ok(spw_arrow_array_create(context, schema, rows, counts, places, count,
                                     &joined, NULL));
    assert_ok(spw_shards_read(types, count, &shard, 1, 0, rows, places, NULL));
    assert_int_equal(joined.length, rows);
    int64_t at = 0;
    for (int64_t i = 0; i < array->length; i++) {
        if (ids[i] != partition)
            continue;
        expected[0] = found[0] = '\0';
        arrow_array_print(schema, array, i, expected, TEXT_MAX);
        arrow_array_print(schema, &joined, at++, found, TEXT_MAX);
        assert_string_equal(found, expected);
    }
    assert_int_equal(at, joined.length);
    joined.release(&joined);
    assert_null(joined.release);
}

static void check_array(const struct ArrowSchema *schema, int64_t length,
                        spw_context *context, unsigned *seed)
{
    spw_column columns[COLUMNS_MAX];
    size_t count;
    spw_split *split;
    spw_error error;
    struct ArrowArray *array = arrow_array_open(schema, length, seed);
    uint32_t *ids = malloc((size_t)length * sizeof *ids + 1);
    for (int64_t i = 0; i < length; i++)
        ids[i] = (uint32_t)rand_r(seed) % PARTITIONS;
    const spw_partitioning partitions = {.ids = ids, .count = PARTITIONS};
    assert_ok(spw_arrow_types(schema, NULL, 0, &count, NULL));
    spw_status status = spw_arrow_columns(schema, array, columns, count, &error);
    if (status != SPW_STATUS_OK)
        fail_msg("%s: %s", schema->format, error.message);
    status = spw_split_rows(context, columns, count, (uint64_t)length, &partitions,
                            &split, &error);
    if (status != SPW_STATUS_OK)
        fail_msg("%s: %s", schema->format, error.message);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        check_partition(schema, array, ids, split, p, context);
    spw_split_free(split);
    arrow_array_close(array);
    free(ids);
}

static void arrays_of_all_types_come_back(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    unsigned seed = 12;
    for (size_t i = 0; i < COUNT_OF(TYPES); i++) {
        struct ArrowSchema *schema = arrow_schema_open(TYPES[i]);
        for (int round = 0; round < 30; round++)
            check_array(schema, rand_r(&seed) % 40, counted.context, &seed);
        arrow_schema_close(schema);
    }
    counted_context_close(&counted);
}

/* Whoever takes an array may keep a part of it, by moving it out. */
static void a_child_may_outlive_its_parent(void **state)
{
    (void)state;
    static const uint64_t counts[2] = {2, 3};
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    struct ArrowSchema *schema = arrow_schema_open("+s(i +l(u))");
    spw_column_place places[3];
    struct ArrowArray array, child;
    assert_ok(spw_arrow_array_create(counted.context, schema, 4, counts, places, 3,
                                     &array, NULL));
    assert_int_equal(array.n_buffers, 1);
    assert_int_equal(array.n_children, 2);
    assert_int_equal(array.children[1]->children[0]->length, 2);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal((uintptr_t)places[i].values % SPW_BUFFER_ALIGNMENT, 0);
    assert_int_equal(places[1].data_size, 2);
    assert_int_equal(places[2].data_size, 3);
    child = *array.children[1];
    array.children[1]->release = NULL;
    array.release(&array);
    assert_int_not_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 0);
    memset((char *)(uintptr_t)child.children[0]->buffers[2], 'x', 3);
    child.release(&child);
    arrow_schema_close(schema);
    counted_context_close(&counted);
}

static void release_flag(struct ArrowArray *array)
{
    *(bool *)array->private_data = true;
    array->release = NULL;
}

static void a_dictionary_is_moved_in_by_the_caller(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    struct ArrowSchema *schema = arrow_schema_open("?i@");
    spw_column_place place;
    struct ArrowArray array;
    bool is_released = false;
    assert_ok(spw_arrow_array_create(counted.context, schema, 1, NULL, &place, 1,
                                     &array, NULL));
    assert_non_null(array.dictionary);
    assert_null(array.dictionary->release);
    *array.dictionary =
        (struct ArrowArray){.release = release_flag, .private_data = &is_released};
    array.release(&array);
    assert_true(is_released);
    arrow_schema_close(schema);
    counted_context_close(&counted);
}

static void what_is_too_much_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        uint64_t rows, counts[2];
        size_t room;
        spw_status status;
    } CASES[] = {
        {"l", UINT64_MAX, {0}, 1, SPW_STATUS_LIMIT_EXCEEDED},
        {"l", INT64_MAX / 8, {0}, 1, SPW_STATUS_LIMIT_EXCEEDED},
        {"+w:1000(+w:1000(n))", INT64_MAX / 100000, {0}, 2, SPW_STATUS_LIMIT_EXCEEDED},
        {"u", 1, {1ull << 31}, 1, SPW_STATUS_LIMIT_EXCEEDED},
        {"U", 1, {UINT64_MAX}, 1, SPW_STATUS_LIMIT_EXCEEDED},
        {"+L(l)", 1, {UINT64_MAX / 8}, 2, SPW_STATUS_LIMIT_EXCEEDED},
        {"l", 1 << 20, {0}, 1, SPW_STATUS_LIMIT_EXCEEDED}, /* the budget */
        {"+s(l l)", 1, {0}, 1, SPW_STATUS_INVALID_ARGUMENT},
        {"vu", 1, {0}, 1, SPW_STATUS_UNSUPPORTED},
    };
    counted_context counted;
    counted_context_open(&counted, 0, 1 << 20);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct ArrowSchema *schema = arrow_schema_open(CASES[i].type);
        struct ArrowArray array = {.length = 7};
        spw_column_place places[2];
        assert_int_equal(spw_arrow_array_create(counted.context, schema, CASES[i].rows,
                                                CASES[i].counts, places, CASES[i].room,
                                                &array, NULL),
                         CASES[i].status);
        assert_int_equal(array.length, 7);
        arrow_schema_close(schema);
    }
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_all_types_come_back),
        cmocka_unit_test(a_child_may_outlive_its_parent),
        cmocka_unit_test(a_dictionary_is_moved_in_by_the_caller),
        cmocka_unit_test(what_is_too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
