/* Values that are larger than the target: they go to disk, and no other in their place,
 * however they come. */
#include <string.h>

#include "io_fault.h"
#include "spillway/store.h"
#include "store_fixture.h"

enum { TARGET = 400000, SIZE = 100000, LARGE = 500000, COUNT = 3 };

/* A store that is nearly full. */
static spw_status open_store(torture *t, store_fixture *f, spw_entry **entries)
{
    memset(entries, 0, COUNT * sizeof(spw_entry *));
    spw_status status = store_fixture_open(t, f, TARGET);
    for (unsigned i = 0; i < COUNT && status == SPW_STATUS_OK; i++)
        status = store_fixture_put(t, f, i, SIZE, &entries[i]);
    return status;
}

static void close_store(store_fixture *f, spw_entry **entries, spw_entry *large)
{
    if (f->has_worker)
        store_fixture_wait_until_quiet(f);
    for (int i = 0; i < COUNT; i++)
        if (entries[i] != NULL)
            assert_int_equal(spw_entry_forms(entries[i]), SPW_ENTRY_LIVE);
    store_fixture_remove_all(entries, COUNT);
    store_fixture_remove_all(&large, 1);
    store_fixture_close(f);
}

static spw_status put_spilled(torture *t, store_fixture *f, stored_object *object,
                              spw_entry **ret_entry)
{
    return spw_store_put_spilled(f->store, "large", 5, object, LARGE, ret_entry,
                                 &t->error);
}

static void one_that_is_put_spilled_drives_nobody_out(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *large = NULL;
    stored_object *object = NULL;
    TRY(open_store(t, &f, entries));
    object = stored_object_create(&f.objects, 9, LARGE);
    TRY(put_spilled(t, &f, object, &large));
    object = NULL;
    assert_int_equal(spw_entry_forms(large), SPW_ENTRY_ON_DISK);
    assert_int_equal(f.objects.live, COUNT);
    /* Nor does it when it is used, and goes again then. */
    TRY(store_fixture_check(t, large, 9, LARGE));
    assert_int_equal(store_fixture_figures(&f).live.count, COUNT + 1);
    assert_int_equal(store_fixture_figures(&f).leaving_bytes, LARGE);
    spw_store_event event;
    spw_store_work(f.store, 0, &event);
    assert_int_equal(event.kind, SPW_STORE_LEFT);
    assert_int_equal(spw_entry_forms(large), SPW_ENTRY_ON_DISK);
    assert_int_equal(f.objects.packs, 1);
end:
    if (object != NULL)
        stored_object_unref(object);
    close_store(&f, entries, large);
}

static void one_that_came_drives_nobody_out(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *large[2];
    assert_ok(open_store(t, &f, entries));
    store_fixture_start_work(&f);
    assert_ok(store_fixture_put_packed(t, &f, 8, LARGE, &large[0]));
    assert_ok(store_fixture_put(t, &f, 9, LARGE, &large[1]));
    store_fixture_wait_until_quiet(&f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(spw_entry_forms(large[i]), SPW_ENTRY_ON_DISK);
    assert_int_equal(f.objects.packs, 1);
    spw_store_remove(large[0]);
    close_store(&f, entries, large[1]);
}

/* In the middle of packing: others come, and leave or not for themselves. */
typedef struct newcomer {
    torture *t;
    store_fixture *f;
    spw_entry *entry;
} newcomer;

static void come(void *user)
{
    newcomer *self = user;
    self->f->objects.during = NULL;
    assert_ok(store_fixture_put(self->t, self->f, 20, SIZE / 2, &self->entry));
    assert_int_equal(spw_entry_forms(self->entry), SPW_ENTRY_LIVE);
    assert_int_equal(store_fixture_figures(self->f).leaving_bytes, LARGE);
}

static void others_that_come_meanwhile_stay_as_well(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *large;
    assert_ok(open_store(t, &f, entries));
    newcomer self = {.t = t, .f = &f};
    f.objects.during = come;
    f.objects.user = &self;
    assert_ok(put_spilled(t, &f, stored_object_create(&f.objects, 9, LARGE), &large));
    assert_non_null(self.entry);
    spw_store_remove(self.entry);
    close_store(&f, entries, large);
}

static void one_that_cannot_be_packed_stays_its_owners(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *large = NULL;
    assert_ok(open_store(t, &f, entries));
    store_fixture_start_work(&f);
    stored_object *object = stored_object_create(&f.objects, 9, LARGE);
    object->cannot_pack = true;
    assert_status(put_spilled(t, &f, object, &large), UNSUPPORTED);
    store_fixture_wait_until_quiet(&f);
    stored_object_check(object, 9, LARGE);
    assert_int_equal(object->references, 1);
    stored_object_unref(object);
    assert_int_equal(f.failed, 0); /* who asked has been told */
    assert_int_equal(store_fixture_figures(&f).live.count, COUNT);
    close_store(&f, entries, NULL);
}

static void one_that_cannot_be_packed_is_asked_once(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *large;
    assert_ok(open_store(t, &f, entries));
    stored_object *object = stored_object_create(&f.objects, 9, LARGE);
    object->cannot_pack = true;
    assert_ok(spw_store_put(f.store, "a key", 5, object, LARGE, &large, &t->error));
    assert_status(spw_entry_spill(large, &t->error), UNSUPPORTED);
    assert_int_equal(spw_entry_forms(large), SPW_ENTRY_LIVE);
    assert_int_equal(store_fixture_figures(&f).leaving_bytes, 0);
    close_store(&f, entries, large);
}

static void one_that_waits_to_leave_is_written_by_who_asks(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entries[COUNT], *large;
    assert_ok(open_store(t, &f, entries));
    assert_ok(store_fixture_put(t, &f, 9, LARGE, &large)); /* in the list leaving */
    assert_int_equal(store_fixture_figures(&f).leaving_bytes, LARGE);
    assert_ok(spw_entry_spill(large, NULL));
    assert_int_equal(spw_entry_forms(large), SPW_ENTRY_ON_DISK);
    assert_int_equal(store_fixture_figures(&f).leaving_bytes, 0);
    close_store(&f, entries, large);
}

int main(void)
{
    const struct CMUnitTest scenarios[] = {
        SCENARIO(one_that_is_put_spilled_drives_nobody_out),
    };
    const struct CMUnitTest tests[] = {
        SCENARIO(one_that_came_drives_nobody_out),
        SCENARIO(others_that_come_meanwhile_stay_as_well),
        SCENARIO(one_that_cannot_be_packed_stays_its_owners),
        SCENARIO(one_that_cannot_be_packed_is_asked_once),
        SCENARIO(one_that_waits_to_leave_is_written_by_who_asks),
    };
    int failures = cmocka_run_group_tests(scenarios, NULL, NULL) +
                   cmocka_run_group_tests(tests, NULL, NULL);
    return failures + TORTURE_SUITE("spill_now", scenarios);
}
