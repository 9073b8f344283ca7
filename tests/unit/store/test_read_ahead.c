/* What is read ahead is there for who comes next, within a limit, and goes first. The
 * store has no threads here: what it is to read is read when the test says so. */
#include <errno.h>
#include <string.h>

#include "context/error.h"
#include "fake_system.h"
#include "io_fault.h"
#include "spillway/store.h"
#include "store/store_state.h"
#include "store_fixture.h"

enum { SIZE = 100000, COUNT = 4 };

static const unsigned AHEAD = SPW_ENTRY_PACKED | SPW_ENTRY_ON_DISK;

/* A store that may read so much ahead, with COUNT values on disk. */
static spw_status open_store(torture *t, store_fixture *f, uint64_t read_ahead_bytes,
                             uint64_t target_bytes, spw_entry **entries)
{
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.target_bytes = target_bytes;
    options.read_ahead_bytes = read_ahead_bytes;
    memset(entries, 0, COUNT * sizeof(spw_entry *));
    spw_status status = store_fixture_open_as(t, f, &options, 0, true);
    for (unsigned i = 0; i < COUNT && status == SPW_STATUS_OK; i++) {
        status = store_fixture_put(t, f, i, SIZE, &entries[i]);
        if (status == SPW_STATUS_OK)
            status = spw_entry_spill(entries[i], &t->error);
    }
    return status;
}

static void close_store(store_fixture *f, spw_entry **entries)
{
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(f);
}

static bool read_one(store_fixture *f)
{
    return spw__worker_pool_run_one(f->store->pool);
}

/* Do what the owner's thread would. */
static void work(store_fixture *f)
{
    spw_store_event event;
    do {
        spw_store_work(f->store, 0, &event);
        spw_entry_unref(event.entry);
    } while (event.kind != SPW_STORE_NOTHING);
}

static uint64_t bytes_of(const spw_entry *entry)
{
    return spw_payload_bytes(entry->forms.packed);
}

/* As far as a test knows that something was not read ahead: nobody is told why. */
static spw_status no_memory(torture *t)
{
    return spw__error_set(&t->error, SPW_STATUS_NO_MEMORY, 0, "nothing is read ahead");
}

static void who_comes_need_not_wait_for_a_disk(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    TRY(open_store(t, &f, 1 << 20, 0, entries));
    assert_true(spw_store_reads_ahead(f.store));
    TRY(spw_entry_read_ahead(entries[0]) ? SPW_STATUS_OK : no_memory(t));
    assert_false(spw_entry_read_ahead(entries[0])); /* it is coming */
    assert_true(read_one(&f));
    TRY(spw_entry_forms(entries[0]) == AHEAD ? SPW_STATUS_OK : no_memory(t));
    assert_false(spw_entry_read_ahead(entries[0])); /* it is here */
    uint64_t bytes = bytes_of(entries[0]);
    assert_int_equal(f.store->ahead_bytes, bytes);
    uint64_t reads = io_fault_calls_of("spill_read");
    TRY(store_fixture_check(t, entries[0], 0, SIZE));
    assert_int_equal(io_fault_calls_of("spill_read"), reads);
    spw_store_figures figures = store_fixture_figures(&f);
    assert_int_equal(figures.ahead_bytes, bytes);
    assert_int_equal(figures.ahead_used_bytes, bytes);
    assert_int_equal(figures.ahead_dropped_bytes, 0);
    assert_int_equal(figures.reads, 1);
    assert_int_equal(f.store->ahead_bytes, 0);
end:
    close_store(&f, entries);
}

/* Its object left memory while somebody had it, and is given back where the bytes have
 * come meanwhile. */
static void bug_one_that_was_revived_stayed_among_those_read_ahead(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    void *objects[2];
    assert_ok(open_store(t, &f, 1 << 20, 0, entries));
    for (int i = 0; i < 2; i++) {
        assert_ok(spw_entry_acquire(entries[i], &objects[i], NULL));
        spw_entry_unpin(entries[i]);
        assert_int_equal(spw_store_evict(f.store, SIZE), SIZE);
        work(&f);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(spw_entry_read_ahead(entries[i]));
        assert_true(read_one(&f));
        assert_int_equal(spw_entry_forms(entries[i]), AHEAD);
    }
    for (int i = 0; i < 2; i++) {
        spw_entry_revive(entries[i], objects[i]);
        assert_int_equal(spw_entry_forms(entries[i]),
                         SPW_ENTRY_LIVE | SPW_ENTRY_ON_DISK);
    }
    assert_null(f.store->order.classes[SPW__CLASS_AHEAD].clean.first);
    assert_int_equal(f.store->order.classes[SPW__CLASS_AHEAD].weight, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spw_store_evict(f.store, SIZE), SIZE);
        work(&f);
        assert_int_equal(spw_entry_forms(entries[i]), SPW_ENTRY_ON_DISK);
    }
    assert_int_equal(spw_store_evict(f.store, SIZE), -1);
    assert_ok(store_fixture_check(t, entries[0], 0, SIZE));
    close_store(&f, entries);
}

static void only_so_much_at_once(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    assert_ok(open_store(t, &f, 2 * SIZE + SIZE / 2, 0, entries));
    assert_true(spw_entry_read_ahead(entries[0]));
    assert_true(spw_entry_read_ahead(entries[1]));
    assert_false(spw_entry_read_ahead(entries[2])); /* also while they are coming */
    assert_true(read_one(&f));
    assert_true(read_one(&f));
    assert_false(spw_entry_read_ahead(entries[2]));
    assert_ok(store_fixture_check(t, entries[0], 0, SIZE));
    assert_true(spw_entry_read_ahead(entries[2]));
    spw_store_remove(entries[1]);
    entries[1] = NULL;
    assert_true(spw_entry_read_ahead(entries[3]));
    assert_true(f.store->ahead_bytes <= 2 * SIZE + SIZE / 2);
    assert_int_equal(store_fixture_figures(&f).ahead_dropped_bytes,
                     store_fixture_figures(&f).ahead_used_bytes);
    close_store(&f, entries);
}

static void who_comes_before_it_has_begun_reads_at_once(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    assert_ok(open_store(t, &f, 1 << 20, 0, entries));
    assert_true(spw_entry_read_ahead(entries[0]));
    assert_true(spw_entry_read_ahead(entries[1]));
    assert_ok(store_fixture_check(t, entries[1], 1, SIZE));
    assert_int_equal(store_fixture_figures(&f).reads, 1); /* nobody else's first */
    assert_int_equal(spw_entry_forms(entries[0]), SPW_ENTRY_ON_DISK);
    while (read_one(&f)) {
    }
    assert_int_equal(store_fixture_figures(&f).reads, 2);
    assert_int_equal(f.store->ahead_bytes, bytes_of(entries[0]));
    assert_int_equal(f.store->reading_ahead, 0);
    close_store(&f, entries);
}

static void one_that_is_removed_is_not_read(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    assert_ok(open_store(t, &f, 1 << 20, 0, entries));
    assert_true(spw_entry_read_ahead(entries[0]));
    spw_store_remove(entries[0]);
    entries[0] = NULL;
    assert_true(read_one(&f));
    assert_int_equal(io_fault_calls_of("spill_read"), 0);
    assert_int_equal(f.store->ahead_bytes, 0);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, COUNT - 1);
    close_store(&f, entries);
}

static void a_monitor_drops_it_first_and_nothing_is_read_for_a_while(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *live;
    assert_ok(open_store(t, &f, 1 << 20, 0, entries));
    assert_ok(store_fixture_put(t, &f, 9, SIZE, &live));
    assert_true(spw_entry_read_ahead(entries[0]));
    assert_true(read_one(&f));
    fake_clock_set(1000000);
    uint64_t writes = io_fault_calls_of("spill_write");
    assert_int_equal(spw_store_evict(f.store, 1), SIZE);
    work(&f);
    assert_int_equal(spw_entry_forms(entries[0]), SPW_ENTRY_ON_DISK);
    assert_int_equal(spw_entry_forms(live), SPW_ENTRY_LIVE);
    assert_int_equal(io_fault_calls_of("spill_write"), writes);
    assert_true(store_fixture_figures(&f).ahead_dropped_bytes >= SIZE);
    assert_false(spw_store_reads_ahead(f.store));
    assert_false(spw_entry_read_ahead(entries[0]));
    fake_clock_set(1000000 + 10000);
    assert_true(spw_store_reads_ahead(f.store));
    fake_clock_set(0);
    spw_store_remove(live);
    close_store(&f, entries);
}

static void nothing_leaves_for_it_and_it_does_not_come_above_the_target(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *live;
    assert_ok(open_store(t, &f, 1 << 20, SIZE + SIZE / 2, entries));
    assert_ok(store_fixture_put(t, &f, 8, SIZE, &live));
    assert_true(spw_entry_read_ahead(entries[0]));
    assert_true(read_one(&f));
    assert_int_equal(spw_entry_forms(entries[0]), AHEAD);
    assert_int_equal(spw_entry_forms(live), SPW_ENTRY_LIVE);
    assert_int_equal(store_fixture_figures(&f).leaving_bytes, 0);
    /* Two that are in use are more than the target, and cannot leave. */
    void *first = spw_entry_try_acquire(live), *second;
    assert_ok(spw_entry_acquire(entries[1], &second, NULL));
    assert_false(spw_store_reads_ahead(f.store));
    assert_false(spw_entry_read_ahead(entries[2]));
    stored_object_unref(first);
    stored_object_unref(second);
    spw_entry_unpin(live);
    spw_entry_unpin(entries[1]);
    spw_store_remove(live);
    close_store(&f, entries);
}

static void what_cannot_be_read_is_lost_only_to_who_asks(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    assert_ok(open_store(t, &f, 1 << 20, 0, entries));
    assert_true(spw_entry_read_ahead(entries[0]));
    io_fault_arm_call("spill_read", 1, EIO);
    assert_true(read_one(&f));
    assert_int_equal(spw_entry_forms(entries[0]), SPW_ENTRY_ON_DISK);
    assert_int_equal(f.store->ahead_bytes, 0);
    assert_ok(store_fixture_check(t, entries[0], 0, SIZE));
    assert_int_equal(store_fixture_figures(&f).losses, 0);
    close_store(&f, entries);
}

static void a_store_that_closes_reads_nothing(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    assert_ok(open_store(t, &f, 1 << 20, 0, entries));
    assert_true(spw_entry_read_ahead(entries[0]));
    assert_true(spw_entry_read_ahead(entries[1]));
    assert_true(read_one(&f));
    spw_store_close(f.store);
    assert_false(spw_entry_read_ahead(entries[2]));
    close_store(&f, entries);
    assert_int_equal(io_fault_calls_of("spill_read"), 1);
}

static void one_that_is_small_or_larger_than_the_target_is_not_read(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *small;
    assert_ok(open_store(t, &f, 1 << 20, SIZE - 1, entries));
    assert_false(spw_entry_read_ahead(entries[0])); /* larger than that */
    assert_ok(store_fixture_put(t, &f, 9, 100, &small));
    assert_ok(spw_entry_spill(small, NULL));
    assert_false(spw_entry_read_ahead(small));
    spw_store_remove(small);
    close_store(&f, entries);
}

int main(void)
{
    const struct CMUnitTest scenarios[] = {
        SCENARIO(who_comes_need_not_wait_for_a_disk),
    };
    const struct CMUnitTest tests[] = {
        SCENARIO(bug_one_that_was_revived_stayed_among_those_read_ahead),
        SCENARIO(only_so_much_at_once),
        SCENARIO(who_comes_before_it_has_begun_reads_at_once),
        SCENARIO(one_that_is_removed_is_not_read),
        SCENARIO(a_monitor_drops_it_first_and_nothing_is_read_for_a_while),
        SCENARIO(nothing_leaves_for_it_and_it_does_not_come_above_the_target),
        SCENARIO(what_cannot_be_read_is_lost_only_to_who_asks),
        SCENARIO(a_store_that_closes_reads_nothing),
        SCENARIO(one_that_is_small_or_larger_than_the_target_is_not_read),
    };
    int failures = cmocka_run_group_tests(scenarios, NULL, NULL) +
                   cmocka_run_group_tests(tests, NULL, NULL);
    return failures + TORTURE_SUITE("read_ahead", scenarios);
}
