/* What leaves memory, and what that is told to be: with a disk that is full, slow, or
 * need not be asked. */
#include "disk_fault.h"
#include "fake_system.h"
#include "store/store_state.h"
#include "store_fixture.h"

/* Do what is next of a stepped store: its owner's, or a thread's. Returns: whether
 * there was anything. */
static bool step(store_fixture *f, unsigned *failed)
{
    spw_store_event event;
    spw_store_work(f->store, 0, &event);
    *failed += event.kind == SPW_STORE_FAILED;
    spw_entry_unref(event.entry);
    return event.kind != SPW_STORE_NOTHING || spw__worker_pool_run_one(f->store->pool);
}

/* ----- a disk that is full, and clean values ----- */

static void bug_a_write_counted_as_a_drop(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 3, SIZE = 1 << 20 };
    spw_entry *entries[COUNT];
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_put(t, &f, 0, SIZE, &entries[0]));
    assert_ok(store_fixture_put_packed(t, &f, 1, SIZE, &entries[1]));
    assert_ok(store_fixture_put(t, &f, 2, SIZE, &entries[2]));
    store_fixture_start_work(&f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spw_store_evict(f.store, SIZE), SIZE);
        store_fixture_wait_until_quiet(&f);
    }
    assert_ok(spw_entry_spill(entries[2], NULL));
    store_fixture_remove_all(entries, COUNT);
    assert_int_equal(store_fixture_figures(&f).writes, COUNT);
    assert_int_equal(store_fixture_figures(&f).drops, 0);
    store_fixture_close(&f);
}

static void evict_and_finish(store_fixture *f, unsigned *failed)
{
    (void)spw_store_evict(f->store, UINT64_MAX);
    while (step(f, failed))
        ;
}

static void bug_a_disk_that_stayed_full_was_told_of_at_each_try(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20, TRY_AGAIN_MS = 30000, TRIES = 5 };
    spw_entry *entries[2];
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    spw_error error;
    uint64_t now_ms = 1000000;
    unsigned told = 0;
    fake_clock_set(now_ms);
    assert_ok(store_fixture_open_as(t, &f, &options, 0, true));
    for (unsigned i = 0; i < 2; i++)
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
    disk_fault_room(0);
    assert_status(spw_entry_spill(entries[0], &error), IO); /* who waits says it */
    for (unsigned i = 1; i <= TRIES; i++) {
        fake_clock_set(now_ms += TRY_AGAIN_MS);
        evict_and_finish(&f, &told);
        assert_int_equal(store_fixture_figures(&f).failures, 1 + i);
        assert_int_equal(told, 1);
    }
    disk_fault_room(SIZE + SIZE / 2);
    for (unsigned i = 0; i < 2; i++) {
        fake_clock_set(now_ms += TRY_AGAIN_MS);
        evict_and_finish(&f, &told); /* one has room, and the other has not */
        assert_int_equal(store_fixture_figures(&f).on_disk.count, 1);
        assert_int_equal(told, 1 + i);
    }
    fake_clock_set(0);
    store_fixture_remove_all(entries, 2);
    store_fixture_close(&f);
}

static void bug_what_a_full_disk_refused_counted_as_written(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20 };
    spw_entry *entries[2];
    spw_error error;
    assert_ok(store_fixture_open(t, &f, 0));
    for (unsigned i = 0; i < 2; i++)
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
    assert_ok(spw_entry_spill(entries[0], NULL));
    uint64_t written = store_fixture_figures(&f).written_bytes;
    assert_in_range(written, SIZE, 2 * SIZE - 1);
    disk_fault_room(0);
    assert_status(spw_entry_spill(entries[1], &error), IO);
    assert_int_equal(store_fixture_figures(&f).written_bytes, written);
    assert_int_equal(store_fixture_figures(&f).writes, 1);
    store_fixture_remove_all(entries, 2);
    store_fixture_close(&f);
}

static void bug_what_is_clean_stayed_behind_what_a_full_disk_refused(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20 };
    spw_entry *entries[2];
    assert_ok(store_fixture_open(t, &f, 0));
    for (unsigned i = 0; i < 2; i++)
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
    assert_ok(spw_entry_spill(entries[1], NULL));
    disk_fault_room(0);
    store_fixture_start_work(&f);
    assert_int_equal(spw_store_evict(f.store, SIZE), SIZE);
    store_fixture_wait_until_quiet(&f);
    assert_int_equal(spw_entry_forms(entries[0]), SPW_ENTRY_LIVE);
    /* It is clean, and was used last. */
    assert_ok(store_fixture_check(t, entries[1], 1, SIZE));
    assert_int_equal(spw_store_evict(f.store, UINT64_MAX), SIZE);
    store_fixture_wait_until_quiet(&f);
    assert_int_equal(spw_entry_forms(entries[1]), SPW_ENTRY_ON_DISK);
    assert_int_equal(spw_store_evict(f.store, UINT64_MAX), -1);
    assert_int_equal(spw_entry_forms(entries[0]), SPW_ENTRY_LIVE);
    store_fixture_remove_all(entries, 2);
    store_fixture_close(&f);
}

/* ----- a slow disk ----- */

/* Values come while each of the writes is half done, faster than it takes them. */
enum {
    VALUES = 60,
    VALUE = 1 << 20,
    TARGET = 8 * VALUE,
    IN_FLIGHT = 2 * VALUE,
    MS_A_WRITE = 20 /* 50 MB/s */
};

typedef struct flood {
    torture *t;
    store_fixture f;
    spw_entry *entries[VALUES];
    unsigned count, failed, waits;
    uint64_t now_ms, most;
    bool is_packed; /* as values come in, and not as they are made */
} flood;

static uint64_t in_memory(flood *all)
{
    spw_store_figures now = store_fixture_figures(&all->f);
    return now.live.weight + now.packed.weight;
}

/* Put one more, unless who makes it should wait. Returns: whether it was put. */
static bool come(flood *all)
{
    if (all->count == VALUES || spw_store_is_behind(all->f.store))
        return false;
    unsigned i = all->count++;
    if (all->is_packed)
        assert_ok(
            store_fixture_put_packed(all->t, &all->f, i, VALUE, &all->entries[i]));
    else
        assert_ok(store_fixture_put(all->t, &all->f, i, VALUE, &all->entries[i]));
    uint64_t now = in_memory(all);
    all->most = now > all->most ? now : all->most;
    return true;
}

static void while_it_writes(void *user, disk_fault_way way)
{
    flood *all = user;
    (void)way;
    fake_clock_set(all->now_ms += MS_A_WRITE);
    while (come(all))
        ;
}

static void check_flood(torture *t, bool is_packed)
{
    flood all = {.t = t, .now_ms = 1000000, .is_packed = is_packed};
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.target_bytes = TARGET;
    options.in_flight_bytes = IN_FLIGHT;
    fake_clock_set(all.now_ms);
    assert_ok(store_fixture_open_as(t, &all.f, &options, 0, true));
    disk_fault_during(DISK_FAULT_WRITING, while_it_writes, &all);
    while (all.count < VALUES) {
        if (come(&all))
            continue;
        all.waits++;
        if (!step(&all.f, &all.failed))
            fail_msg("value %u waits, and nothing is under way", all.count);
    }
    /* One was put while less than all that may be was leaving, and another began to
     * leave so. */
    assert_in_range(all.most, TARGET + IN_FLIGHT, TARGET + IN_FLIGHT + VALUE);
    assert_true(all.waits >= (VALUES - (TARGET + IN_FLIGHT) / VALUE) / 2);
    while (step(&all.f, &all.failed))
        ;
    assert_in_range(in_memory(&all), TARGET - VALUE, TARGET);
    assert_false(spw_store_is_behind(all.f.store));
    assert_int_equal(all.failed, 0);
    disk_fault_during(0, NULL, NULL);
    fake_clock_set(0);
    for (unsigned i = 0; i < VALUES; i++)
        assert_ok(store_fixture_check(t, all.entries[i], i, VALUE));
    store_fixture_remove_all(all.entries, VALUES);
    store_fixture_close(&all.f);
}

static void a_slow_disk_keeps_what_comes_waiting_but_not_for_ever(void **state)
{
    check_flood(*state, false);
    check_flood(*state, true);
}

/* A monitor asks while one value is on its slow way to disk. */
typedef struct asked {
    spw_store *store;
    unsigned times;
} asked;

static void ask_while_it_writes(void *user, disk_fault_way way)
{
    asked *by = user;
    (void)way;
    by->times++;
    assert_int_equal(spw_store_evict(by->store, VALUE), -1);
}

static void a_slow_disk_makes_no_monitor_ask_for_more(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 4 };
    spw_entry *entries[COUNT];
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    unsigned failed = 0;
    assert_ok(store_fixture_open_as(t, &f, &options, 0, true));
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_put(t, &f, i, VALUE, &entries[i]));
    asked by = {.store = f.store};
    disk_fault_during(DISK_FAULT_WRITING, ask_while_it_writes, &by);
    assert_int_equal(spw_store_evict(f.store, VALUE), VALUE);
    while (step(&f, &failed))
        ;
    disk_fault_during(0, NULL, NULL);
    assert_true(by.times > 0);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, 1);
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(bug_a_write_counted_as_a_drop),
        SCENARIO(bug_a_disk_that_stayed_full_was_told_of_at_each_try),
        SCENARIO(bug_what_a_full_disk_refused_counted_as_written),
        SCENARIO(bug_what_is_clean_stayed_behind_what_a_full_disk_refused),
        SCENARIO(a_slow_disk_keeps_what_comes_waiting_but_not_for_ever),
        SCENARIO(a_slow_disk_makes_no_monitor_ask_for_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
