/* The store with its threads: values leave memory and come back, whatever is done to
 * them meanwhile, and whatever the disk does. */
#include "spillway/store.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "disk_fault.h"
#include "fake_system.h"
#include "io_fault.h"
#include "store/read_back.h"
#include "store/segments.h"
#include "store_fixture.h"

/* ----- scenarios ----- */

static void a_value_is_spilled_and_comes_back(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entry = NULL;
    enum { SIZE = 300000 };
    TRY(store_fixture_open(t, &f, 0));
    TRY(store_fixture_put(t, &f, 1, SIZE, &entry));
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_LIVE);
    TRY(spw_entry_spill(entry, &t->error));
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_ON_DISK);
    assert_int_equal(f.objects.live, 0);
    TRY(store_fixture_check(t, entry, 1, SIZE));
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_LIVE | SPW_ENTRY_ON_DISK);
    assert_int_equal(f.objects.unpacks, 1);
end:
    store_fixture_remove_all(&entry, 1);
    store_fixture_close(&f);
}

static void a_packed_value_goes_as_it_is(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entry = NULL;
    spw_payload *sent = NULL, *read = NULL;
    spw__read_back_figures read_figures = {0};
    enum { SIZE = 200000 };
    TRY(store_fixture_open(t, &f, 0));
    TRY(store_fixture_put_packed(t, &f, 2, SIZE, &entry));
    TRY(spw_entry_payload(entry, &sent, &t->error));
    stored_object_check_payload(sent, 2, SIZE);
    spw_payload_free(sent);
    sent = NULL;
    TRY(spw_entry_spill(entry, &t->error));
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_ON_DISK);
    TRY(spw_entry_payload(entry, &sent, &t->error));
    for (size_t i = 0; i < spw_payload_count(sent); i++)
        assert_int_equal(spw_payload_slices(sent)[i].kind, SPW_MEMORY_FILE);
    /* What is being sent stays, though the value goes. */
    spw_store_remove(entry);
    entry = NULL;
    TRY(spw__read_back(t->context, sent, false, &read, &read_figures, &t->error));
    stored_object_check_payload(read, 2, SIZE);
    assert_int_equal(f.objects.packs + f.objects.unpacks, 0);
end:
    spw_payload_free(read);
    spw_payload_free(sent);
    store_fixture_remove_all(&entry, 1);
    store_fixture_close(&f);
}

static void many_leave_for_the_target(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 40, SIZE = 200000, TARGET = 10 * SIZE };
    spw_entry *entries[COUNT] = {NULL};
    TRY(store_fixture_open(t, &f, TARGET));
    store_fixture_start_work(&f);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % 3 == 0)
            TRY(store_fixture_put_packed(t, &f, i, SIZE + i, &entries[i]));
        else
            TRY(store_fixture_put(t, &f, i, SIZE + i, &entries[i]));
    }
    store_fixture_wait_until_quiet(&f);
    if (f.failed > 0) {
        t->status = f.last_status; /* it is full of faults */
        goto end;
    }
    assert_true(store_fixture_figures(&f).live.weight +
                    store_fixture_figures(&f).packed.weight <=
                TARGET);
    for (unsigned i = 0; i < COUNT; i++)
        TRY(store_fixture_check(t, entries[i], i, SIZE + i));
end:
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(&f);
}

/* ----- tests ----- */

static void a_clean_value_leaves_without_a_write(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entry;
    enum { SIZE = 2 << 20 };
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_put(t, &f, 3, SIZE, &entry));
    store_fixture_start_work(&f);
    assert_ok(spw_entry_spill(entry, NULL));
    uint64_t writes = io_fault_calls_of("spill_write");
    assert_true(writes > 0);
    for (int i = 0; i < 3; i++) {
        assert_ok(store_fixture_check(t, entry, 3, SIZE));
        assert_int_equal(spw_store_evict(f.store, 1), SIZE);
        store_fixture_wait_until_quiet(&f);
        assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_ON_DISK);
    }
    assert_int_equal(f.objects.packs, 1);
    assert_int_equal(io_fault_calls_of("spill_write"), writes);
    assert_int_equal(store_fixture_figures(&f).writes, 1);
    assert_int_equal(store_fixture_figures(&f).drops, 3);
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void removing_reads_nothing_and_gives_the_space_back(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 10, SIZE = 1 << 20 };
    spw_entry *entries[COUNT];
    assert_ok(store_fixture_open(t, &f, 0));
    for (unsigned i = 0; i < COUNT; i++) {
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
        assert_ok(spw_entry_spill(entries[i], NULL));
    }
    assert_true(store_fixture_figures(&f).disk_bytes >= COUNT * SIZE);
    store_fixture_remove_all(entries, COUNT);
    assert_int_equal(io_fault_calls_of("spill_read"), 0);
    assert_int_equal(f.objects.unpacks, 0);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, 0);
    store_fixture_close(&f);
}

typedef struct asker {
    pthread_t thread;
    spw_entry *entry;
    stored_object *object;
} asker;

static void *ask(void *user)
{
    asker *self = user;
    void *object;
    assert_ok(spw_entry_acquire(self->entry, &object, NULL));
    self->object = object;
    return NULL;
}

static void however_many_ask_it_is_unpacked_once(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entry;
    enum { ASKERS = 8, SIZE = 1 << 20 };
    asker askers[ASKERS];
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_put(t, &f, 4, SIZE, &entry));
    assert_ok(spw_entry_spill(entry, NULL));
    for (int i = 0; i < ASKERS; i++) {
        askers[i].entry = entry;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < ASKERS; i++) {
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
        assert_ptr_equal(askers[i].object, askers[0].object);
    }
    assert_int_equal(f.objects.unpacks, 1);
    assert_int_equal(store_fixture_figures(&f).reads, 1);
    for (int i = 0; i < ASKERS; i++) {
        /* It is pinned: nothing can leave. */
        assert_int_equal(spw_store_evict(f.store, UINT64_MAX), -1);
        stored_object_unref(askers[i].object);
        spw_entry_unpin(entry);
    }
    assert_int_equal(spw_store_evict(f.store, UINT64_MAX), SIZE);
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void what_cannot_be_packed_is_asked_once(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20 };
    spw_entry *entry;
    assert_ok(store_fixture_open(t, &f, 0));
    stored_object *object = stored_object_create(&f.objects, 5, SIZE);
    object->cannot_pack = true;
    assert_ok(spw_store_put(f.store, "stubborn", 8, object, SIZE, &entry, NULL));
    store_fixture_start_work(&f);
    assert_int_equal(spw_store_evict(f.store, SIZE), SIZE);
    store_fixture_wait_until_quiet(&f);
    while (f.failed == 0)
        (void)sched_yield();
    assert_string_equal(f.last_failure, "this object cannot be packed");
    assert_int_equal(spw_store_evict(f.store, SIZE), -1);
    assert_int_equal(f.objects.packs, 1);
    assert_int_equal(f.failed, 1);
    assert_ok(store_fixture_check(t, entry, 5, SIZE));
    spw_error error;
    assert_status(spw_entry_spill(entry, &error), UNSUPPORTED);
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void a_full_disk_is_said_once_and_asked_again_when_there_is_space(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 6, SIZE = 1 << 20, ROOM = 2 * SIZE + SIZE / 2 };
    spw_entry *entries[COUNT];
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    assert_ok(store_fixture_open_with(t, &f, &options, ROOM));
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
    store_fixture_start_work(&f);
    for (int i = 0; i < 20; i++) {
        (void)spw_store_evict(f.store, UINT64_MAX);
        store_fixture_wait_until_quiet(&f);
    }
    assert_int_equal(store_fixture_figures(&f).on_disk.count, 2);
    assert_int_equal(store_fixture_figures(&f).live.count, COUNT - 2);
    assert_int_equal(f.failed, 1);
    assert_int_equal(f.last_status, SPW_STATUS_LIMIT_EXCEEDED);
    assert_int_equal(spw_store_evict(f.store, UINT64_MAX), -1);
    spw_store_remove(entries[0]);
    spw_store_remove(entries[1]);
    entries[0] = entries[1] = NULL;
    /* Once the space is back, it is asked again. */
    while (store_fixture_figures(&f).on_disk.count == 0) {
        (void)spw_store_evict(f.store, UINT64_MAX);
        store_fixture_wait_until_quiet(&f);
    }
    for (unsigned i = 2; i < COUNT; i++)
        assert_ok(store_fixture_check(t, entries[i], i, SIZE));
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(&f);
}

static void bug_a_disk_that_failed_at_once_was_asked_without_end(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 3, SIZE = 1 << 20 };
    spw_entry *entries[COUNT];
    disk_fault_room(0);
    assert_ok(store_fixture_open(t, &f, SIZE));
    store_fixture_start_work(&f);
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
    while (f.failed == 0)
        (void)sched_yield();
    for (int i = 0; i < 20; i++) {
        (void)spw_store_evict(f.store, UINT64_MAX);
        store_fixture_wait_until_quiet(&f);
    }
    assert_int_equal(f.failed, 1);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, 0);
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(&f);
}

/* Of two directories the first takes nothing. A value of several writes goes as a
 * whole to the other, and so do the next ones, without asking the first again. */
static void what_one_directory_cannot_take_another_one_does(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 3, SIZE = 1 << 20 };
    spw_entry *entries[COUNT];
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.directory_count = 2;
    assert_ok(store_fixture_open_as(t, &f, &options, 0, false));
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_put_packed(t, &f, i, SIZE, &entries[i]));
    io_fault_arm_call("spill_write", 1, ENOSPC);
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(spw_entry_spill(entries[i], NULL));
    assert_int_equal(store_fixture_figures(&f).failures, 0);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, COUNT);
    assert_int_equal(store_fixture_figures(&f).files,
                     1); /* of the first none is left */
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_check(t, entries[i], i, SIZE));
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(&f);
}

static void where_none_takes_it_the_value_stays(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20 };
    spw_entry *entry;
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.directory_count = 2;
    disk_fault_room(0);
    assert_ok(store_fixture_open_as(t, &f, &options, 0, false));
    assert_ok(store_fixture_put_packed(t, &f, 1, SIZE, &entry));
    assert_int_equal(spw_entry_spill(entry, &t->error), SPW_STATUS_IO);
    assert_non_null(strstr(t->error.message, "cannot write"));
    assert_int_equal(store_fixture_figures(&f).failures, 1);
    assert_int_equal(store_fixture_figures(&f).disk_bytes, 0);
    assert_ok(store_fixture_check(t, entry, 1, SIZE));
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void what_a_disk_says_wrong_is_lost_and_never_taken(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 100000 };
    spw_entry *entry;
    void *object;
    spw_error error;
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_put(t, &f, 6, SIZE, &entry));
    assert_ok(spw_entry_spill(entry, NULL));
    disk_fault_corrupt(1, 800001);
    assert_status(spw_entry_acquire(entry, &object, &error), CORRUPT);
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_LOST);
    assert_status(spw_entry_acquire(entry, &object, &error), CORRUPT);
    assert_non_null(strstr(error.message, "a key"));
    assert_int_equal(f.objects.unpacks, 0);
    assert_int_equal(store_fixture_figures(&f).losses, 1);
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void a_removed_value_lives_on_for_who_has_it(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20 };
    spw_entry *entry;
    void *object;
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_put(t, &f, 7, SIZE, &entry));
    assert_ok(spw_entry_spill(entry, NULL));
    (void)spw_entry_ref(entry);
    assert_ok(spw_entry_acquire(entry, &object, NULL));
    spw_store_remove(entry);
    stored_object_check(object, 7, SIZE);
    stored_object_unref(object);
    assert_int_equal(f.objects.live, 1);
    spw_entry_unpin(entry);
    spw_error error;
    spw_store_event event;
    spw_store_work(f.store, 0, &event); /* it is large: it goes by work */
    assert_int_equal(f.objects.live, 0);
    assert_status(spw_entry_acquire(entry, &object, &error), CLOSED);
    spw_entry_unref(entry);
    store_fixture_close(&f);
}

/* Bytes of which a third is still wanted move together, and the file goes. */
static void sparse_files_are_emptied(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { SIZE = 1 << 20, COUNT = 2 * (SPW__SEGMENT_BYTES / SIZE) };
    static spw_entry *entries[COUNT];
    memset(entries, 0, sizeof entries);
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    assert_ok(
        store_fixture_open_as(t, &f, &options, (uint64_t)COUNT * SIZE * 5 / 4, false));
    for (unsigned i = 0; i < COUNT; i++) {
        assert_ok(store_fixture_put_packed(t, &f, 4 * i + 3, SIZE - 100, &entries[i]));
        assert_ok(spw_entry_spill(entries[i], NULL));
    }
    uint64_t before = store_fixture_figures(&f).disk_bytes;
    for (unsigned i = 0; i < COUNT; i++)
        if (i % 3 != 0) {
            spw_store_remove(entries[i]);
            entries[i] = NULL;
        }
    while (store_fixture_figures(&f).disk_bytes >= before)
        (void)sched_yield();
    for (unsigned i = 0; i < COUNT; i++)
        if (entries[i] != NULL)
            assert_ok(store_fixture_check(t, entries[i], 4 * i + 3, SIZE - 100));
    assert_true(store_fixture_figures(&f).moved_bytes > 0);
    store_fixture_remove_all(entries, COUNT);
    store_fixture_close(&f);
}

static void an_eviction_is_enough_while_its_bytes_are_under_way(void **state)
{
    torture *t = *state;
    store_fixture f;
    enum { COUNT = 10, SIZE = 1 << 20 };
    spw_entry *entries[COUNT];
    spw_store_event event;
    assert_ok(store_fixture_open(t, &f, 0));
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_put(t, &f, i, SIZE, &entries[i]));
    /* Nobody knows how large the first is, packed. */
    assert_int_equal(spw_store_evict(f.store, 3 * SIZE), SIZE);
    assert_int_equal(spw_store_evict(f.store, 3 * SIZE), -1);
    spw_store_work(f.store, -1, &event);
    assert_int_equal(event.kind, SPW_STORE_LEFT);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, 1);
    /* A packed one is known at once. */
    spw_entry *packed[3];
    for (unsigned i = 0; i < 3; i++)
        assert_ok(store_fixture_put_packed(t, &f, i, 4 * SIZE, &packed[i]));
    store_fixture_remove_all(entries, COUNT);
    spw_store_work(f.store, 0, &event); /* they are large: they go by work */
    assert_int_equal(store_fixture_figures(&f).live.count, 0);
    assert_int_equal(spw_store_evict(f.store, 5 * SIZE), 4 * SIZE);
    assert_int_equal(spw_store_evict(f.store, 5 * SIZE), 4 * SIZE);
    assert_int_equal(spw_store_evict(f.store, 5 * SIZE), -1);
    store_fixture_remove_all(packed, 3);
    store_fixture_close(&f);
}

static void a_closed_store_answers_everybody(void **state)
{
    torture *t = *state;
    store_fixture f;
    spw_entry *entry;
    void *object;
    spw_error error;
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_put(t, &f, 8, 1000, &entry));
    assert_ok(spw_entry_spill(entry, NULL));
    store_fixture_start_work(&f);
    spw_store_close(f.store);
    assert_int_equal(pthread_join(f.worker, NULL), 0);
    f.has_worker = false;
    assert_status(spw_entry_acquire(entry, &object, &error), CLOSED);
    assert_status(spw_entry_spill(entry, &error), CLOSED);
    assert_int_equal(spw_store_evict(f.store, 1), -1);
    spw_store_free(f.store);
    f.store = NULL;
    spw_store_remove(entry); /* an entry outlives its store */
    store_fixture_close(&f);
}

static void compressed_values_come_back(void **state)
{
    torture *t = *state;
    const spw_codec_id codecs[] = {SPW_CODEC_LZ4, SPW_CODEC_ZSTD, SPW_CODEC_ZLIB,
                                   SPW_CODEC_SNAPPY};
    for (size_t i = 0; i < COUNT_OF(codecs); i++) {
        store_fixture f;
        spw_entry *entry;
        enum { SIZE = 1 << 20 };
        spw_store_options options = SPW_STORE_OPTIONS_INIT;
        options.codec = codecs[i];
        assert_ok(store_fixture_open_with(t, &f, &options, 0));
        assert_ok(store_fixture_put(t, &f, 11, SIZE, &entry));
        assert_ok(spw_entry_spill(entry, NULL));
        assert_true(store_fixture_figures(&f).on_disk.bytes < SIZE / 2);
        assert_ok(store_fixture_check(t, entry, 11, SIZE));
        assert_true(store_fixture_figures(&f).compress_ns > 0 &&
                    store_fixture_figures(&f).decompress_ns > 0);
        spw_store_remove(entry);
        store_fixture_close(&f);
    }
}

static void options_that_cannot_be_are_refused(void **state)
{
    torture *t = *state;
    spw_error error;
    spw_store *store;
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    assert_status(spw_store_create(t->context, &options, &store, &error),
                  INVALID_ARGUMENT);
    options.ops = stored_object_ops;
    options.codec = 77;
    assert_status(spw_store_create(t->context, &options, &store, &error),
                  INVALID_ARGUMENT);
    spw_store_directory nowhere = {.path = "/nonexistent/spillway"};
    options.codec = SPW_CODEC_NONE;
    options.directories = &nowhere;
    options.directory_count = 1;
    assert_status(spw_store_create(t->context, &options, &store, &error), IO);
    assert_non_null(strstr(error.message, "/nonexistent/spillway"));
}

static void without_a_directory_nothing_leaves(void **state)
{
    torture *t = *state;
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    stored_objects objects = {.context = t->context};
    spw_store *store;
    spw_entry *entry;
    spw_error error;
    options.ops = stored_object_ops;
    options.self = &objects;
    options.target_bytes = 1;
    assert_ok(spw_store_create(t->context, &options, &store, NULL));
    assert_ok(spw_store_put(store, "k", 1, stored_object_create(&objects, 1, 1 << 20),
                            1 << 20, &entry, NULL));
    assert_int_equal(spw_store_evict(store, UINT64_MAX), -1);
    assert_status(spw_entry_spill(entry, &error), UNSUPPORTED);
    spw_store_remove(entry);
    spw_store_free(store);
    assert_int_equal(objects.live, 0);
}

int main(void)
{
    const struct CMUnitTest scenarios[] = {
        SCENARIO(a_value_is_spilled_and_comes_back),
        SCENARIO(a_packed_value_goes_as_it_is),
    };
    const struct CMUnitTest tests[] = {
        SCENARIO(many_leave_for_the_target),
        SCENARIO(a_clean_value_leaves_without_a_write),
        SCENARIO(removing_reads_nothing_and_gives_the_space_back),
        SCENARIO(however_many_ask_it_is_unpacked_once),
        SCENARIO(what_cannot_be_packed_is_asked_once),
        SCENARIO(a_full_disk_is_said_once_and_asked_again_when_there_is_space),
        SCENARIO(bug_a_disk_that_failed_at_once_was_asked_without_end),
        SCENARIO(what_one_directory_cannot_take_another_one_does),
        SCENARIO(where_none_takes_it_the_value_stays),
        SCENARIO(what_a_disk_says_wrong_is_lost_and_never_taken),
        SCENARIO(a_removed_value_lives_on_for_who_has_it),
        SCENARIO(sparse_files_are_emptied),
        SCENARIO(an_eviction_is_enough_while_its_bytes_are_under_way),
        SCENARIO(a_closed_store_answers_everybody),
        SCENARIO(compressed_values_come_back),
        SCENARIO(options_that_cannot_be_are_refused),
        SCENARIO(without_a_directory_nothing_leaves),
    };
    int failures = cmocka_run_group_tests(scenarios, NULL, NULL) +
                   cmocka_run_group_tests(tests, NULL, NULL);
    return failures + TORTURE_SUITE("store", scenarios);
}
