/* How free pages move: from the cache, from slabs, and out of live buffers. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted_context.h"
#include "fake_system.h"
#include "io_fault.h"
#include "memory/buffer_discard.h"
#include "memory/freed_pages.h"
#include "platform/memory_map.h"
#include "regions.h"
#include "spillway/pool.h"
#include "testing.h"
#include "torture.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Nothing is charged or mapped any more once what is cached has gone. */
static void close_empty(counted_context *counted)
{
    spw_context_trim(counted->context, 0, 0, NULL);
    counted_context_check_uncharged(counted);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    counted_context_close(counted);
}

/* From the cache ------------------------------------------------------------------- */

/* Regions that are cached apart from each other, of so many MiB, filled with their
 * number, the oldest first. */
static void cache_apart(counted_context *counted, const size_t *mibs, size_t count,
                        spw__region *between)
{
    spw__region regions[4];
    for (size_t i = 0; i < count; i++) {
        regions[i] = acquire(counted, mibs[i] * MIB);
        between[i] = acquire(counted, 2 * MIB);
        memset(regions[i].data, (int)i + 1, mibs[i] * MIB);
    }
    for (size_t i = 0; i < count; i++) {
        fake_clock_set(1000 + i);
        release(counted, &regions[i]);
    }
    fake_clock_set(0);
}

static void cached_pages_come_under_new_addresses(void **state)
{
    (void)state;
    static const size_t MIBS[] = {2, 3, 6};
    counted_context counted;
    spw__region between[COUNT_OF(MIBS)];
    counted_context_open_pool(&counted, 0);
    cache_apart(&counted, MIBS, COUNT_OF(MIBS), between);
    int64_t mapped = io_fault_mapped_bytes();
    spw__region region = acquire(&counted, 7 * MIB);
    const char *data = region.data;
    assert_int_equal(data[0], 1);
    assert_int_equal(data[2 * MIB - 1], 1);
    assert_int_equal(data[2 * MIB], 2);
    assert_int_equal(data[5 * MIB - 1], 2);
    assert_int_equal(data[5 * MIB], 3);
    assert_int_equal(data[7 * MIB - 1], 3);
    assert_int_equal(figures_of(&counted).pool_bytes_moved, 7 * MIB);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD),
                     region.size + 6 * MIB);
    /* What was not wanted of the third stays. */
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED), 4 * MIB);
    assert_int_equal(io_fault_mapped_bytes(), mapped);
    memset(region.data, 9, region.capacity);
    release(&counted, &region);
    for (size_t i = 0; i < COUNT_OF(MIBS); i++)
        release(&counted, &between[i]);
    close_empty(&counted);
}

/* An item of a slab that had no memory has what is cached, from the end of a range. */
static void cached_pages_come_to_large_items(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    spw__region large = acquire(&counted, 4 * MIB);
    memset(large.data, 1, 4 * MIB);
    release(&counted, &large);
    int64_t mapped = io_fault_mapped_bytes();
    spw__region small = acquire(&counted, 60 * KIB); /* is not worth it */
    assert_int_equal(figures_of(&counted).pool_bytes_moved, 0);
    spw__region item = acquire(&counted, 1500 * KIB);
    uint64_t moved = figures_of(&counted).pool_bytes_moved;
    assert_int_equal(item.source, SPW__REGION_SLAB);
    assert_int_equal(moved, item.capacity);
    assert_int_equal(((char *)item.data)[0], 1);
    assert_int_equal(((char *)item.data)[item.size - 1], 1);
    memset(item.data, 2, item.capacity);
    uint64_t charged = counted_context_charged(&counted, SPW_CHARGE_HELD) +
                       counted_context_charged(&counted, SPW_CHARGE_POOLED);
    assert_int_equal(charged, 4 * MIB + small.capacity);
    assert_int_equal(io_fault_mapped_bytes(),
                     mapped + 2 * (int64_t)SPW__SLAB_BYTES - (int64_t)moved);
    release(&counted, &small);
    release(&counted, &item);
    close_empty(&counted);
}

/* Where ranges are too few, free items of slabs serve a mapping, the largest first. */
static void free_items_come_to_a_mapping(void **state)
{
    (void)state;
    static const size_t KIBS[] = {512, 1536, 60, 1536};
    counted_context counted;
    spw__region items[COUNT_OF(KIBS)];
    counted_context_open_pool(&counted, 0);
    for (size_t i = 0; i < COUNT_OF(KIBS); i++) {
        items[i] = acquire(&counted, KIBS[i] * KIB);
        memset(items[i].data, (int)i + 1, KIBS[i] * KIB);
    }
    for (size_t i = 0; i < 3; i++)
        release(&counted, &items[i]);
    uint64_t pooled = counted_context_charged(&counted, SPW_CHARGE_POOLED);
    spw__region region = acquire(&counted, 3 * MIB);
    const char *data = region.data;
    assert_int_equal(data[0], 2);
    assert_int_equal(data[1536 * KIB - 1], 2);
    assert_int_equal(data[1536 * KIB], 1);
    assert_int_equal(data[2048 * KIB - 1], 1);
    assert_int_equal(data[2048 * KIB], 0);
    assert_int_equal(figures_of(&counted).pool_bytes_moved, 2 * MIB);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED),
                     pooled - 2 * MIB);
    memset(region.data, 9, region.capacity);
    assert_int_equal(((char *)items[3].data)[0], 4);
    /* Of a part of an item the rest is given back. */
    release(&counted, &items[3]);
    pooled = counted_context_charged(&counted, SPW_CHARGE_POOLED);
    spw__region other = acquire(&counted, 2 * MIB);
    assert_int_equal(((char *)other.data)[0], 4);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED),
                     pooled - 1536 * KIB);
    memset(other.data, 9, other.capacity);
    release(&counted, &other);
    release(&counted, &region);
    close_empty(&counted);
}

static void pages_that_do_not_move_are_fresh(void **state)
{
    (void)state;
    static const size_t MIBS[] = {2, 2, 2};
    counted_context counted;
    spw__region between[COUNT_OF(MIBS)];
    counted_context_open_pool(&counted, 0);
    cache_apart(&counted, MIBS, COUNT_OF(MIBS), between);
    io_fault_arm_call("move", 2, 0);
    spw__region region = acquire(&counted, 6 * MIB);
    assert_int_equal(io_fault_calls_of("move"), 3);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    const char *data = region.data;
    assert_int_equal(data[0], 1);
    assert_int_equal(data[2 * MIB], 0);
    assert_int_equal(data[4 * MIB], 3);
    release(&counted, &region);
    for (size_t i = 0; i < COUNT_OF(MIBS); i++)
        release(&counted, &between[i]);
    counted_context_close(&counted);
}

/* What is refused by the budget takes nothing along that was cached. */
static void a_refused_mapping_is_charged_no_more(void **state)
{
    (void)state;
    static const size_t MIBS[] = {2, 2};
    counted_context counted;
    spw__region between[COUNT_OF(MIBS)], none = {.size = 77};
    spw_error error;
    counted_context_open_pool(&counted, 10 * MIB);
    cache_apart(&counted, MIBS, COUNT_OF(MIBS), between);
    assert_status(
        spw__region_acquire(counted.context, 12 * MIB, SPW_CHARGE_HELD, &none, &error),
        LIMIT_EXCEEDED);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 4 * MIB);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED), 0);
    assert_int_equal(io_fault_mapped_bytes(), 4 * MIB);
    for (size_t i = 0; i < COUNT_OF(MIBS); i++)
        release(&counted, &between[i]);
    counted_context_close(&counted);
}

/* Out of live buffers ---------------------------------------------------------------
 */

static spw_buffer *create(counted_context *counted, size_t size, int value)
{
    spw_buffer *buffer;
    assert_ok(
        spw_buffer_create(counted->context, size, SPW_CHARGE_HELD, &buffer, NULL));
    memset(spw_buffer_data(buffer), value, size);
    return buffer;
}

/* Holes of several buffers, of a mapping's and of a slab's, are one buffer's memory. */
static void discarded_pages_serve_others(void **state)
{
    (void)state;
    counted_context counted;
    spw__freed_pages pages;
    counted_context_open_pool(&counted, 0);
    spw_buffer *first = create(&counted, 5 * MIB, 1);
    spw_buffer *second = create(&counted, 1500 * KIB, 2);
    uint64_t held = counted_context_charged(&counted, SPW_CHARGE_HELD);
    uint64_t pooled = counted_context_charged(&counted, SPW_CHARGE_POOLED);
    spw__freed_pages_open(counted.context, 3 * MIB, &pages);
    assert_int_equal(spw__buffer_discard(first, MIB, 2 * MIB, &pages), MIB);
    assert_int_equal(spw__buffer_discard(second, 0, MIB, &pages), MIB);
    assert_int_equal(spw__buffer_discard(first, 3 * MIB, 4 * MIB, &pages), MIB);
    /* There is no more room, and that is too little to be moved: to the system. */
    assert_int_equal(spw__buffer_discard(first, 4 * MIB, 5 * MIB, &pages), MIB);
    assert_int_equal(spw__buffer_discard(second, MIB, MIB + 32 * KIB, &pages),
                     32 * KIB);
    spw__freed_pages_close(&pages);
    uint64_t moved = 3 * MIB, gone = MIB + 32 * KIB;
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD),
                     held - moved - gone);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED),
                     pooled + moved);
    spw_buffer *other;
    assert_ok(
        spw_buffer_create(counted.context, 3 * MIB, SPW_CHARGE_HELD, &other, NULL));
    const unsigned char *data = spw_buffer_data(other);
    assert_int_equal(data[MIB - 1], 1);
    assert_int_equal(data[MIB], 2);
    assert_int_equal(data[2 * MIB], 1);
    memset(spw_buffer_data(other), 3, 3 * MIB);
    data = spw_buffer_data(first);
    assert_int_equal(data[MIB - 1], 1);
    assert_int_equal(data[MIB], 0);
    assert_int_equal(data[2 * MIB], 1);
    spw_buffer_unref(first);
    spw_buffer_unref(second);
    spw_buffer_unref(other);
    close_empty(&counted);
}

/* What the system refuses to move is fresh where it was to be. */
static void pages_that_do_not_move_are_lost_to_nobody(void **state)
{
    (void)state;
    counted_context counted;
    spw__freed_pages pages;
    counted_context_open_pool(&counted, 0);
    spw_buffer *buffer = create(&counted, 4 * MIB, 1);
    spw__freed_pages_open(counted.context, 2 * MIB, &pages);
    io_fault_arm_call("move", 1, 0);
    assert_int_equal(spw__buffer_discard(buffer, 0, 2 * MIB, &pages), 2 * MIB);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    spw__freed_pages_close(&pages);
    assert_int_equal(((char *)spw_buffer_data(buffer))[0], 0);
    assert_int_equal(((char *)spw_buffer_data(buffer))[2 * MIB], 1);
    spw_buffer *other;
    assert_ok(
        spw_buffer_create(counted.context, 2 * MIB, SPW_CHARGE_HELD, &other, NULL));
    assert_int_equal(((char *)spw_buffer_data(other))[MIB], 0);
    spw_buffer_unref(other);
    spw_buffer_unref(buffer);
    /* Without addresses everything goes to the system. */
    buffer = create(&counted, 4 * MIB, 1);
    spw_context_trim(counted.context, 0, 0, NULL);
    io_fault_arm_call("map", 1, 0);
    spw__freed_pages_open(counted.context, 2 * MIB, &pages);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_int_equal(spw__buffer_discard(buffer, 0, 2 * MIB, &pages), 2 * MIB);
    spw__freed_pages_close(&pages);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_POOLED), 0);
    spw_buffer_unref(buffer);
    counted_context_check_uncharged(&counted);
    counted_context_close(&counted);
}

/* A child has copies of all of it. */
static void a_child_lets_go_of_what_has_holes(void **state)
{
    (void)state;
    counted_context counted;
    spw__freed_pages pages;
    counted_context_open_pool(&counted, 0);
    spw_buffer *buffer = create(&counted, 8 * MIB, 1), *other;
    spw__freed_pages_open(counted.context, 2 * MIB, &pages);
    assert_int_equal(spw__buffer_discard(buffer, MIB, 3 * MIB, &pages), 2 * MIB);
    spw__freed_pages_close(&pages);
    assert_ok(
        spw_buffer_create(counted.context, 2 * MIB, SPW_CHARGE_HELD, &other, NULL));
    memset(spw_buffer_data(other), 5, 2 * MIB);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spw__freed_pages_open(counted.context, 2 * MIB, &pages);
        bool is_off = pages.room == 0;
        spw__freed_pages_close(&pages);
        spw_buffer_unref(buffer);
        _exit(is_off && ((char *)spw_buffer_data(other))[MIB] == 5 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    spw_buffer_unref(buffer);
    spw_buffer_unref(other);
    counted_context_close(&counted);
}

/* Buffers of all sizes come, lose pages to a common range, and go, in any order: nobody
 * ever sees another's bytes where he may look. */
static void nobody_writes_what_is_anothers(void **state)
{
    (void)state;
    enum { SLOTS = 12, STEPS = 4000, STEP = 128 << 10, PIECES = 128 };
    static struct {
        spw_buffer *buffer;
        unsigned char mark;
        bool is_gone[PIECES];
    } slots[SLOTS];
    counted_context counted;
    spw__freed_pages pages;
    uint32_t seed = 7;
    counted_context_open_pool(&counted, 0);
    spw__freed_pages_open(counted.context, 3 * MIB, &pages);
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1664525 + 1013904223;
        size_t i = (seed >> 8) % SLOTS, pick = seed >> 16;
        if (slots[i].buffer == NULL) {
            size_t size = (1 + pick % 96) * STEP + pick % 3 * 4096;
            slots[i].buffer = create(&counted, size, (unsigned char)step);
            slots[i].mark = (unsigned char)step;
            memset(slots[i].is_gone, 0, sizeof slots[i].is_gone);
            continue;
        }
        unsigned char *data = spw_buffer_data(slots[i].buffer);
        size_t size = spw_buffer_size(slots[i].buffer), n = pick % PIECES;
        for (size_t at = 0; at < size; at += STEP)
            if (!slots[i].is_gone[at / STEP])
                assert_int_equal(data[at], slots[i].mark);
        if (pick % 4 > 0 && !slots[i].is_gone[n] && (n + 1) * STEP <= size &&
            (uintptr_t)data % 4096 == 0) {
            assert_int_equal(
                spw__buffer_discard(slots[i].buffer, n * STEP, (n + 1) * STEP, &pages),
                STEP);
            slots[i].is_gone[n] = true;
        } else {
            spw_buffer_unref(slots[i].buffer);
            slots[i].buffer = NULL;
        }
        if (pages.used == pages.room) {
            spw__freed_pages_close(&pages);
            spw__freed_pages_open(counted.context, (1 + pick % 5) * MIB, &pages);
        }
    }
    spw_figures figures;
    spw_context_read_figures(counted.context, &figures);
    assert_true(figures.pool_bytes_moved > 500 * MIB);
    for (size_t i = 0; i < SLOTS; i++) {
        spw_buffer_unref(slots[i].buffer);
        slots[i].buffer = NULL;
    }
    spw__freed_pages_close(&pages);
    close_empty(&counted);
}

static size_t count_mappings(void)
{
    static char text[1 << 16];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    size_t count = 0, read;
    while ((read = fread(text, 1, sizeof text, maps)) > 0)
        for (size_t i = 0; i < read; i++)
            count += text[i] == '\n';
    fclose(maps);
    return count;
}

static void touch(spw_buffer *buffer)
{
    char *data = spw_buffer_data(buffer);
    for (size_t at = 0; at < spw_buffer_size(buffer); at += 128 * KIB)
        data[at] = 1;
}

/* Shuffles one after another, each with shards of another size, so that what one left
 * is cut anew in the next. */
static void mappings_do_not_grow_in_number(void **state)
{
    (void)state;
    enum { ROUNDS = 4, PIECES = 128, PARTITIONS = 64, MAPPINGS_MAX = 20000 };
    static spw_buffer *pieces[PIECES];
    counted_context counted;
    counted_context_open_pool(&counted, 0);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); /* touched: a page */
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t shard = (144 + 28 * round % 64) * KIB;
        spw_buffer *before = NULL, *partition;
        for (size_t i = 0; i < PIECES; i++) {
            assert_ok(spw_buffer_create(counted.context, PARTITIONS * shard,
                                        SPW_CHARGE_HELD, &pieces[i], NULL));
            touch(pieces[i]);
        }
        for (size_t p = 0; p < PARTITIONS; p++) {
            spw__freed_pages pages;
            assert_ok(spw_buffer_create(counted.context, PIECES * shard,
                                        SPW_CHARGE_HELD, &partition, NULL));
            touch(partition);
            spw__freed_pages_open(counted.context, PIECES * shard, &pages);
            for (size_t i = 0; i < PIECES; i++)
                (void)spw__buffer_discard(pieces[i], p * shard, (p + 1) * shard,
                                          &pages);
            spw__freed_pages_close(&pages);
            spw_buffer_unref(before);
            before = partition;
            if (p % 16 == 8)
                assert_in_range(count_mappings(), 1, MAPPINGS_MAX);
        }
        spw_buffer_unref(before);
        for (size_t i = 0; i < PIECES; i++)
            spw_buffer_unref(pieces[i]);
    }
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
    spw_figures figures;
    spw_context_read_figures(counted.context, &figures);
    assert_true(figures.pool_bytes_moved > (uint64_t)PIECES * PARTITIONS * 128 * KIB);
    spw_context_trim(counted.context, 0, 0, NULL);
    counted_context_check_uncharged(&counted);
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_pages_come_under_new_addresses),
        cmocka_unit_test(cached_pages_come_to_large_items),
        cmocka_unit_test(free_items_come_to_a_mapping),
        cmocka_unit_test(pages_that_do_not_move_are_fresh),
        cmocka_unit_test(a_refused_mapping_is_charged_no_more),
        cmocka_unit_test(discarded_pages_serve_others),
        cmocka_unit_test(pages_that_do_not_move_are_lost_to_nobody),
        cmocka_unit_test(a_child_lets_go_of_what_has_holes),
        cmocka_unit_test(nobody_writes_what_is_anothers),
        cmocka_unit_test(mappings_do_not_grow_in_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
