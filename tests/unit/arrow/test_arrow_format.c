#include "arrow/arrow_format.h"

#include "arrow_arrays.h"
#include "testing.h"

static void release_nothing(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static spw_status read_format(const char *text, spw__arrow_format *format,
                              spw_error *error)
{
    struct ArrowSchema schema = {.format = text, .release = release_nothing};
    return spw__arrow_format_read(&schema, 0, format, error);
}

static void a_format_says_which_column_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        spw_column_kind kind;
        uint32_t size;
        int64_t buffers;
    } CASES[] = {
        {"b", SPW_COLUMN_BITS, 0, 2},
        {"c", SPW_COLUMN_FIXED, 1, 2},
        {"g", SPW_COLUMN_FIXED, 8, 2},
        {"tsu:", SPW_COLUMN_FIXED, 8, 2},
        {"tsu:+01:00", SPW_COLUMN_FIXED, 8, 2},
        {"tin", SPW_COLUMN_FIXED, 16, 2},
        {"d:5,-2", SPW_COLUMN_FIXED, 16, 2},
        {"d:5,2,32", SPW_COLUMN_FIXED, 4, 2},
        {"d:70,2,256", SPW_COLUMN_FIXED, 32, 2},
        {"w:17", SPW_COLUMN_FIXED, 17, 2},
        {"w:2147483647", SPW_COLUMN_FIXED, INT32_MAX, 2},
        {"u", SPW_COLUMN_BINARY, 4, 3},
        {"Z", SPW_COLUMN_BINARY, 8, 3},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw__arrow_format format;
        assert_ok(read_format(CASES[i].text, &format, NULL));
        assert_true(format.has_column);
        assert_false(spw__arrow_is_list(&format));
        assert_int_equal(format.type.kind, CASES[i].kind);
        assert_int_equal(format.type.item_size, CASES[i].size);
        assert_int_equal(format.buffer_count, CASES[i].buffers);
    }
}

static void a_format_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const NONE[] = {
        "",
        "x",
        "cc",
        "ts",
        "tsu",
        "td",
        "tdDx",
        "w:",
        "w:-1",
        "w:1x",
        "w:5 ",
        "w:2147483648",
        "w:1e999",
        "d:",
        "d:5",
        "d:5,2,",
        "d:5,2,33",
        "d:5,2,16",
        "d:5,2,-8",
        "d:5,2,0",
        "d:5,2,128,1",
        "+",
        "+x",
        "+lx",
        "+w:x(",
        "+w",
        "+s1",
        "w:99999999999999999999999999999999999999999999999999999999999999999999999",
    };
    static const char *const UNSUPPORTED[] = {"vz",      "vu",    "+vl", "+vL",
                                              "+ud:0,1", "+us:0", "+r"};
    spw__arrow_format format;
    spw_error error;
    for (size_t i = 0; i < COUNT_OF(NONE); i++) {
        assert_status(read_format(NONE[i], &format, &error), INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < COUNT_OF(UNSUPPORTED); i++)
        assert_status(read_format(UNSUPPORTED[i], &format, &error), UNSUPPORTED);
    assert_string_equal(error.message, "columns of the Arrow type +r");
}

static void children_have_to_be_there(void **state)
{
    (void)state;
    struct ArrowSchema child = {.format = "i", .release = release_nothing};
    struct ArrowSchema *children[2] = {&child, NULL};
    const struct {
        const char *format;
        int64_t count;
        struct ArrowSchema **children;
        spw_status status;
    } CASES[] = {
        {"+l", 1, children, SPW_STATUS_OK},
        {"+l", 0, children, SPW_STATUS_INVALID_ARGUMENT},
        {"+l", 1, NULL, SPW_STATUS_INVALID_ARGUMENT},
        {"+m", 1, &children[1], SPW_STATUS_INVALID_ARGUMENT},
        {"+w:3", 2, children, SPW_STATUS_INVALID_ARGUMENT},
        {"+s", 0, NULL, SPW_STATUS_OK},
        {"+s", -1, NULL, SPW_STATUS_INVALID_ARGUMENT},
        {"+s", 2, children, SPW_STATUS_INVALID_ARGUMENT},
        {"i", 1, children, SPW_STATUS_INVALID_ARGUMENT},
        {"n", 1, children, SPW_STATUS_INVALID_ARGUMENT},
    };
    spw__arrow_format format;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct ArrowSchema schema = {.format = CASES[i].format,
                                     .release = release_nothing,
                                     .n_children = CASES[i].count,
                                     .children = CASES[i].children};
        assert_int_equal(spw__arrow_format_read(&schema, 0, &format, NULL),
                         CASES[i].status);
        assert_status(spw__arrow_format_read(&schema, 64, &format, NULL),
                      LIMIT_EXCEEDED);
        schema.release = NULL;
        assert_status(spw__arrow_format_read(&schema, 0, &format, NULL),
                      INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_format_says_which_column_it_is),
        cmocka_unit_test(a_format_that_is_none_is_refused),
        cmocka_unit_test(children_have_to_be_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
