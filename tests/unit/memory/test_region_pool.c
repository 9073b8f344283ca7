#include "memory/region_pool.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted_context.h"
#include "fake_system.h"
#include "io_fault.h"
#include "memory/range_cache.h"
#include "platform/memory_map.h"
#include "platform/process.h"
#include "regions.h"
#include "spillway/buffer.h"
#include "spillway/pool.h"
#include "testing.h"
#include "torture.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void every_size_is_aligned_and_little_is_wasted(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    static const size_t SIZES[] = {
        0,        1,           4095,         4096,         4097,
        5000,     64 * KIB,    64 * KIB + 1, 100 * KIB,    2 * MIB - 1,
        2 * MIB,  2 * MIB + 1, 5 * MIB,      63 * MIB + 7, 64 * MIB,
        130 * MIB};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
            spw__region region = acquire(&counted, SIZES[i]);
            assert_int_equal((uintptr_t)region.data % SPW_BUFFER_ALIGNMENT, 0);
            if (SIZES[i] >= 2 * MIB)
                assert_int_equal((uintptr_t)region.data % SPW__HUGE_PAGE_BYTES, 0);
            if (SIZES[i] > 0)
                assert_true(spw__fits(region.capacity, SIZES[i]));
            memset(region.data, 1, region.capacity);
            release(&counted, &region);
        }
    }
    counted_context_close(&counted);
}

static void what_is_small_comes_from_the_allocator(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    uint64_t blocks = counted.allocator.live_blocks;
    spw__region small = acquire(&counted, SPW__SLAB_FROM_BYTES - 1);
    assert_int_equal(counted.allocator.live_blocks, blocks + 1);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    release(&counted, &small);
    assert_int_equal(counted.allocator.live_blocks, blocks);
    spw__region larger = acquire(&counted, SPW__SLAB_FROM_BYTES);
    assert_int_equal(io_fault_mapped_bytes(), SPW__SLAB_BYTES);
    release(&counted, &larger);
    counted_context_close(&counted);
}

/* The default and what was there before the pool: an allocator serves everything. */
static void a_given_allocator_has_everything_unless_told_otherwise(void **state)
{
    (void)state;
    static const struct {
        spw_pool_use pool;
        bool has_allocator, is_pooled;
    } CASES[] = {
        {SPW_POOL_DEFAULT, true, false}, {SPW_POOL_DEFAULT, false, true},
        {SPW_POOL_OFF, true, false},     {SPW_POOL_OFF, false, false},
        {SPW_POOL_ON, true, true},       {SPW_POOL_ON, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        counting_allocator allocator = {0};
        spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
        assert_ok(spw_budget_create(0, &options.budget, NULL));
        options.pool = CASES[i].pool;
        if (CASES[i].has_allocator)
            options.allocator = counting_allocator_hook(&allocator);
        spw_context *context;
        assert_ok(spw_context_create(&options, &context, NULL));
        spw_buffer *buffer;
        assert_ok(spw_buffer_create(context, 8 * MIB, SPW_CHARGE_HELD, &buffer, NULL));
        assert_int_equal(io_fault_mapped_bytes(), CASES[i].is_pooled ? 8 * MIB : 0);
        spw_buffer_unref(buffer);
        spw_context_unref(context);
        assert_int_equal(io_fault_mapped_bytes(), 0);
        assert_int_equal(allocator.live_blocks, 0);
        spw_budget_free(options.budget);
    }
}

static void what_one_leaves_the_next_one_gets(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    static const size_t SIZES[] = {64 * KIB, 64 * MIB};
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        spw__region first = acquire(&counted, SIZES[i]);
        release(&counted, &first);
        spw__region second = acquire(&counted, SIZES[i] - KIB);
        assert_ptr_equal(second.data, first.data);
        /* It is taken: another one is elsewhere. */
        spw__region third = acquire(&counted, SIZES[i]);
        assert_ptr_not_equal(third.data, first.data);
        release(&counted, &second);
        release(&counted, &third);
    }
    assert_int_equal(figures_of(&counted).regions_added, 4);
    assert_int_equal(figures_of(&counted).regions_recycled, 2);
    counted_context_close(&counted);
}

static void every_byte_is_charged_wherever_it_is(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    static const size_t SIZES[] = {57 * KIB, 3 * MIB - 5};
    uint64_t pooled = 0;
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        for (int round = 0; round < 2; round++) {
            spw__region region = acquire(&counted, SIZES[i]);
            assert_true(region.capacity > SIZES[i]);
            assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD),
                             SIZES[i]);
            assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED),
                             pooled + region.capacity - SIZES[i]);
            release(&counted, &region);
            assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 0);
            assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED),
                             pooled + region.capacity);
        }
        pooled = counted_context_charged(&counted, SPW_CHARGE_POOLED);
    }
    spw_context_trim(counted.context, 0, 0, NULL);
    counted_context_check_uncharged(&counted);
    counted_context_close(&counted);
}

static void the_budget_refuses_only_when_nothing_is_cached(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 10 * MIB);
    spw__region region = acquire(&counted, 8 * MIB), small = acquire(&counted, MIB);
    release(&counted, &region);
    release(&counted, &small);
    /* Neither a charge of ours nor one of anybody else's. */
    spw__region other = acquire(&counted, 5 * MIB);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED), 3 * MIB);
    assert_ok(spw_budget_charge(counted.budget, SPW_CHARGE_QUEUED, 5 * MIB, NULL));
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED), 0);
    spw__region none = {.size = 77};
    spw_error error;
    assert_status(
        spw__region_acquire(counted.context, 64 * KIB, SPW_CHARGE_HELD, &none, &error),
        LIMIT_EXCEEDED);
    assert_int_equal(none.size, 77);
    spw_budget_release(counted.budget, SPW_CHARGE_QUEUED, 5 * MIB);
    release(&counted, &other);
    counted_context_close(&counted);
}

static void a_failed_mapping_is_tried_again_without_the_cache(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    static const size_t SIZES[] = {64 * MIB, 64 * KIB};
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        spw__region cached = acquire(&counted, 4 * MIB);
        release(&counted, &cached);
        io_fault_arm_call("map", 1, 0);
        spw__region region = acquire(&counted, SIZES[i]);
        assert_int_equal(io_fault_calls_of("map"), 2);
        assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED), 0);
        release(&counted, &region);
    }
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    counted_context_close(&counted);
}

static void what_the_system_does_not_have_is_an_error(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw__region cached = acquire(&counted, 4 * MIB), none = {.size = 77};
    release(&counted, &cached);
    static const size_t SIZES[] = {(size_t)1 << 60, SIZE_MAX / 2 - 4096, SIZE_MAX / 2,
                                   SIZE_MAX / 2 + 1, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        spw_error error;
        assert_status(spw__region_acquire(counted.context, SIZES[i], SPW_CHARGE_HELD,
                                          &none, &error),
                      NO_MEMORY);
        assert_int_equal(none.size, 77);
        assert_non_null(strstr(error.message, "no memory for a buffer of"));
    }
    counted_context_check_uncharged(&counted);
    counted_context_close(&counted);
}

/* Regions of another size make room for one that they do not serve. */
static void the_pool_holds_no_more_than_what_lived_at_a_time(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw__region regions[8], apart[8];
    for (int i = 0; i < 8; i++) {
        regions[i] = acquire(&counted, 8 * MIB);
        apart[i] = acquire(&counted, 2 * MIB); /* so that they do not touch */
    }
    int64_t most = io_fault_mapped_bytes();
    for (int i = 0; i < 8; i++)
        release(&counted, &regions[i]);
    for (int i = 0; i < 20; i++) {
        spw__region region = acquire(&counted, (size_t)(10 + i) * 2 * MIB);
        assert_true(io_fault_mapped_bytes() <= most);
        release(&counted, &region);
    }
    for (int i = 0; i < 8; i++)
        release(&counted, &apart[i]);
    counted_context_close(&counted);
}

static void what_does_not_fit_into_the_cache_is_unmapped(void **state)
{
    (void)state;
    enum { COUNT = 2 * SPW__RANGES_MAX + 4 };
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw__region *regions = calloc(COUNT, sizeof *regions);
    assert_non_null(regions);
    for (int i = 0; i < COUNT; i++)
        regions[i] = acquire(&counted, 2 * MIB);
    for (int i = 0; i < COUNT; i += 2)
        release(&counted, &regions[i]);
    assert_int_equal(io_fault_mapped_bytes(), (COUNT - 2) * 2 * MIB);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED),
                     SPW__RANGES_MAX * 2 * MIB);
    for (int i = 1; i < COUNT; i += 2)
        release(&counted, &regions[i]);
    free(regions);
    counted_context_close(&counted);
}

static size_t lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t lines = 0;
    for (int c = getc(file); c != EOF; c = getc(file))
        lines += c == '\n';
    fclose(file);
    return lines;
}

static size_t open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    size_t count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* A process may have 65,530 mappings, and often 1,024 descriptors. */
static void a_hundred_thousand_buffers_are_few_mappings(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
#ifdef __SANITIZE_THREAD__
    skip(); /* its own mappings and memory are counted too, and are more */
#endif
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw_buffer **buffers = calloc(COUNT, sizeof(spw_buffer *));
    assert_non_null(buffers);
    uint64_t before = spw__process_resident_bytes();
    for (int i = 0; i < COUNT; i++) {
        assert_ok(spw_buffer_create(counted.context, 64 * KIB, SPW_CHARGE_HELD,
                                    &buffers[i], NULL));
        ((char *)spw_buffer_data(buffers[i]))[(size_t)i % (64 * KIB)] = 1;
    }
    assert_true(lines_of("/proc/self/maps") < 500);
    assert_true(open_descriptors() < 100);
    /* A page each, and what there is about a buffer. */
    assert_true(spw__process_resident_bytes() - before < (uint64_t)COUNT * 5 * KIB);
    for (int i = 0; i < COUNT; i++)
        spw_buffer_unref(buffers[i]);
    free(buffers);
    spw_context_trim(counted.context, 0, 0, NULL);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    counted_context_close(&counted);
}

/* Threads ----------------------------------------------------------------------------
 */

enum { THREADS = 4, ROUNDS = 3000, HELD = 16 };

typedef struct worker {
    pthread_t thread;
    spw_context *context;
    unsigned seed;
    const char *fault;
} worker;

static size_t some_size(unsigned draw)
{
    static const size_t SIZES[] = {100,      4 * KIB,   5 * KIB, 60 * KIB, 64 * KIB,
                                   70 * KIB, 300 * KIB, MIB,     2 * MIB,  5 * MIB};
    return SIZES[draw % COUNT_OF(SIZES)];
}

static bool is_filled(const spw_buffer *buffer, char with)
{
    /* Its ends and a place on each page: what would be another's or given back. */
    const char *data = spw_buffer_data(buffer);
    size_t size = spw_buffer_size(buffer);
    for (size_t at = 0; at < size; at += 4096)
        if (data[at] != with)
            return false;
    return data[size - 1] == with;
}

static void fill(spw_buffer *buffer, char with)
{
    char *data = spw_buffer_data(buffer);
    size_t size = spw_buffer_size(buffer);
    for (size_t at = 0; at < size; at += 4096)
        data[at] = with;
    data[size - 1] = with;
}

static void *take_and_give(void *user)
{
    worker *self = user;
    spw_buffer *held[HELD] = {NULL};
    char content[HELD] = {0};
    for (unsigned round = 0; round < ROUNDS && self->fault == NULL; round++) {
        self->seed = self->seed * 1103515245 + 12345;
        unsigned slot = (self->seed >> 16) % HELD;
        if (held[slot] != NULL && !is_filled(held[slot], content[slot]))
            self->fault = "a buffer changed in its owner's hands";
        spw_buffer_unref(held[slot]);
        held[slot] = NULL;
        if (spw_buffer_create(self->context, some_size(self->seed >> 8),
                              SPW_CHARGE_HELD, &held[slot], NULL) != SPW_STATUS_OK) {
            self->fault = "no buffer";
            break;
        }
        content[slot] = (char)(self->seed >> 20);
        fill(held[slot], content[slot]);
        if (round % 16 == 0)
            spw_context_trim(self->context, round % 3 * MIB, 0, NULL);
    }
    for (int i = 0; i < HELD; i++)
        spw_buffer_unref(held[i]);
    return NULL;
}

static void threads_take_give_and_trim_at_a_time(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.context = counted.context, .seed = i + 1};
        assert_int_equal(
            pthread_create(&workers[i].thread, NULL, take_and_give, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].fault != NULL)
            fail_msg("%s", workers[i].fault);
    uint64_t due;
    spw_context_trim(counted.context, 0, 0, &due);
    assert_true(due == SPW_TRIM_NEVER);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    counted_context_check_uncharged(&counted);
    counted_context_close(&counted);
}

/* fork -------------------------------------------------------------------------------
 */

typedef struct fork_race {
    spw_context *context;
    _Atomic bool is_over;
} fork_race;

static void *take_and_give_until_over(void *user)
{
    fork_race *race = user;
    while (!race->is_over) {
        spw_buffer *buffer;
        if (spw_buffer_create(race->context, 64 * KIB, SPW_CHARGE_HELD, &buffer,
                              NULL) != SPW_STATUS_OK)
            break;
        spw_buffer_unref(buffer);
    }
    return NULL;
}

/* What a child does with what it inherited. Returns: its exit code. */
static int live_on(spw_context *context, spw_buffer *buffers[3])
{
    spw_buffer *own;
    for (int i = 0; i < 3; i++) {
        if (!is_filled(buffers[i], (char)(i + 1)))
            return 1;
        spw_buffer_unref(buffers[i]);
    }
    if (spw_buffer_create(context, 8 * MIB, SPW_CHARGE_HELD, &own, NULL) !=
        SPW_STATUS_OK)
        return 2;
    memset(spw_buffer_data(own), 9, 8 * MIB);
    spw_context_trim(context, 0, 0, NULL);
    spw_buffer_unref(own);
    spw_context_unref(context);
    return 0;
}

/* A thread is in the pool most of the time, so most children are copies of a pool that
 * is locked, by a thread that they do not have. */
static void a_child_lives_with_what_it_inherited(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    static const size_t SIZES[3] = {100, 64 * KIB, 4 * MIB};
    spw_buffer *buffers[3];
    for (int i = 0; i < 3; i++) {
        assert_ok(spw_buffer_create(counted.context, SIZES[i], SPW_CHARGE_HELD,
                                    &buffers[i], NULL));
        fill(buffers[i], (char)(i + 1));
    }
    fork_race race = {counted.context, false};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_and_give_until_over, &race), 0);
    int failed = 0;
    for (int i = 0; i < 40 && failed == 0; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20); /* a child that hangs is killed, which shows */
            _exit(live_on(counted.context, buffers));
        }
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            failed = status;
    }
    race.is_over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(failed, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(is_filled(buffers[i], (char)(i + 1)));
        spw_buffer_unref(buffers[i]);
    }
    counted_context_close(&counted);
}

static void buffers_outlive_their_owners_context(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw_buffer *buffers[2];
    assert_ok(spw_buffer_create(counted.context, 64 * KIB, SPW_CHARGE_HELD, &buffers[0],
                                NULL));
    assert_ok(spw_buffer_create(counted.context, 4 * MIB, SPW_CHARGE_HELD, &buffers[1],
                                NULL));
    spw_context_ref(counted.context);
    spw_context_unref(counted.context);
    spw_context *context = counted.context;
    spw_context_unref(context);
    assert_true(io_fault_mapped_bytes() > 0);
    spw_buffer_unref(buffers[0]);
    spw_buffer_unref(buffers[1]);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    assert_int_equal(counted.allocator.live_blocks, 0);
    spw_budget_free(counted.budget);
}

/* Torture ----------------------------------------------------------------------------
 */

static void regions_come_and_go(void **state)
{
    torture *t = *state;
    /* In the last round memory moves. */
    enum { TIMES = 3, COUNT = 5 };
    static const size_t SIZES[TIMES][COUNT] = {
        {100, 64 * KIB, 100 * KIB, 4 * MIB, 9 * MIB},
        {100, 64 * KIB, 100 * KIB, 4 * MIB, 9 * MIB},
        {100, 64 * KIB, 1500 * KIB, 3 * MIB, 7 * MIB},
    };
    spw_buffer *buffers[COUNT] = {NULL};
    torture_use_pool(t);
    for (int round = 0; round < TIMES; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            TRY(spw_buffer_create(t->context, SIZES[round][i], SPW_CHARGE_HELD,
                                  &buffers[i], &t->error));
            fill(buffers[i], 1);
        }
        for (size_t i = 0; i < COUNT; i++) {
            spw_buffer_unref(buffers[i]);
            buffers[i] = NULL;
        }
    }
    spw_context_trim(t->context, 100 * KIB, 0, NULL);
end:
    for (size_t i = 0; i < COUNT; i++)
        spw_buffer_unref(buffers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_aligned_and_little_is_wasted),
        cmocka_unit_test(what_is_small_comes_from_the_allocator),
        cmocka_unit_test(a_given_allocator_has_everything_unless_told_otherwise),
        cmocka_unit_test(what_one_leaves_the_next_one_gets),
        cmocka_unit_test(every_byte_is_charged_wherever_it_is),
        cmocka_unit_test(the_budget_refuses_only_when_nothing_is_cached),
        cmocka_unit_test(a_failed_mapping_is_tried_again_without_the_cache),
        cmocka_unit_test(what_the_system_does_not_have_is_an_error),
        cmocka_unit_test(the_pool_holds_no_more_than_what_lived_at_a_time),
        cmocka_unit_test(what_does_not_fit_into_the_cache_is_unmapped),
        cmocka_unit_test(a_hundred_thousand_buffers_are_few_mappings),
        cmocka_unit_test(threads_take_give_and_trim_at_a_time),
        cmocka_unit_test(a_child_lives_with_what_it_inherited),
        cmocka_unit_test(buffers_outlive_their_owners_context),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(regions_come_and_go)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("region_pool", scenarios);
}
