#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "counted_context.h"
#include "fake_system.h"
#include "io_fault.h"
#include "memory/slab.h"
#include "platform/memory_map.h"
#include "platform/process.h"
#include "spillway/buffer.h"
#include "spillway/pool.h"
#include "testing.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Each test begins at this time. */
enum { START_MS = 100000 };

static int set_clock(void **state)
{
    (void)state;
    fake_clock_set(START_MS);
    return 0;
}

static int reset_system(void **state)
{
    (void)state;
    fake_clock_set(0);
    fake_resident_set(0);
    return 0;
}

static spw_buffer *make(const counted_context *counted, size_t size)
{
    spw_buffer *buffer;
    assert_ok(
        spw_buffer_create(counted->context, size, SPW_CHARGE_HELD, &buffer, NULL));
    return buffer;
}

static uint64_t trim(const counted_context *counted, uint64_t keep_bytes,
                     uint64_t older_than_ms)
{
    uint64_t due_ms = 77;
    spw_context_trim(counted->context, keep_bytes, older_than_ms, &due_ms);
    return due_ms;
}

static uint64_t cached(const counted_context *counted)
{
    return counted_context_charged(counted, SPW_CHARGE_POOLED);
}

static void where_nothing_was_there_is_nothing_to_trim(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    assert_true(trim(&counted, 0, 1000) == SPW_TRIM_NEVER);
    spw_buffer_unref(make(&counted, 100));
    assert_true(trim(&counted, 0, 1000) == SPW_TRIM_NEVER);
    spw_context_trim(counted.context, 0, 0, NULL);
    counted_context_close(&counted);
}

static void what_is_idle_for_long_enough_goes(void **state)
{
    (void)state;
    counted_context counted;
    static const size_t SIZES[] = {64 * KIB, 4 * MIB};
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        fake_clock_set(START_MS);
        counted_context_open_pool(&counted, 0);
        spw_buffer *buffer = make(&counted, SIZES[i]);
        /* A buffer that is let go of right now is due after that long. */
        assert_int_equal(trim(&counted, 0, 1000), 1000);
        spw_buffer_unref(buffer);
        fake_clock_set(START_MS + 300);
        assert_int_equal(trim(&counted, 0, 1000), 700);
        assert_int_equal(cached(&counted), SIZES[i]);
        fake_clock_set(START_MS + 999);
        assert_int_equal(trim(&counted, 0, 1000), 1);
        assert_int_equal(cached(&counted), SIZES[i]);
        fake_clock_set(START_MS + 1000);
        assert_true(trim(&counted, 0, 1000) == SPW_TRIM_NEVER);
        assert_int_equal(cached(&counted), 0);
        assert_int_equal(io_fault_mapped_bytes(), 0);
        counted_context_close(&counted);
    }
}

static void what_is_used_again_is_not_idle(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    static const size_t SIZES[] = {64 * KIB, 4 * MIB};
    for (size_t i = 0; i < COUNT_OF(SIZES); i++)
        spw_buffer_unref(make(&counted, SIZES[i]));
    for (int round = 1; round <= 5; round++) {
        fake_clock_set(START_MS + (uint64_t)round * 900);
        for (size_t i = 0; i < COUNT_OF(SIZES); i++)
            spw_buffer_unref(make(&counted, SIZES[i]));
        assert_int_equal(trim(&counted, 0, 1000), 1000);
        assert_int_equal(cached(&counted), 64 * KIB + 4 * MIB);
    }
    counted_context_close(&counted);
}

static void so_much_may_stay_and_the_oldest_goes_first(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw_buffer *buffers[6];
    /* Every second one lives on, so that what is cached does not touch. */
    for (int i = 0; i < 6; i++)
        buffers[i] = make(&counted, 4 * MIB);
    const char *newest = spw_buffer_data(buffers[4]);
    for (int i = 0; i < 6; i += 2) {
        fake_clock_set(START_MS + 100 * (uint64_t)i);
        spw_buffer_unref(buffers[i]);
    }
    fake_clock_set(START_MS + 5000);
    assert_int_equal(trim(&counted, 12 * MIB, 1000), 1000);
    assert_int_equal(cached(&counted), 12 * MIB);
    assert_int_equal(trim(&counted, 12 * MIB - 1, 1000), 1000);
    assert_int_equal(cached(&counted), 8 * MIB);
    assert_int_equal(trim(&counted, 4 * MIB, 1000), 1000);
    assert_int_equal(cached(&counted), 4 * MIB);
    spw_buffer *again = make(&counted, 4 * MIB);
    assert_ptr_equal(spw_buffer_data(again), newest);
    spw_buffer_unref(again);
    for (int i = 1; i < 6; i += 2)
        spw_buffer_unref(buffers[i]);
    counted_context_close(&counted);
}

static size_t resident_pages(void *data, size_t size)
{
    size_t count = size / spw__memory_page_bytes(), resident = 0;
    unsigned char pages[64];
    assert_true(count <= sizeof pages);
    assert_int_equal(mincore(data, size, pages), 0);
    for (size_t i = 0; i < count; i++)
        resident += pages[i] & 1;
    return resident;
}

static void a_slab_gives_back_what_lies_between_live_items(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw_buffer *buffers[5];
    char *data[5];
    for (int i = 0; i < 5; i++) {
        buffers[i] = make(&counted, 64 * KIB);
        data[i] = spw_buffer_data(buffers[i]);
        memset(data[i], i + 1, 64 * KIB);
    }
    spw_buffer_unref(buffers[1]);
    spw_buffer_unref(buffers[3]);
    assert_int_equal(trim(&counted, 0, 0), 0);
    assert_int_equal(cached(&counted), 0);
    for (int i = 0; i < 5; i++) {
        size_t resident = resident_pages(data[i], 64 * KIB);
        if (i % 2 == 1) {
            assert_int_equal(resident, 0);
            continue;
        }
        for (size_t at = 0; at < 64 * KIB; at++)
            assert_int_equal(data[i][at], i + 1);
    }
    /* What was given back can be used again. */
    for (int i = 1; i < 5; i += 2) {
        buffers[i] = make(&counted, 64 * KIB);
        assert_true(spw_buffer_data(buffers[i]) == data[1] ||
                    spw_buffer_data(buffers[i]) == data[3]);
    }
    assert_int_equal(io_fault_mapped_bytes(), SPW__SLAB_BYTES);
    for (int i = 0; i < 5; i++)
        spw_buffer_unref(buffers[i]);
    assert_true(trim(&counted, 0, 0) == SPW_TRIM_NEVER);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    counted_context_close(&counted);
}

static void a_large_process_keeps_nothing(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw_context_limit_resident(counted.context, 1000 * MIB, 0);
    fake_resident_set(1000 * MIB);
    spw_buffer *large = make(&counted, 64 * MIB), *small = make(&counted, MIB);
    spw_buffer_unref(large);
    spw_buffer_unref(small);
    assert_int_equal(cached(&counted), 65 * MIB);
    fake_resident_set(1000 * MIB + 1);
    assert_int_equal(trim(&counted, UINT64_MAX, 1000) == SPW_TRIM_NEVER, true);
    assert_int_equal(cached(&counted), 0);
    /* Without anybody who trims it, it looks by itself. */
    fake_resident_set(1);
    large = make(&counted, 64 * MIB);
    fake_resident_set(1000 * MIB + 1);
    spw_buffer_unref(large);
    assert_int_equal(cached(&counted), 0);
    for (int i = 0; i < 64; i++)
        spw_buffer_unref(make(&counted, MIB));
    assert_true(cached(&counted) <= 32 * MIB);
    spw_context_limit_resident(counted.context, 0, 0);
    spw_buffer_unref(make(&counted, 64 * MIB));
    assert_int_equal(cached(&counted) / (64 * MIB), 1);
    counted_context_close(&counted);
}

static void no_more_is_kept_than_may_be(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw_context_limit_resident(counted.context, 0, 100 * MIB);
    spw_buffer *large = make(&counted, 128 * MIB), *older = make(&counted, 64 * MIB),
               *newer = make(&counted, 64 * MIB);
    spw_buffer_unref(large);
    assert_int_equal(cached(&counted), 0);
    spw_buffer_unref(older);
    assert_int_equal(cached(&counted), 64 * MIB);
    spw_buffer_unref(newer); /* they may be neighbours, and then one */
    assert_true(cached(&counted) <= 64 * MIB);
    for (int i = 0; i < 200; i++)
        spw_buffer_unref(make(&counted, MIB));
    assert_true(cached(&counted) <= 100 * MIB);
    counted_context_close(&counted);
}

/* The system's own word for it. */
static void what_is_trimmed_is_the_systems_again(void **state)
{
    (void)state;
    enum { SMALL = 1024 };
#ifdef __SANITIZE_THREAD__
    skip(); /* it keeps memory of its own for each byte that was touched */
#endif
    static const size_t LARGE_BYTES = 256 * MIB;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    uint64_t before = spw__process_resident_bytes();
    spw_buffer *small[SMALL], *large = make(&counted, LARGE_BYTES);
    memset(spw_buffer_data(large), 1, LARGE_BYTES);
    for (int i = 0; i < SMALL; i++) {
        small[i] = make(&counted, 64 * KIB);
        memset(spw_buffer_data(small[i]), 1, 64 * KIB);
    }
    spw_buffer_unref(large);
    for (int i = 1; i < SMALL; i++)
        spw_buffer_unref(small[i]);
    uint64_t whole = LARGE_BYTES + SMALL * 64 * KIB;
    assert_true(spw__process_resident_bytes() - before > whole / 10 * 9);
    (void)trim(&counted, 0, 0);
    uint64_t after = spw__process_resident_bytes();
    assert_true(after < before + whole / 10);
    spw_buffer_unref(small[0]);
    counted_context_close(&counted);
}

#define TRIM_TEST(function)                                                            \
    cmocka_unit_test_setup_teardown(function, set_clock, reset_system)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIM_TEST(where_nothing_was_there_is_nothing_to_trim),
        TRIM_TEST(what_is_idle_for_long_enough_goes),
        TRIM_TEST(what_is_used_again_is_not_idle),
        TRIM_TEST(so_much_may_stay_and_the_oldest_goes_first),
        TRIM_TEST(a_slab_gives_back_what_lies_between_live_items),
        TRIM_TEST(a_large_process_keeps_nothing),
        TRIM_TEST(no_more_is_kept_than_may_be),
        TRIM_TEST(what_is_trimmed_is_the_systems_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
