#include "spillway/buffer.h"

#include <string.h>

#include "counted_context.h"
#include "memory/buffer_discard.h"
#include "memory/place.h"
#include "platform/memory_map.h"
#include "testing.h"
#include "torture.h"

static spw_buffer *const UNTOUCHED = (spw_buffer *)16;

static void count_release(void *user)
{
    ++*(int *)user;
}

static void our_own_memory_is_aligned_charged_and_writeable(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    static const size_t SIZES[] = {0, 1, 63, 64, 65, 4096, 5 << 20};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        spw_buffer *buffer;
        assert_ok(spw_buffer_create(counted.context, SIZES[i], SPW_CHARGE_IN_FLIGHT,
                                    &buffer, NULL));
        assert_non_null(spw_buffer_data(buffer));
        assert_int_equal((uintptr_t)spw_buffer_data(buffer) % SPW_BUFFER_ALIGNMENT, 0);
        assert_int_equal(spw_buffer_size(buffer), SIZES[i]);
        assert_true(spw_buffer_is_writeable(buffer));
        memset(spw_buffer_data(buffer), 1, SIZES[i]);
        assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_IN_FLIGHT),
                         SIZES[i]);
        spw_buffer_unref(buffer);
        counted_context_check_uncharged(&counted);
    }
    counted_context_close(&counted);
}

static void a_charge_moves_with_its_buffer(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer;
    assert_ok(
        spw_buffer_create(counted.context, 100, SPW_CHARGE_IN_FLIGHT, &buffer, NULL));
    spw_buffer_recharge(buffer, SPW_CHARGE_IN_FLIGHT);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_IN_FLIGHT), 100);
    spw_buffer_recharge(buffer, SPW_CHARGE_HELD);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_IN_FLIGHT), 0);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 100);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

static void over_the_budget_nothing_is_allocated(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 100);
    uint64_t calls = counted.allocator.calls;
    spw_buffer *buffer = UNTOUCHED;
    assert_status(
        spw_buffer_create(counted.context, 101, SPW_CHARGE_HELD, &buffer, NULL),
        LIMIT_EXCEEDED);
    assert_ptr_equal(buffer, UNTOUCHED);
    assert_int_equal(counted.allocator.calls, calls);
    counted_context_close(&counted);
}

static void the_last_reference_ends_it(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer;
    assert_ok(spw_buffer_create(counted.context, 9, SPW_CHARGE_HELD, &buffer, NULL));
    assert_ptr_equal(spw_buffer_ref(buffer), buffer);
    spw_buffer_unref(buffer);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 9);
    spw_buffer_unref(buffer);
    spw_buffer_unref(NULL);
    counted_context_close(&counted);
}

static void a_buffer_outlives_its_owners_context(void **state)
{
    (void)state;
    counting_allocator allocator = {0};
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.allocator = counting_allocator_hook(&allocator);
    assert_ok(spw_budget_create(0, &options.budget, NULL));
    spw_context *context;
    assert_ok(spw_context_create(&options, &context, NULL));
    spw_buffer *buffer;
    assert_ok(spw_buffer_create(context, 9, SPW_CHARGE_HELD, &buffer, NULL));
    spw_context_unref(context);
    assert_true(allocator.live_blocks > 0);
    spw_buffer_unref(buffer);
    assert_int_equal(allocator.live_blocks, 0);
    spw_budget_free(options.budget);
}

static void wrapped_memory_is_released_once_and_never_charged(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 1);
    char memory[100];
    int released = 0;
    spw_buffer *buffer;
    assert_ok(spw_buffer_wrap(counted.context, memory, sizeof memory, false,
                              count_release, &released, &buffer, NULL));
    assert_ptr_equal(spw_buffer_data(buffer), memory);
    assert_int_equal(spw_buffer_size(buffer), sizeof memory);
    assert_false(spw_buffer_is_writeable(buffer));
    spw_buffer_recharge(buffer, SPW_CHARGE_QUEUED);
    counted_context_check_uncharged(&counted);
    spw_buffer_ref(buffer);
    spw_buffer_unref(buffer);
    assert_int_equal(released, 0);
    spw_buffer_unref(buffer);
    assert_int_equal(released, 1);
    assert_ok(spw_buffer_wrap(counted.context, memory, sizeof memory, true,
                              count_release, &released, &buffer, NULL));
    assert_true(spw_buffer_is_writeable(buffer));
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

static void a_failed_wrap_does_not_release(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    char memory[4];
    int released = 0;
    spw_buffer *buffer = UNTOUCHED;
    assert_status(
        spw_buffer_wrap(counted.context, memory, 4, true, NULL, NULL, &buffer, NULL),
        INVALID_ARGUMENT);
    assert_status(spw_buffer_wrap(counted.context, NULL, 4, true, count_release,
                                  &released, &buffer, NULL),
                  INVALID_ARGUMENT);
    counted_context_fail_at(&counted, 1);
    assert_status(spw_buffer_wrap(counted.context, memory, 4, true, count_release,
                                  &released, &buffer, NULL),
                  NO_MEMORY);
    assert_ptr_equal(buffer, UNTOUCHED);
    assert_int_equal(released, 0);
    counted_context_close(&counted);
}

/* An exporter may have no address for nothing; arithmetic on NULL is undefined, and
 * importers do not take it. */
static void bug_wrapped_nothing_had_no_address(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    int released = 0;
    spw_buffer *buffer;
    assert_ok(spw_buffer_wrap(counted.context, NULL, 0, true, count_release, &released,
                              &buffer, NULL));
    assert_non_null(spw_buffer_data(buffer));
    assert_int_equal(spw_buffer_size(buffer), 0);
    spw_buffer_unref(buffer);
    assert_int_equal(released, 1);
    counted_context_close(&counted);
}

static spw_status make_three(spw_context *context, spw_error *error)
{
    spw_buffer *buffers[3] = {NULL};
    char memory[8];
    int released = 0;
    spw_status status =
        spw_buffer_create(context, 10, SPW_CHARGE_HELD, &buffers[0], error);
    if (status == SPW_STATUS_OK)
        status =
            spw_buffer_create(context, 0, SPW_CHARGE_IN_FLIGHT, &buffers[1], error);
    if (status == SPW_STATUS_OK)
        status = spw_buffer_wrap(context, memory, sizeof memory, true, count_release,
                                 &released, &buffers[2], error);
    for (int i = 0; i < 3; i++)
        spw_buffer_unref(buffers[i]);
    assert_int_equal(released, status == SPW_STATUS_OK);
    return status;
}

static void buffers_come_and_go(void **state)
{
    torture *t = *state;
    t->status = make_three(t->context, &t->error);
}

static uint64_t charged_at_release;

static void note_charge(spw__place *place)
{
    const counted_context *counted = *(counted_context **)(place + 1);
    charged_at_release = 1 + counted_context_charged(counted, SPW_CHARGE_HELD);
}

static void a_place_is_given_up_behind_the_memory(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    struct {
        spw__place place;
        counted_context *counted;
    } held = {{.references = 1, .release = note_charge}, &counted};
    spw_buffer *buffer;
    charged_at_release = 0;
    assert_ok(spw_buffer_create(counted.context, 1000, SPW_CHARGE_HELD, &buffer, NULL));
    assert_null(spw__buffer_place(buffer));
    spw__buffer_hold(buffer, &held.place);
    assert_ptr_equal(spw__buffer_place(buffer), &held.place);
    spw_buffer_unref(spw_buffer_ref(buffer));
    assert_int_equal(charged_at_release, 0);
    spw_buffer_unref(buffer);
    assert_int_equal(charged_at_release, 1);
    counted_context_close(&counted);
}

/* Of a region of a slab, and of one with a mapping of its own. */
static void discarded_pages_are_gone_and_not_charged(void **state)
{
    (void)state;
    static const size_t SIZES[] = {100000, 5 << 20};
    size_t page = spw__memory_page_bytes();
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        counted_context counted;
        spw_buffer *buffer;
        size_t size = SIZES[i];
        counted_context_open_pool(&counted, 0);
        assert_ok(
            spw_buffer_create(counted.context, size, SPW_CHARGE_HELD, &buffer, NULL));
        unsigned char *data = spw_buffer_data(buffer);
        size_t lead = (size_t)(-(uintptr_t)data) % page;
        memset(data, 1, size);
        /* Nothing while others look, nothing but whole pages, nothing outside. */
        spw_buffer_ref(buffer);
        assert_int_equal(spw__buffer_discard(buffer, 0, size, NULL), 0);
        spw_buffer_unref(buffer);
        assert_int_equal(
            spw__buffer_discard(buffer, lead + page + 1, lead + 3 * page - 1, NULL), 0);
        assert_int_equal(spw__buffer_discard(buffer, 0, size + 1, NULL), 0);
        assert_int_equal(spw__buffer_discard(buffer, 5, 5, NULL), 0);
        size_t gone =
            spw__buffer_discard(buffer, lead + page + 1, lead + 4 * page + 1, NULL);
        assert_int_equal(gone, 2 * page);
        assert_int_equal(data[lead + 2 * page - 1], 1);
        assert_int_equal(data[lead + 2 * page], 0);
        assert_int_equal(data[lead + 4 * page - 1], 0);
        assert_int_equal(data[lead + 4 * page], 1);
        assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD),
                         size - gone);
        spw_buffer_recharge(buffer, SPW_CHARGE_IN_FLIGHT);
        assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 0);
        assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_IN_FLIGHT),
                         size - gone);
        spw_buffer_unref(buffer);
        /* It was cold, so that the pool has kept nothing of it. */
        counted_context_check_uncharged(&counted);
        assert_ok(
            spw_buffer_create(counted.context, size, SPW_CHARGE_HELD, &buffer, NULL));
        assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), size);
        memset(spw_buffer_data(buffer), 2, size);
        spw_buffer_unref(buffer);
        counted_context_close(&counted);
    }
}

/* Beside others that live, and are warm. */
static void a_cold_region_leaves_its_neighbours(void **state)
{
    (void)state;
    enum { COUNT = 8, SIZE = 100000 };
    counted_context counted;
    spw_buffer *buffers[COUNT];
    counted_context_open_pool(&counted, 0);
    for (int i = 0; i < COUNT; i++) {
        assert_ok(spw_buffer_create(counted.context, SIZE, SPW_CHARGE_HELD, &buffers[i],
                                    NULL));
        memset(spw_buffer_data(buffers[i]), i, SIZE);
    }
    for (int i = 0; i < COUNT; i += 2) {
        assert_true(spw__buffer_discard(buffers[i], 0, SIZE, NULL) > 0);
        spw_buffer_unref(buffers[i]);
    }
    for (int i = 1; i < COUNT; i += 2) {
        const unsigned char *data = spw_buffer_data(buffers[i]);
        assert_int_equal(data[0], i);
        assert_int_equal(data[SIZE - 1], i);
        spw_buffer_unref(buffers[i]);
    }
    counted_context_close(&counted);
}

static void other_memory_is_not_discarded(void **state)
{
    (void)state;
    static char foreign[3 * 65536];
    int released = 0;
    counted_context counted;
    spw_buffer *buffer;
    counted_context_open(&counted, 0, 0); /* no pool */
    assert_ok(spw_buffer_create(counted.context, sizeof foreign, SPW_CHARGE_HELD,
                                &buffer, NULL));
    assert_int_equal(spw__buffer_discard(buffer, 0, sizeof foreign, NULL), 0);
    spw_buffer_unref(buffer);
    assert_ok(spw_buffer_wrap(counted.context, foreign, sizeof foreign, true,
                              count_release, &released, &buffer, NULL));
    assert_int_equal(spw__buffer_discard(buffer, 0, sizeof foreign, NULL), 0);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(discarded_pages_are_gone_and_not_charged),
        cmocka_unit_test(a_cold_region_leaves_its_neighbours),
        cmocka_unit_test(other_memory_is_not_discarded),
        cmocka_unit_test(a_place_is_given_up_behind_the_memory),
        cmocka_unit_test(our_own_memory_is_aligned_charged_and_writeable),
        cmocka_unit_test(a_charge_moves_with_its_buffer),
        cmocka_unit_test(over_the_budget_nothing_is_allocated),
        cmocka_unit_test(the_last_reference_ends_it),
        cmocka_unit_test(a_buffer_outlives_its_owners_context),
        cmocka_unit_test(wrapped_memory_is_released_once_and_never_charged),
        cmocka_unit_test(a_failed_wrap_does_not_release),
        cmocka_unit_test(bug_wrapped_nothing_had_no_address),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(buffers_come_and_go)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("buffer", scenarios);
}
