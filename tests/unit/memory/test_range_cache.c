#include "memory/range_cache.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

/* Addresses that nobody reads or writes. */
static char *at(size_t mib)
{
    return (char *)(uintptr_t)((1 << 20) * MIB + mib * MIB);
}

static spw__range_cache *make(void)
{
    spw__range_cache *cache = calloc(1, sizeof *cache);
    assert_non_null(cache);
    return cache;
}

static void put(spw__range_cache *cache, size_t mib, size_t size, uint64_t since_ms)
{
    const spw__range range = {at(mib), size, since_ms};
    assert_true(spw__range_cache_put(cache, &range));
}

static void take(spw__range_cache *cache, size_t size, size_t mib, size_t given)
{
    spw__range range;
    assert_true(spw__range_cache_take(cache, size, &range));
    assert_ptr_equal(range.start, at(mib));
    assert_int_equal(range.size, given);
}

static void take_none(spw__range_cache *cache, size_t size)
{
    spw__range range = {NULL, 1, 2};
    assert_false(spw__range_cache_take(cache, size, &range));
    assert_int_equal(range.size, 1);
}

/* The invariant. */
static void check(const spw__range_cache *cache)
{
    size_t bytes = 0;
    for (size_t i = 0; i < cache->count; i++) {
        const spw__range *range = &cache->ranges[i];
        assert_true(range->size > 0);
        assert_int_equal((uintptr_t)range->start % PAGE, 0);
        if (i > 0)
            assert_true(range[-1].start + range[-1].size < range->start);
        bytes += range->size;
    }
    assert_int_equal(cache->bytes, bytes);
}

static void the_smallest_that_fits_is_taken(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    put(cache, 0, 64 * MIB, 1);
    put(cache, 100, 8 * MIB, 2);
    put(cache, 200, 9 * MIB, 3);
    put(cache, 300, 7 * MIB, 4);
    check(cache);
    take(cache, 8 * MIB, 100, 8 * MIB);
    take(cache, 8 * MIB, 200, 8 * MIB);
    take(cache, 7 * MIB - 1, 300, 7 * MIB);
    check(cache);
    take(cache, 64 * MIB, 0, 64 * MIB);
    assert_int_equal(cache->count, 1);
    assert_int_equal(cache->bytes, MIB);
    take_none(cache, 1);
    free(cache);
}

static void an_eighth_may_be_wasted_and_no_more(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    put(cache, 0, 9 * MIB, 1);
    take(cache, 8 * MIB, 0, 8 * MIB);
    put(cache, 0, 8 * MIB, 1);
    take(cache, 9 * MIB - 15 * PAGE, 0, 9 * MIB);
    put(cache, 0, 9 * MIB, 1);
    /* Whole huge pages for it would be 8 MiB, and that wastes too much as well. */
    take_none(cache, 7 * MIB - PAGE);
    take_none(cache, 9 * MIB + 1);
    take_none(cache, 2 * MIB + PAGE);
    take(cache, 2 * MIB - PAGE, 0, 2 * MIB);
    take(cache, 4 * MIB, 2, 4 * MIB);
    take(cache, 3 * MIB, 6, 3 * MIB);
    assert_int_equal(cache->count, 0);
    free(cache);
}

static void what_is_cut_off_keeps_its_age(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    put(cache, 0, 256 * MIB, 5);
    take(cache, 63 * MIB, 0, 64 * MIB);
    check(cache);
    assert_int_equal(cache->bytes, 192 * MIB);
    assert_int_equal(spw__range_cache_oldest_ms(cache), 5);
    take(cache, 192 * MIB, 64, 192 * MIB);
    free(cache);
}

/* Such a one is there to be moved, or to be joined with what is before it. */
static void what_begins_within_a_huge_page_is_not_given(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    put(cache, 3, 5 * MIB, 1);
    take_none(cache, 5 * MIB);
    assert_ptr_equal(spw__range_cache_take_end(cache, MIB), at(7));
    put(cache, 2, MIB, 2);
    take(cache, 5 * MIB, 2, 5 * MIB);
    free(cache);
}

static void an_end_of_the_oldest_is_taken(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    put(cache, 0, 4 * MIB, 7);
    put(cache, 8, 2 * MIB, 5);
    put(cache, 16, 6 * MIB, 6);
    assert_null(spw__range_cache_take_end(cache, 6 * MIB + PAGE));
    assert_ptr_equal(spw__range_cache_take_end(cache, MIB + PAGE), at(9) - PAGE);
    assert_ptr_equal(spw__range_cache_take_end(cache, 2 * MIB), at(20));
    assert_ptr_equal(spw__range_cache_take_end(cache, MIB - PAGE), at(8));
    check(cache);
    take(cache, 4 * MIB - PAGE, 0, 4 * MIB); /* both fit, and neither is smaller */
    take(cache, 4 * MIB, 16, 4 * MIB);
    assert_int_equal(cache->bytes, 0);
    free(cache);
}

static void ranges_that_touch_become_one_as_old_as_the_older(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    put(cache, 4, 2 * MIB, 30);
    put(cache, 8, 2 * MIB, 10);
    put(cache, 12, 2 * MIB, 20);
    assert_int_equal(cache->count, 3);
    put(cache, 6, 2 * MIB, 40); /* joins both sides */
    check(cache);
    assert_int_equal(cache->count, 2);
    put(cache, 14, 2 * MIB, 5); /* the left side */
    put(cache, 2, 2 * MIB, 50); /* the right side */
    check(cache);
    assert_int_equal(cache->count, 2);
    spw__range range;
    assert_true(spw__range_cache_take_oldest(cache, &range));
    assert_ptr_equal(range.start, at(12));
    assert_int_equal(range.size, 4 * MIB);
    assert_int_equal(range.idle_since_ms, 5);
    assert_true(spw__range_cache_take_oldest(cache, &range));
    assert_ptr_equal(range.start, at(2));
    assert_int_equal(range.size, 8 * MIB);
    assert_int_equal(range.idle_since_ms, 10);
    assert_false(spw__range_cache_take_oldest(cache, &range));
    assert_int_equal(spw__range_cache_oldest_ms(cache), UINT64_MAX);
    assert_int_equal(cache->bytes, 0);
    free(cache);
}

static void a_full_table_takes_only_what_joins(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    for (size_t i = 0; i < SPW__RANGES_MAX; i++)
        put(cache, 4 * i, 2 * MIB, i + 1);
    const spw__range apart = {at(4 * SPW__RANGES_MAX), 2 * MIB, 1};
    assert_false(spw__range_cache_put(cache, &apart));
    assert_int_equal(cache->bytes, SPW__RANGES_MAX * 2 * MIB);
    put(cache, 2, 2 * MIB, 1);
    assert_int_equal(cache->count, SPW__RANGES_MAX - 1);
    assert_true(spw__range_cache_put(cache, &apart));
    check(cache);
    free(cache);
}

/* Against a map of whose turn each huge page is. */
enum { UNITS = 256, STEPS = 20000, LIVE_MAX = 64 };

static void nothing_is_given_twice_and_nothing_is_lost(void **state)
{
    (void)state;
    spw__range_cache *cache = make();
    bool is_live[UNITS];
    spw__range live[LIVE_MAX];
    size_t live_count = 0, live_bytes = 0;
    unsigned seed = 1;
    memset(is_live, 0, sizeof is_live);
    put(cache, 0, UNITS * 2 * MIB, 1);
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1103515245 + 12345;
        size_t size = (1 + (seed >> 8) % 24) * MIB - (seed >> 16) % 2 * PAGE;
        spw__range range;
        if ((seed >> 20) % 2 == 0 && live_count < LIVE_MAX &&
            spw__range_cache_take(cache, size, &range)) {
            assert_true(spw__fits(range.size, size));
            size_t first = (size_t)(range.start - at(0)) / (2 * MIB);
            for (size_t i = 0; i * 2 * MIB < range.size; i++) {
                assert_false(is_live[first + i]);
                is_live[first + i] = true;
            }
            live[live_count++] = range;
            live_bytes += range.size;
        } else if (live_count > 0) {
            size_t which = (seed >> 4) % live_count;
            range = live[which];
            live[which] = live[--live_count];
            size_t first = (size_t)(range.start - at(0)) / (2 * MIB);
            for (size_t i = 0; i * 2 * MIB < range.size; i++)
                is_live[first + i] = false;
            live_bytes -= range.size;
            assert_true(spw__range_cache_put(cache, &range));
        }
        check(cache);
        assert_int_equal(cache->bytes + live_bytes, UNITS * 2 * MIB);
    }
    while (live_count > 0)
        assert_true(spw__range_cache_put(cache, &live[--live_count]));
    assert_int_equal(cache->count, 1);
    take(cache, UNITS * 2 * MIB, 0, UNITS * 2 * MIB);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_that_fits_is_taken),
        cmocka_unit_test(an_eighth_may_be_wasted_and_no_more),
        cmocka_unit_test(what_is_cut_off_keeps_its_age),
        cmocka_unit_test(what_begins_within_a_huge_page_is_not_given),
        cmocka_unit_test(an_end_of_the_oldest_is_taken),
        cmocka_unit_test(ranges_that_touch_become_one_as_old_as_the_older),
        cmocka_unit_test(a_full_table_takes_only_what_joins),
        cmocka_unit_test(nothing_is_given_twice_and_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
