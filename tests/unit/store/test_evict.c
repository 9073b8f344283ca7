/* What leaves memory, and what that is told to be: with a disk that is full, or
 * need not be asked. */
#include <string.h>

#include "disk_fault.h"
#include "store/store_state.h"
#include "store_fixture.h"

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
        SCENARIO(bug_what_is_clean_stayed_behind_what_a_full_disk_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
