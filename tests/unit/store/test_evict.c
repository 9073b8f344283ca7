/* What leaves memory, and what that is told to be: with a disk that is full, slow, or
 * need not be asked. */
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(bug_a_write_counted_as_a_drop),
        SCENARIO(bug_a_disk_that_stayed_full_was_told_of_at_each_try),
        SCENARIO(bug_what_is_clean_stayed_behind_what_a_full_disk_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
