#include "memory/slab.h"

#include <stdlib.h>
#include <string.h>

#include "counted_context.h"
#include "memory/range_cache.h"
#include "platform/memory_map.h"
#include "testing.h"

typedef struct fixture {
    counted_context counted;
    spw__slab *slab;
} fixture;

static void open_slab(fixture *f, size_t size)
{
    counted_context_open(&f->counted, 0, 0);
    void *memory;
    assert_int_equal(spw__memory_map(SPW__SLAB_BYTES, SPW__PAGES_SMALL, &memory), 0);
    f->slab = spw__slab_create(f->counted.context, spw__slab_class_of(size), memory);
    assert_non_null(f->slab);
}

static void close_slab(fixture *f)
{
    spw__slab_free(f->slab, f->counted.context);
    counted_context_close(&f->counted);
}

static char *take(fixture *f, bool expected_warm)
{
    bool is_warm;
    char *data = spw__slab_take(f->slab, &is_warm);
    assert_int_equal(is_warm, expected_warm);
    return data;
}

static void each_size_has_the_smallest_class_that_holds_it(void **state)
{
    (void)state;
    unsigned last = 0;
    for (size_t size = SPW__SLAB_FROM_BYTES; size < SPW__SLAB_BELOW_BYTES; size++) {
        unsigned size_class = spw__slab_class_of(size);
        size_t bytes = spw__slab_class_bytes(size_class);
        assert_true(spw__fits(bytes, size));
        assert_true(size_class == last || size_class == last + 1);
        if (size_class > last) {
            assert_true(spw__slab_class_bytes(last) < size);
            assert_int_equal(bytes % 64, 0);
        }
        last = size_class;
    }
    assert_int_equal(last, SPW__SLAB_CLASS_COUNT - 1);
    assert_int_equal(spw__slab_class_bytes(0), SPW__SLAB_FROM_BYTES);
    assert_int_equal(spw__slab_class_bytes(spw__slab_class_of(65536)), 65536);
}

static void cold_items_come_in_order_and_the_last_put_comes_first(void **state)
{
    (void)state;
    fixture f;
    open_slab(&f, 65536);
    char *items[3];
    for (int i = 0; i < 3; i++) {
        items[i] = take(&f, false);
        assert_ptr_equal(items[i], f.slab->memory + i * 65536);
    }
    spw__slab_put(f.slab, items[0], 1);
    spw__slab_put(f.slab, items[2], 2);
    assert_int_equal(f.slab->warm, 2);
    assert_int_equal(f.slab->live, 1);
    assert_ptr_equal(take(&f, true), items[2]);
    assert_ptr_equal(take(&f, true), items[0]);
    assert_ptr_equal(take(&f, false), f.slab->memory + 3 * 65536);
    close_slab(&f);
}

static void every_item_is_another_and_then_it_is_full(void **state)
{
    (void)state;
    static const size_t SIZES[] = {4096, 5000, 70000, 1 << 20, (2 << 20) - 1};
    for (size_t s = 0; s < COUNT_OF(SIZES); s++) {
        fixture f;
        open_slab(&f, SIZES[s]);
        uint32_t count = f.slab->count;
        assert_int_equal(count, SPW__SLAB_BYTES / f.slab->item_bytes);
        char *last = NULL;
        for (uint32_t i = 0; i < count; i++) {
            assert_false(spw__slab_is_full(f.slab));
            char *data = take(&f, false);
            assert_int_equal((uintptr_t)data % 64, 0);
            assert_true(last == NULL || data >= last + SIZES[s]);
            data[0] = data[SIZES[s] - 1] = (char)i;
            last = data;
        }
        assert_true(last + SIZES[s] <= f.slab->memory + SPW__SLAB_BYTES);
        assert_true(spw__slab_is_full(f.slab));
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(f.slab->memory[i * f.slab->item_bytes], (char)i);
        close_slab(&f);
    }
}

/* Items 0 to count - 1 are taken, filled, and put back at time i + 1. */
static void fill_and_put(fixture *f, uint32_t count)
{
    char *items[64];
    assert_true(count <= COUNT_OF(items));
    for (uint32_t i = 0; i < count; i++) {
        items[i] = take(f, false);
        memset(items[i], (int)i + 1, f->slab->item_bytes);
    }
    for (uint32_t i = 0; i < count; i++)
        spw__slab_put(f->slab, items[i], i + 1);
}

static void assert_run(const spw__slab_run *run, uint32_t first, uint32_t end,
                       uint32_t warm)
{
    assert_int_equal(run->first, first);
    assert_int_equal(run->end, end);
    assert_int_equal(run->warm, warm);
}

static void runs_are_of_free_items_of_which_some_are_due(void **state)
{
    (void)state;
    fixture f;
    open_slab(&f, 65536);
    spw__slab_run run;
    uint32_t oldest_ms = 0, count = f.slab->count;
    assert_false(spw__slab_next_run(f.slab, 0, 100, 0, &oldest_ms, &run));
    fill_and_put(&f, 6);
    /* At 103 items 0 to 2 are idle for 100 ms and more. */
    assert_true(spw__slab_next_run(f.slab, 0, 103, 100, &oldest_ms, &run));
    assert_run(&run, 0, 3, 3);
    assert_false(spw__slab_next_run(f.slab, run.end, 103, 100, &oldest_ms, &run));
    assert_int_equal(oldest_ms, 99);
    /* 5 and 4 go, the last come first; what follows item 5 is cold. */
    char *five = take(&f, true), *four = take(&f, true);
    assert_true(spw__slab_next_run(f.slab, 0, 1000, 0, &oldest_ms, &run));
    assert_run(&run, 0, 4, 4);
    assert_false(spw__slab_next_run(f.slab, run.end, 1000, 0, &oldest_ms, &run));
    spw__slab_put(f.slab, five, 1000);
    assert_true(spw__slab_next_run(f.slab, run.end, 1000, 0, &oldest_ms, &run));
    assert_run(&run, 5, count, 1);
    spw__slab_put(f.slab, four, 1000);
    assert_true(spw__slab_next_run(f.slab, 0, 1000, 0, &oldest_ms, &run));
    assert_run(&run, 0, count, 6);
    close_slab(&f);
}

static void ages_are_right_when_the_clock_wraps_around(void **state)
{
    (void)state;
    fixture f;
    open_slab(&f, 65536);
    char *item = take(&f, false);
    spw__slab_put(f.slab, item, UINT32_MAX - 5);
    spw__slab_run run;
    uint32_t oldest_ms = 0;
    assert_false(spw__slab_next_run(f.slab, 0, 4, 11, &oldest_ms, &run));
    assert_int_equal(oldest_ms, 10);
    assert_true(spw__slab_next_run(f.slab, 0, 5, 11, &oldest_ms, &run));
    close_slab(&f);
}

static void a_discarded_run_leaves_its_neighbours_alone(void **state)
{
    (void)state;
    /* 4.5 KiB: no two items begin alike on their pages. */
    static const size_t SIZES[] = {4096, 4608, 65536};
    for (size_t s = 0; s < COUNT_OF(SIZES); s++) {
        fixture f;
        open_slab(&f, SIZES[s]);
        char *first = take(&f, false);
        memset(first, 100, SIZES[s]);
        fill_and_put(&f, 8); /* items 1 to 8 */
        char *last = NULL;
        for (int i = 0; i < 3; i++)
            last = take(&f, true); /* items 8, 7, 6 */
        memset(last, 101, SIZES[s]);
        spw__slab_run run;
        uint32_t oldest_ms = 0;
        assert_true(spw__slab_next_run(f.slab, 0, 100, 0, &oldest_ms, &run));
        assert_run(&run, 1, 6, 5);
        spw__slab_take_run(f.slab, &run);
        assert_int_equal(f.slab->warm, 0);
        assert_int_equal(f.slab->live, 9);
        spw__slab_discard_run(f.slab, &run);
        spw__slab_put_run(f.slab, &run);
        assert_int_equal(f.slab->live, 4);
        for (size_t i = 0; i < SIZES[s]; i++) {
            assert_int_equal(first[i], 100);
            assert_int_equal(last[i], 101);
        }
        /* The middle of the run is on pages of its own. */
        assert_int_equal(first[3 * SIZES[s]], 0);
        assert_ptr_equal(take(&f, false), first + SIZES[s]);
        close_slab(&f);
    }
}

static void without_memory_for_its_table_there_is_none(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    void *memory;
    assert_int_equal(spw__memory_map(SPW__SLAB_BYTES, SPW__PAGES_SMALL, &memory), 0);
    counted_context_fail_at(&counted, 1);
    assert_null(spw__slab_create(counted.context, 0, memory));
    spw__memory_unmap(memory, SPW__SLAB_BYTES);
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_size_has_the_smallest_class_that_holds_it),
        cmocka_unit_test(cold_items_come_in_order_and_the_last_put_comes_first),
        cmocka_unit_test(every_item_is_another_and_then_it_is_full),
        cmocka_unit_test(runs_are_of_free_items_of_which_some_are_due),
        cmocka_unit_test(ages_are_right_when_the_clock_wraps_around),
        cmocka_unit_test(a_discarded_run_leaves_its_neighbours_alone),
        cmocka_unit_test(without_memory_for_its_table_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
