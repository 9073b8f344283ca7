/* Space given back, a step at a time: what moves from files of which little is wanted.
 */
#include <sched.h>
#include <string.h>

#include "disk_fault.h"
#include "spillway/stored_ranges.h"
#include "store/store_state.h"
#include "store_fixture.h"

/* Three fit in a file. */
enum { SIZE = 100000, FILE_BYTES = 400000, IN_FILE = 3, COUNT = IN_FILE + 1 };

/* In a directory that is nearly full with so many of them. */
static void open_stepped(torture *t, store_fixture *f, unsigned count)
{
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.file_bytes = FILE_BYTES;
    assert_ok(store_fixture_open_as(t, f, &options, count * SIZE * 13 / 10, true));
}

static void run_jobs(const store_fixture *f)
{
    while (spw__worker_pool_run_one(f->store->pool))
        ;
}

/* A file of which one value is left, and one that is not full. number: of the values,
 * which says of how many slices they are. Returns: how much is on disk. */
static uint64_t leave_one(torture *t, store_fixture *f, unsigned number,
                          spw_entry **entries)
{
    for (unsigned i = 0; i < COUNT; i++) {
        assert_ok(store_fixture_put_packed(t, f, number, SIZE, &entries[i]));
        assert_ok(spw_entry_spill(entries[i], NULL));
    }
    assert_int_equal(store_fixture_figures(f).files, 2);
    store_fixture_remove_all(&entries[1], IN_FILE - 1);
    return store_fixture_figures(f).disk_bytes;
}

static void what_is_left_moves_and_the_file_goes(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    open_stepped(t, &f, COUNT);
    uint64_t before = leave_one(t, &f, 1, entries);
    run_jobs(&f);
    assert_true(store_fixture_figures(&f).moved_bytes >= SIZE);
    assert_true(store_fixture_figures(&f).disk_bytes < before);
    assert_int_equal(store_fixture_figures(&f).files, 1);
    assert_ok(store_fixture_check(t, entries[0], 1, SIZE));
    spw_store_remove(entries[0]);
    spw_store_remove(entries[COUNT - 1]);
    store_fixture_close(&f);
}

/* There is no room when it is to move; later there is. */
static void what_had_no_room_moves_when_there_is_some(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT];
    open_stepped(t, &f, COUNT);
    (void)leave_one(t, &f, 1, entries);
    disk_fault_room(0);
    run_jobs(&f);
    assert_int_equal(store_fixture_figures(&f).moved_bytes, 0);
    assert_int_equal(store_fixture_figures(&f).files, 2);
    disk_fault_room(UINT64_MAX);
    spw_entry *last;
    assert_ok(store_fixture_put_packed(t, &f, 2, 1000, &last));
    assert_ok(spw_entry_spill(last, NULL)); /* whereupon it is looked at again */
    run_jobs(&f);
    assert_true(store_fixture_figures(&f).moved_bytes >= SIZE);
    assert_int_equal(store_fixture_figures(&f).files, 1);
    assert_ok(store_fixture_check(t, entries[0], 1, SIZE));
    spw_store_remove(entries[0]);
    spw_store_remove(entries[COUNT - 1]);
    spw_store_remove(last);
    store_fixture_close(&f);
}

/* A disk that lies once, while bytes move: what it said was written, and the file in
 * which they were right was closed. */
static void bug_a_move_kept_what_a_disk_said_wrong(void **state)
{
    torture *t = *state;
    static const uint64_t BITS[] = {0, 8 * 700, 8 * (64 + SIZE - 1)};
    for (size_t i = 0; i < COUNT_OF(BITS); i++) {
        store_fixture f;
        spw_entry *entries[COUNT];
        open_stepped(t, &f, COUNT);
        uint64_t before = leave_one(t, &f, 3, entries);
        disk_fault_corrupt(1, BITS[i]);
        run_jobs(&f);
        assert_int_equal(store_fixture_figures(&f).moved_bytes, 0);
        assert_int_equal(store_fixture_figures(&f).disk_bytes, before);
        assert_ok(store_fixture_check(t, entries[0], 3, SIZE));
        spw_store_remove(entries[0]);
        spw_store_remove(entries[COUNT - 1]);
        store_fixture_close(&f);
    }
    assert_int_equal(t->log_lines, COUNT_OF(BITS));
    assert_non_null(strstr(t->last_log_line, "stays as it is"));
}

/* The last value of a file is removed while it is to move. */
static void remove_meanwhile(void *argument, disk_fault_way way)
{
    spw_entry *entry = argument;
    spw_store *store = entry->store;
    assert_int_equal(way, DISK_FAULT_CREATING);
    disk_fault_during(0, NULL, NULL);
    spw_store_remove(entry);
    assert_true(spw__segments_collect(store->segments) > 0);
}

static void bug_a_file_was_asked_for_that_had_gone(void **state)
{
    torture *t = *state;
    enum { FILES = 2 };
    store_fixture f;
    spw_entry *entries[FILES * IN_FILE];
    open_stepped(t, &f, FILES * IN_FILE);
    for (unsigned i = 0; i < COUNT_OF(entries); i++) {
        assert_ok(store_fixture_put_packed(t, &f, 1, SIZE, &entries[i]));
        assert_ok(spw_entry_spill(entries[i], NULL));
    }
    /* A third file goes at once, and none is open: what moves needs a new one. */
    spw_entry *last;
    assert_ok(store_fixture_put_packed(t, &f, 1, SIZE, &last));
    assert_ok(spw_entry_spill(last, NULL));
    spw_store_remove(last);
    store_fixture_remove_all(&entries[1], IN_FILE - 1);
    assert_int_equal(store_fixture_figures(&f).moved_bytes, 0);
    disk_fault_during(DISK_FAULT_CREATING, remove_meanwhile, entries[0]);
    run_jobs(&f);
    assert_int_equal(store_fixture_figures(&f).moved_bytes, 0);
    assert_int_equal(store_fixture_figures(&f).files, 1);
    store_fixture_remove_all(&entries[IN_FILE], IN_FILE);
    store_fixture_close(&f);
}

/* Slices that are larger than what is copied at once. */
static void large_slices_move_too(void **state)
{
    torture *t = *state;
    enum { LARGE = 9 << 20 };
    store_fixture f;
    spw_entry *entries[4];
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    assert_ok(store_fixture_open_as(t, &f, &options, 10 * LARGE, false));
    for (unsigned i = 0; i < 4; i++) {
        assert_ok(store_fixture_put_packed(t, &f, 3, i == 0 ? LARGE : 2 * LARGE,
                                           &entries[i]));
        assert_ok(spw_entry_spill(entries[i], NULL));
    }
    spw_entry *last; /* which seals the first file */
    assert_ok(store_fixture_put_packed(t, &f, 3, LARGE, &last));
    assert_ok(spw_entry_spill(last, NULL));
    store_fixture_remove_all(&entries[1], 3);
    while (store_fixture_figures(&f).moved_bytes < LARGE)
        (void)sched_yield();
    assert_ok(store_fixture_check(t, entries[0], 3, LARGE));
    spw_store_remove(entries[0]);
    spw_store_remove(last);
    store_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(what_is_left_moves_and_the_file_goes),
        SCENARIO(what_had_no_room_moves_when_there_is_some),
        SCENARIO(bug_a_move_kept_what_a_disk_said_wrong),
        SCENARIO(bug_a_file_was_asked_for_that_had_gone),
        SCENARIO(large_slices_move_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
