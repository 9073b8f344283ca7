#include <stdlib.h>
#include <string.h>

#include "arrow_arrays.h"
#include "testing.h"

enum { COLUMNS_MAX = 8 };

static void a_tree_of_types_becomes_columns_in_its_order(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count;
        spw_column_type types[7];
    } CASES[] = {
        {"n", 0, {{0}}},
        {"+s", 0, {{0}}},
        {"?+s", 1, {{SPW_COLUMN_FIXED_LIST, 0, true, 0}}},
        {"?i@", 1, {{SPW_COLUMN_FIXED, 4, true, 0}}},
        {"+l(n)", 1, {{SPW_COLUMN_LIST, 4, false, 0}}},
        {"?+L(?+s(?b u))",
         4,
         {{SPW_COLUMN_LIST, 8, true, 3},
          {SPW_COLUMN_FIXED_LIST, 0, true, 0},
          {SPW_COLUMN_BITS, 0, true, 0},
          {SPW_COLUMN_BINARY, 4, false, 0}}},
        {"+s(+w:3(?+m(+s(u ?l))) ?c)",
         5,
         {{SPW_COLUMN_FIXED_LIST, 3, false, 3},
          {SPW_COLUMN_LIST, 4, true, 2},
          {SPW_COLUMN_BINARY, 4, false, 0},
          {SPW_COLUMN_FIXED, 8, true, 0},
          {SPW_COLUMN_FIXED, 1, true, 0}}},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct ArrowSchema *schema = arrow_schema_open(CASES[i].text);
        spw_column_type types[COLUMNS_MAX];
        size_t count;
        assert_ok(spw_arrow_types(schema, NULL, 0, &count, NULL));
        assert_int_equal(count, CASES[i].count);
        memset(types, 0, sizeof types);
        assert_ok(spw_arrow_types(schema, types, COLUMNS_MAX, &count, NULL));
        for (size_t j = 0; j < count; j++) {
            assert_int_equal(types[j].kind, CASES[i].types[j].kind);
            assert_int_equal(types[j].item_size, CASES[i].types[j].item_size);
            assert_int_equal(types[j].has_validity, CASES[i].types[j].has_validity);
            assert_int_equal(types[j].inner_columns, CASES[i].types[j].inner_columns);
        }
        arrow_schema_close(schema);
    }
}

static void validity_is_the_types_and_not_the_arrays(void **state)
{
    (void)state;
    struct ArrowSchema *nullable = arrow_schema_open("?i");
    struct ArrowSchema *never = arrow_schema_open("i");
    static const int32_t items[4] = {1, 2, 3, 4};
    static const uint8_t bitmap = 0x0e; /* the first one, which is skipped, is null */
    const void *buffers[2] = {NULL, items};
    unsigned seed = 1;
    struct ArrowArray *any = arrow_array_open(never, 0, &seed);
    struct ArrowArray array = {.length = 3,
                               .offset = 1,
                               .n_buffers = 2,
                               .buffers = buffers,
                               .release = any->release};
    spw_column column;
    spw_error error;
    assert_ok(spw_arrow_columns(nullable, &array, &column, 1, NULL));
    assert_true(column.type.has_validity);
    assert_null(column.validity);
    assert_int_equal(column.offset, 1);
    assert_ptr_equal(column.values, items);
    buffers[0] = &bitmap;
    array.null_count = -1;
    assert_ok(spw_arrow_columns(nullable, &array, &column, 1, NULL));
    assert_ptr_equal(column.validity, &bitmap);
    assert_ok(spw_arrow_columns(never, &array, &column, 1, NULL));
    assert_false(column.type.has_validity);
    assert_null(column.validity);
    array.offset = 0;
    assert_status(spw_arrow_columns(never, &array, &column, 1, &error),
                  INVALID_ARGUMENT);
    assert_string_equal(error.message, "an array of the type i has nulls, though it is "
                                       "not nullable");
    arrow_array_close(any);
    arrow_schema_close(nullable);
    arrow_schema_close(never);
}

/* An array of "?+l(+s(i u))" in which one thing is wrong. */
static void check_wrong(const char *message, int what)
{
    unsigned seed = 3;
    struct ArrowSchema *schema = arrow_schema_open("?+l(+s(i u))");
    struct ArrowArray *array = arrow_array_open(schema, 5, &seed);
    struct ArrowArray *record = array->children[0], *text = record->children[1];
    struct ArrowArray *wrong[] = {array, record, record->children[0], text};
    struct ArrowArray saved[4];
    const void *saved_values = text->buffers[1], *saved_data = text->buffers[2];
    int32_t negative[128];
    memset(negative, 0xff, sizeof negative);
    spw_column columns[COLUMNS_MAX];
    spw_error error = {0};
    size_t room = 3;
    for (size_t i = 0; i < 4; i++)
        saved[i] = *wrong[i];
    struct ArrowArray *none[2] = {NULL, NULL};
    switch (what) {
    case 0:
        array->n_buffers = 3;
        break;
    case 1:
        array->n_children = 2;
        break;
    case 2:
        array->children = NULL;
        break;
    case 3:
        array->length = -1;
        break;
    case 4:
        array->offset = -1;
        break;
    case 5:
        array->offset = INT64_MAX;
        break;
    case 6:
        record->children = none;
        break;
    case 7:
        record->children[0]->length = record->offset;
        break;
    case 8:
        text->release = NULL;
        break;
    case 9:
        text->buffers[1] = NULL;
        break;
    case 10:
        text->buffers[1] = negative;
        break;
    case 11:
        text->buffers[2] = NULL;
        break;
    case 12:
        room = 2;
        break;
    case 13:
        record->buffers = NULL;
        break;
    default:
        break;
    }
    spw_status status = spw_arrow_columns(schema, array, columns, room, &error);
    for (size_t i = 0; i < 4; i++)
        *wrong[i] = saved[i];
    text->buffers[1] = saved_values;
    text->buffers[2] = saved_data;
    arrow_array_close(array);
    arrow_schema_close(schema);
    assert_int_equal(status,
                     message != NULL ? SPW_STATUS_INVALID_ARGUMENT : SPW_STATUS_OK);
    if (message != NULL)
        assert_string_equal(error.message, message);
}

static void an_array_that_is_not_of_its_type_is_refused(void **state)
{
    (void)state;
    static const char *const MESSAGES[] = {
        "an array of the type +l has another number of buffers",
        "an array of the type +l has another number of children",
        "an array of the type +l has another number of children",
        "an array of the type +l has a length that is none",
        "an array of the type +l has a length that is none",
        "an array of the type +l has a length that is none",
        "an array of the type +s lacks a child",
        "an array of the type i is shorter than what it is in",
        "an array of the type u was released",
        "an array of the type u has no offsets",
        "an array of the type u has an offset below 0",
        "an array of the type u has no data",
        "an array of the type u has no room for its column",
        "an array of the type +s has another number of buffers",
        NULL,
    };
    for (int i = 0; i < (int)COUNT_OF(MESSAGES); i++)
        check_wrong(MESSAGES[i], i);
}

static void what_cannot_be_taken_is_said_to_be_so(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        spw_status status;
    } CASES[] = {
        {"vu", SPW_STATUS_UNSUPPORTED},
        {"+s(i +l(+us:0,1(i u)))", SPW_STATUS_UNSUPPORTED},
        {"+r(i u)", SPW_STATUS_UNSUPPORTED},
        {"+l(+l(q))", SPW_STATUS_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct ArrowSchema *schema = arrow_schema_open(CASES[i].text);
        size_t count = 99;
        assert_int_equal(spw_arrow_types(schema, NULL, 0, &count, NULL),
                         CASES[i].status);
        assert_int_equal(count, 99);
        arrow_schema_close(schema);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_of_types_becomes_columns_in_its_order),
        cmocka_unit_test(validity_is_the_types_and_not_the_arrays),
        cmocka_unit_test(an_array_that_is_not_of_its_type_is_refused),
        cmocka_unit_test(what_cannot_be_taken_is_said_to_be_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
