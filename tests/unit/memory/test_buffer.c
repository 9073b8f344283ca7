#include "spillway/buffer.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted_context.h"
#include "io_fault.h"
#include "memory/buffer_discard.h"
#include "memory/place.h"
#include "platform/memory_map.h"
#include "spillway/pool.h"
#include "testing.h"
#include "torture.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

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
    spw_context_trim(counted.context, 0, 0, NULL);
    counted_context_check_uncharged(&counted);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    counted_context_close(&counted);
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
    spw_context_trim(counted.context, 0, 0, NULL);
    counted_context_check_uncharged(&counted);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    counted_context_close(&counted);
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
        cmocka_unit_test(discarded_pages_serve_others),
        cmocka_unit_test(pages_that_do_not_move_are_lost_to_nobody),
        cmocka_unit_test(a_child_lets_go_of_what_has_holes),
        cmocka_unit_test(nobody_writes_what_is_anothers),
        cmocka_unit_test(mappings_do_not_grow_in_number),
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
