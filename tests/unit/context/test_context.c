#include "spillway/context.h"

#include <string.h>

#include "context/allocate.h"
#include "context/figures.h"
#include "counted_context.h"
#include "testing.h"

static spw_context *const UNTOUCHED = (spw_context *)16;

static void refuse(const spw_context_options *options, const char *why)
{
    spw_context *context = UNTOUCHED;
    spw_error error;
    assert_status(spw_context_create(options, &context, &error), INVALID_ARGUMENT);
    assert_ptr_equal(context, UNTOUCHED);
    assert_non_null(strstr(error.message, why));
}

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    spw_budget *budget;
    assert_ok(spw_budget_create(0, &budget, NULL));
    counting_allocator allocator = {0};
    refuse(NULL, "unknown size");
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    refuse(&options, "needs a budget");
    options.budget = budget;
    options.struct_size--;
    refuse(&options, "unknown size");
    options.struct_size = offsetof(spw_context_options, budget);
    refuse(&options, "needs a budget"); /* which so old a caller cannot give */
    options.struct_size = sizeof options;
    options.allocator = counting_allocator_hook(&allocator);
    options.allocator.release = NULL;
    refuse(&options, "both allocate and release");
    options.allocator = counting_allocator_hook(&allocator);
    options.allocator.allocate = NULL;
    refuse(&options, "both allocate and release");
    options.allocator = counting_allocator_hook(&allocator);
    options.pool = (spw_pool_use)3;
    refuse(&options, "an unknown use of the pool: 3");
    assert_int_equal(allocator.calls, 0);
    spw_budget_free(budget);
}

static void options_of_another_version_are_read_as_far_as_they_are_known(void **state)
{
    (void)state;
    struct {
        spw_context_options known;
        uint64_t unknown;
    } newer = {SPW_CONTEXT_OPTIONS_INIT, 0};
    spw_context *context;
    assert_ok(spw_budget_create(0, &newer.known.budget, NULL));
    newer.known.struct_size = offsetof(spw_context_options, pool);
    newer.known.pool = (spw_pool_use)3; /* which is not looked at */
    assert_ok(spw_context_create(&newer.known, &context, NULL));
    spw_context_unref(context);
    newer.known.pool = SPW_POOL_OFF;
    newer.known.struct_size = sizeof newer;
    assert_ok(spw_context_create(&newer.known, &context, NULL));
    spw_context_unref(context);
    newer.unknown = 1;
    refuse(&newer.known, "only a newer libspillway knows");
    spw_budget_free(newer.known.budget);
}

static void without_memory_there_is_no_context(void **state)
{
    (void)state;
    counting_allocator allocator = {.fail_at = 1};
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    assert_ok(spw_budget_create(0, &options.budget, NULL));
    options.allocator = counting_allocator_hook(&allocator);
    spw_context *context = UNTOUCHED;
    assert_status(spw_context_create(&options, &context, NULL), NO_MEMORY);
    assert_ptr_equal(context, UNTOUCHED);
    assert_int_equal(allocator.live_blocks, 0);
    spw_budget_free(options.budget);
}

static void zero_limits_are_defaults_and_others_stay(void **state)
{
    (void)state;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    assert_ok(spw_budget_create(0, &options.budget, NULL));
    options.limits.bytes_per_message = 5;
    spw_context *context;
    assert_ok(spw_context_create(&options, &context, NULL));
    assert_int_equal(context->limits.frames_per_message, 1 << 24);
    assert_int_equal(context->limits.bytes_per_message, 5);
    assert_int_equal(context->limits.sub_header_bytes, UINT64_C(1) << 31);
    assert_ptr_equal(spw_context_budget(context), options.budget);
    spw_context_unref(context);
    spw_budget_free(options.budget);
}

static void the_last_reference_ends_it(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    assert_ptr_equal(spw_context_ref(counted.context), counted.context);
    spw_context_unref(counted.context);
    assert_int_equal(counted.allocator.live_blocks, 1);
    counted_context_close(&counted);
    spw_context_unref(NULL);
}

static void the_systems_memory_is_aligned_as_asked(void **state)
{
    (void)state;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    assert_ok(spw_budget_create(0, &options.budget, NULL));
    spw_context *context;
    assert_ok(spw_context_create(&options, &context, NULL));
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        char *block = spw__allocate(context, 100, alignment);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % alignment, 0);
        memset(block, 1, 100);
        spw__release(context, block, 100, alignment);
    }
    spw__release(context, NULL, 100, 8);
    spw_context_unref(context);
    spw_budget_free(options.budget);
}

static void what_is_counted_is_read(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    for (int i = 0; i < SPW__FIGURE_COUNT; i++)
        spw__count(counted.context, (spw__figure)i, (uint64_t)i + 1);
    spw_context_count_copy(counted.context, SPW_COPY_METADATA, 100);
    spw_context_count_copy(counted.context, SPW_COPY_METADATA, 11);
    spw_figures figures;
    spw_context_read_figures(counted.context, &figures);
    assert_int_equal(figures.messages_sent, 1);
    assert_int_equal(figures.messages_received, 2);
    assert_int_equal(figures.bytes_sent, 3);
    assert_int_equal(figures.bytes_received, 4);
    assert_int_equal(figures.connections_opened, 5);
    assert_int_equal(figures.connections_closed, 6);
    assert_int_equal(figures.connections_failed, 7);
    assert_int_equal(figures.connections_tuned, 8);
    assert_int_equal(figures.host_meetings, 9);
    assert_int_equal(figures.host_refusals, 10);
    assert_int_equal(figures.host_bytes_sent, 11);
    assert_int_equal(figures.host_bytes_by_address, 12);
    assert_int_equal(figures.host_bytes_by_descriptor, 13);
    assert_int_equal(figures.host_bytes_by_stream, 14);
    assert_int_equal(figures.regions_recycled, 15);
    assert_int_equal(figures.regions_added, 16);
    for (int i = 0; i < SPW_COPY_REASON_COUNT; i++) {
        assert_int_equal(figures.copies[i], i == SPW_COPY_METADATA ? 2 : 0);
        assert_int_equal(figures.copied_bytes[i], i == SPW_COPY_METADATA ? 111 : 0);
    }
    counted_context_close(&counted);
}

static void every_reason_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < SPW_COPY_REASON_COUNT; i++) {
        const char *name = spw_copy_reason_name((spw_copy_reason)i);
        assert_non_null(name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, spw_copy_reason_name((spw_copy_reason)j));
    }
    assert_string_equal(spw_copy_reason_name(SPW_COPY_REASON_COUNT), "unknown");
    assert_string_equal(spw_copy_reason_name((spw_copy_reason)-1), "unknown");
}

static void growing_keeps_what_is_there(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    uint32_t *array = NULL;
    size_t capacity = 0, count = 0;
    assert_ok(spw__grow(counted.context, &array, &capacity, 0, sizeof *array, NULL));
    assert_null(array);
    while (count < 10000) {
        assert_ok(spw__grow(counted.context, &array, &capacity, count + 1,
                            sizeof *array, NULL));
        array[count] = (uint32_t)count;
        count++;
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(array[i], i);
    /* By half each time: from 8 to 10,000 that is 19 steps. */
    assert_in_range(counted.allocator.calls, 1, 25);
    spw__release(counted.context, array, capacity * sizeof *array, sizeof(void *));
    counted_context_close(&counted);
}

static void a_failed_growth_changes_nothing(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    uint64_t *array = NULL;
    size_t capacity = 0;
    assert_ok(spw__grow(counted.context, &array, &capacity, 8, sizeof *array, NULL));
    uint64_t *const before = array;
    array[7] = 7;
    counted_context_fail_at(&counted, 1);
    spw_error error;
    assert_status(
        spw__grow(counted.context, &array, &capacity, 9, sizeof *array, &error),
        NO_MEMORY);
    assert_non_null(strstr(error.message, "12 items of 8 bytes"));
    counted_context_fail_at(&counted, 0);
    assert_status(spw__grow(counted.context, &array, &capacity, SIZE_MAX / 4, 8, NULL),
                  NO_MEMORY);
    assert_ptr_equal(array, before);
    assert_int_equal(capacity, 8);
    assert_int_equal(array[7], 7);
    spw__release(counted.context, array, 8 * sizeof *array, sizeof(void *));
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(options_of_another_version_are_read_as_far_as_they_are_known),
        cmocka_unit_test(without_memory_there_is_no_context),
        cmocka_unit_test(zero_limits_are_defaults_and_others_stay),
        cmocka_unit_test(the_last_reference_ends_it),
        cmocka_unit_test(the_systems_memory_is_aligned_as_asked),
        cmocka_unit_test(what_is_counted_is_read),
        cmocka_unit_test(every_reason_has_a_name_of_its_own),
        cmocka_unit_test(growing_keeps_what_is_there),
        cmocka_unit_test(a_failed_growth_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
