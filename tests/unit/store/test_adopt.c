/* Values that stay in a file of a peer's: two stores, one of which has what the other
 * spilled, by descriptors that were duplicated as by handing them on. */
#include "store/adopt.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "disk_fault.h"
#include "file_payloads.h"
#include "handed_files.h"
#include "io_fault.h"
#include "memory/payload_slices.h"
#include "store_fixture.h"

enum { MIB = 1 << 20, SIZE = MIB + 77 };

/* A packed value of a number, on the disk of a store. */
static spw_status spill_one(torture *t, store_fixture *maker, unsigned number,
                            size_t size, spw_entry **ret_entry)
{
    spw_status status = store_fixture_put_packed(t, maker, number, size, ret_entry);
    return status == SPW_STATUS_OK ? spw_entry_spill(*ret_entry, &t->error) : status;
}

/* What a peer is handed of it. */
static spw_status hand_over(torture *t, spw_entry *entry, spw_payload **ret_payload)
{
    spw_payload *stored;
    spw_status status = spw_entry_payload(entry, &stored, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = handed_payload(t->context, stored, false, ret_payload, &t->error);
    spw_payload_free(stored);
    return status;
}

/* Takes: payload, on success only. */
static spw_status put(torture *t, store_fixture *f, spw_payload *payload, size_t weight,
                      spw_entry **ret_entry)
{
    return spw_store_put_packed(f->store, "adopted", 7, payload, weight, ret_entry,
                                &t->error);
}

static spw_status adopt(torture *t, store_fixture *f, spw_entry *of, size_t weight,
                        spw_entry **ret_entry)
{
    spw_payload *payload;
    spw_status status = hand_over(t, of, &payload);
    if (status != SPW_STATUS_OK)
        return status;
    status = put(t, f, payload, weight, ret_entry);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

/* ----- scenarios ----- */

static void a_value_is_adopted_and_comes_back(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *made = NULL, *entry = NULL;
    spw_status first = store_fixture_open(t, &maker, 0);
    TRY(store_fixture_open(t, &f, 0));
    TRY(first);
    TRY(spill_one(t, &maker, 1, SIZE, &made));
    TRY(adopt(t, &f, made, SIZE, &entry));
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_ON_DISK);
    TRY(store_fixture_check(t, entry, 1, SIZE));
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_LIVE | SPW_ENTRY_ON_DISK);
    TRY(spw_entry_spill(entry, &t->error)); /* it is there already */
end:
    store_fixture_remove_all(&entry, 1);
    store_fixture_remove_all(&made, 1);
    store_fixture_close(&f);
    store_fixture_close(&maker);
}

/* ----- what it has ----- */

static void nothing_is_written_and_one_descriptor_kept(void **state)
{
    torture *t = *state;
    enum { COUNT = 5 };
    store_fixture maker, f;
    spw_entry *made[COUNT], *entries[COUNT];
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, MIB));
    store_fixture_start_work(&f);
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(spill_one(t, &maker, i, SIZE, &made[i]));
    unsigned before = file_count_descriptors();
    uint64_t writes = io_fault_calls_of("spill_write");
    uint64_t reads = io_fault_calls_of("spill_read");
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(adopt(t, &f, made[i], SIZE, &entries[i]));
    assert_int_equal(file_count_descriptors(), before + 1);
    assert_int_equal(io_fault_calls_of("spill_read"), reads);
    spw_store_figures figures = store_fixture_figures(&f);
    assert_int_equal(figures.on_disk.count, COUNT);
    assert_int_equal(figures.on_disk.weight, COUNT * SIZE);
    assert_in_range(figures.on_disk.bytes, COUNT * SIZE, COUNT * (SIZE + SIZE / 10));
    assert_int_equal(figures.adopted, COUNT);
    assert_int_equal(figures.adopted_bytes, figures.on_disk.bytes);
    assert_int_equal(figures.files, 1);
    assert_in_range(figures.disk_bytes, COUNT * SIZE, COUNT * (SIZE + SIZE / 10));
    assert_int_equal(figures.live.count + figures.packed.count, 0);
    assert_int_equal(figures.received, 0);
    /* Read back, it is clean, and leaves as that. */
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(store_fixture_check(t, entries[i], i, SIZE));
    while (spw_store_evict(f.store, SIZE_MAX) > 0 || f.objects.live > 0)
        store_fixture_wait_until_quiet(&f);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(spw_entry_forms(entries[i]), SPW_ENTRY_ON_DISK);
    assert_int_equal(io_fault_calls_of("spill_write"), writes);
    store_fixture_remove_all(entries, COUNT);
    while (store_fixture_figures(&f).files > 0)
        (void)sched_yield();
    assert_int_equal(file_count_descriptors(), before);
    assert_int_equal(store_fixture_figures(&f).disk_bytes, 0);
    store_fixture_remove_all(made, COUNT);
    store_fixture_close(&f);
    store_fixture_close(&maker);
}

/* What is sent of it: its header from memory, and the rest from our own descriptor. */
static void it_is_sent_as_it_is_stored(void **state)
{
    torture *t = *state;
    store_fixture maker, f, third;
    spw_entry *made, *entry, *next;
    spw_payload *sent;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(store_fixture_open(t, &third, 0));
    assert_ok(spill_one(t, &maker, 2, SIZE, &made));
    assert_ok(adopt(t, &f, made, SIZE, &entry));
    spw_store_remove(made);
    store_fixture_close(&maker);
    assert_ok(spw_entry_payload(entry, &sent, NULL));
    const spw_slice *slices = spw_payload_slices(sent);
    assert_int_equal(slices[0].kind, SPW_MEMORY_HOST);
    for (size_t i = 1; i < spw_payload_count(sent); i++) {
        assert_int_equal(slices[i].kind, SPW_MEMORY_FILE);
        assert_ptr_equal(slices[i].file, slices[1].file);
    }
    /* It is what can be put as well: a third one has it in the same file. */
    assert_ok(put(t, &third, sent, SIZE, &next));
    spw_store_remove(entry);
    store_fixture_close(&f);
    assert_ok(store_fixture_check(t, next, 2, SIZE));
    spw_store_remove(next);
    store_fixture_close(&third);
}

/* ----- who goes first ----- */

static void it_stays_when_its_maker_goes(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *made, *entry;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(spill_one(t, &maker, 3, SIZE, &made));
    assert_ok(adopt(t, &f, made, SIZE, &entry));
    spw_store_remove(made);
    store_fixture_close(&maker);
    assert_int_equal(io_fault_open_descriptors(), 1);
    assert_ok(store_fixture_check(t, entry, 3, SIZE));
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void its_maker_keeps_it_when_the_adopter_goes(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *made, *entry;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(spill_one(t, &maker, 4, SIZE, &made));
    assert_ok(adopt(t, &f, made, SIZE, &entry));
    /* As a process that ends: with what it has. */
    spw_store_free(f.store);
    f.store = NULL;
    spw_store_remove(entry);
    store_fixture_close(&f);
    assert_ok(store_fixture_check(t, made, 4, SIZE));
    spw_store_remove(made);
    store_fixture_close(&maker);
}

typedef struct ending {
    store_fixture *maker;
    spw_entry *made;
} ending;

static void end_maker(void *argument, disk_fault_way way)
{
    ending *end = argument;
    assert_int_equal(way, DISK_FAULT_READING);
    disk_fault_during(0, NULL, NULL);
    spw_store_remove(end->made);
    store_fixture_close(end->maker);
}

static void its_maker_may_end_while_it_is_read(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *entry;
    ending end = {.maker = &maker};
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(spill_one(t, &maker, 3, 3 * MIB, &end.made));
    assert_ok(adopt(t, &f, end.made, 3 * MIB, &entry));
    disk_fault_during(DISK_FAULT_READING, end_maker, &end);
    assert_ok(store_fixture_check(t, entry, 3, 3 * MIB));
    spw_store_remove(entry);
    store_fixture_close(&f);
}

/* Of a large file of a maker that is no more little is wanted: that moves, header in
 * memory and all, and the file goes. */
static void what_is_left_of_a_peers_file_moves(void **state)
{
    torture *t = *state;
    enum { COUNT = 12, KEPT = 3 };
    store_fixture maker, f;
    spw_entry *made[COUNT], *entries[KEPT + 1];
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(spill_one(t, &maker, i, SIZE, &made[i]));
    for (unsigned i = 0; i <= KEPT; i++)
        assert_ok(adopt(t, &f, made[i], SIZE, &entries[i]));
    store_fixture_remove_all(made, COUNT);
    store_fixture_close(&maker);
    uint64_t adopted = store_fixture_figures(&f).on_disk.bytes;
    spw_store_remove(entries[KEPT]); /* whereupon space is collected */
    while (store_fixture_figures(&f).moved_bytes < adopted * KEPT / (KEPT + 1))
        (void)sched_yield();
    while (store_fixture_figures(&f).files != 1) /* of its own */
        (void)sched_yield();
    assert_int_equal(io_fault_open_descriptors(), 1);
    for (unsigned i = 0; i < KEPT; i++)
        assert_ok(store_fixture_check(t, entries[i], i, SIZE));
    assert_int_equal(store_fixture_figures(&f).losses, 0);
    store_fixture_remove_all(entries, KEPT);
    store_fixture_close(&f);
}

/* ----- what cannot be ----- */

/* A file that ends before what was said to be in it. */
static void one_that_is_not_all_there_is_lost(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *made, *entry;
    spw_payload *payload;
    void *object;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(spill_one(t, &maker, 3, SIZE, &made));
    assert_ok(hand_over(t, made, &payload));
    const spw_slice *slices = spw_payload_slices(payload);
    assert_int_equal(
        ftruncate(spw_file_descriptor(slices[1].file), (off_t)(slices[1].offset + 100)),
        0);
    assert_ok(put(t, &f, payload, SIZE, &entry));
    assert_status(spw_entry_acquire(entry, &object, &t->error), CORRUPT);
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_LOST);
    assert_int_equal(store_fixture_figures(&f).losses, 1);
    assert_int_equal(store_fixture_figures(&f).on_disk.count, 0);
    spw_store_remove(entry);
    spw_store_remove(made);
    store_fixture_close(&f);
    store_fixture_close(&maker);
}

typedef enum damage {
    HEADER_IN_FILE,
    HEADER_IN_FILE_ALONE,
    FRAME_IN_MEMORY,
    FRAME_IN_ANOTHER_FILE,
    BEYOND_ANY_DISK,
    NOTHING_BEHIND_THE_HEADER,
    DAMAGES
} damage;

static void replace_by_memory(torture *t, spw_slice *slice)
{
    spw_file_unref(slice->file);
    slice->kind = SPW_MEMORY_HOST;
    slice->offset = 0;
    assert_ok(spw_buffer_create(t->context, (size_t)slice->size, SPW_CHARGE_HELD,
                                &slice->buffer, NULL));
}

static void replace_by_file(spw_slice *slice, spw_file *file)
{
    if (slice->kind == SPW_MEMORY_FILE)
        spw_file_unref(slice->file);
    else
        spw_buffer_unref(slice->buffer);
    slice->kind = SPW_MEMORY_FILE;
    slice->file = spw_file_ref(file);
    slice->offset = 0;
}

static void spoil(torture *t, spw_payload *payload, damage what)
{
    spw_slice *slices = spw__payload_slices(payload);
    spw_file *other;
    assert_ok(spw_file_adopt(t->context, file_open(), &other, NULL));
    switch (what) {
    case HEADER_IN_FILE:
        replace_by_file(&slices[0], slices[1].file);
        break;
    case HEADER_IN_FILE_ALONE:
        replace_by_file(&slices[0], other);
        break;
    case FRAME_IN_MEMORY:
        replace_by_memory(t, &slices[2]);
        break;
    case FRAME_IN_ANOTHER_FILE:
        replace_by_file(&slices[2], other);
        break;
    case BEYOND_ANY_DISK:
        slices[2].offset = INT64_MAX - slices[2].size;
        break;
    default:
        for (size_t i = 1; i < spw_payload_count(payload); i++)
            slices[i].size = slices[i].plain_size = 0;
    }
    spw_file_unref(other);
}

static void what_is_no_value_of_one_file_is_refused(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *made, *entry = NULL;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(spill_one(t, &maker, 1, SIZE, &made));
    unsigned before = file_count_descriptors();
    for (int what = 0; what < DAMAGES; what++) {
        spw_payload *payload;
        assert_ok(hand_over(t, made, &payload));
        spoil(t, payload, (damage)what);
        assert_status(put(t, &f, payload, SIZE, &entry), INVALID_ARGUMENT);
        assert_true(strlen(t->error.message) > 0);
        spw_payload_free(payload);
    }
    assert_null(entry);
    assert_int_equal(file_count_descriptors(), before);
    assert_int_equal(store_fixture_figures(&f).adopted, 0);
    assert_int_equal(store_fixture_figures(&f).disk_bytes, 0);
    spw_store_remove(made);
    store_fixture_close(&f);
    store_fixture_close(&maker);
}

static void swap_first_frames(spw_payload *payload)
{
    spw_slice *slices = spw__payload_slices(payload);
    spw_slice first = slices[1];
    slices[1] = slices[2];
    slices[2] = first;
}

/* Let the first frame lie behind the second one, and what has no bytes in another file.
 */
static void disorder(torture *t, spw_payload *payload)
{
    size_t last = spw_payload_count(payload) - 1;
    spw_slice *slices = spw__payload_slices(payload);
    spw_file *other;
    assert_true(last > 3);
    assert_int_equal(slices[last].size, 0);
    assert_ok(spw_file_adopt(t->context, file_open(), &other, NULL));
    replace_by_file(&slices[last], other);
    spw_file_unref(other);
    swap_first_frames(payload);
}

/* Put in order, and adopted again, what such an entry has is the value. */
static void check_disordered(torture *t, store_fixture *f, spw_entry *entry,
                             unsigned number)
{
    spw_payload *payload;
    spw_entry *again;
    assert_ok(spw_entry_payload(entry, &payload, NULL));
    for (size_t i = 1; i < spw_payload_count(payload); i++)
        assert_ptr_equal(spw_payload_slices(payload)[i].file,
                         spw_payload_slices(payload)[1].file);
    swap_first_frames(payload);
    assert_ok(put(t, f, payload, SIZE, &again));
    assert_ok(store_fixture_check(t, again, number, SIZE));
    spw_store_remove(again);
}

/* Frames lie in any order, and what has no bytes is anywhere. */
static void order_and_what_is_empty_do_not_matter(void **state)
{
    torture *t = *state;
    enum { COUNT = 12 };
    store_fixture maker, f;
    spw_entry *made[COUNT], *entry, *other;
    spw_payload *payload;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    for (unsigned i = 0; i < COUNT; i++)
        assert_ok(spill_one(t, &maker, 2, SIZE, &made[i]));
    assert_ok(hand_over(t, made[COUNT - 1], &payload));
    disorder(t, payload);
    unsigned before = file_count_descriptors();
    assert_ok(put(t, &f, payload, SIZE, &entry));
    assert_int_equal(file_count_descriptors(), before - 1); /* of three there is one */
    check_disordered(t, &f, entry, 2);
    /* Nor when it moves, to near the beginning of another file. */
    assert_ok(adopt(t, &f, made[0], SIZE, &other));
    store_fixture_remove_all(made, COUNT);
    store_fixture_close(&maker);
    spw_store_remove(other);
    while (store_fixture_figures(&f).moved_bytes == 0)
        (void)sched_yield();
    check_disordered(t, &f, entry, 2);
    spw_store_remove(entry);
    store_fixture_close(&f);
}

static void note_release(void *user)
{
    ++*(int *)user;
}

/* A slice of the owner's own memory, with the same bytes. */
static void wrap(torture *t, spw_slice *slice, void *data, int *released)
{
    spw_buffer *buffer;
    assert_ok(spw_buffer_wrap(t->context, data, (size_t)slice->size, false,
                              note_release, released, &buffer, NULL));
    if (slice->kind == SPW_MEMORY_FILE)
        spw_file_unref(slice->file);
    else
        spw_buffer_unref(slice->buffer);
    slice->kind = SPW_MEMORY_HOST;
    slice->buffer = buffer;
    slice->offset = 0;
}

/* Threads of the store let go of what is on disk, and must not call the owner. */
static void nothing_of_its_owners_is_kept(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_entry *made, *entry;
    spw_payload *payload;
    char header[64];
    int released = 0;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    assert_ok(spill_one(t, &maker, 3, SIZE, &made));
    assert_ok(hand_over(t, made, &payload));
    spw_slice *slices = spw__payload_slices(payload);
    size_t last = spw_payload_count(payload) - 1;
    assert_true(slices[0].size <= sizeof header && slices[last].size == 0);
    memcpy(header, spw_slice_data(&slices[0]), (size_t)slices[0].size);
    wrap(t, &slices[0], header, &released);
    wrap(t, &slices[last], header, &released);
    assert_ok(put(t, &f, payload, SIZE, &entry));
    assert_int_equal(released, 2);
    memset(header, 0, sizeof header);
    assert_ok(store_fixture_check(t, entry, 3, SIZE));
    spw_store_remove(entry);
    spw_store_remove(made);
    store_fixture_close(&f);
    store_fixture_close(&maker);
}

static void a_store_that_has_no_disk_or_is_closed_adopts_nothing(void **state)
{
    torture *t = *state;
    store_fixture maker, f;
    spw_store *diskless;
    spw_entry *made, *entry;
    spw_payload *payload;
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    assert_ok(store_fixture_open(t, &maker, 0));
    assert_ok(store_fixture_open(t, &f, 0));
    options.ops = stored_object_ops;
    options.self = &f.objects;
    assert_ok(spw_store_create(t->context, &options, &diskless, NULL));
    assert_ok(spill_one(t, &maker, 3, SIZE, &made));
    assert_ok(hand_over(t, made, &payload));
    assert_status(
        spw_store_put_packed(diskless, "k", 1, payload, SIZE, &entry, &t->error),
        INVALID_ARGUMENT);
    assert_status(spw_store_put_packed(f.store, "k", SPW_STORE_KEY_MAX + 1, payload,
                                       SIZE, &entry, &t->error),
                  INVALID_ARGUMENT);
    spw_store_close(f.store);
    assert_status(put(t, &f, payload, SIZE, &entry), CLOSED);
    spw_payload_free(payload);
    spw_store_free(diskless);
    spw_store_remove(made);
    store_fixture_close(&f);
    store_fixture_close(&maker);
}

int main(void)
{
    const struct CMUnitTest once[] = {
        SCENARIO(nothing_is_written_and_one_descriptor_kept),
        SCENARIO(it_is_sent_as_it_is_stored),
        SCENARIO(it_stays_when_its_maker_goes),
        SCENARIO(its_maker_keeps_it_when_the_adopter_goes),
        SCENARIO(its_maker_may_end_while_it_is_read),
        SCENARIO(what_is_left_of_a_peers_file_moves),
        SCENARIO(one_that_is_not_all_there_is_lost),
        SCENARIO(what_is_no_value_of_one_file_is_refused),
        SCENARIO(order_and_what_is_empty_do_not_matter),
        SCENARIO(nothing_of_its_owners_is_kept),
        SCENARIO(a_store_that_has_no_disk_or_is_closed_adopts_nothing),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(a_value_is_adopted_and_comes_back),
    };
    return cmocka_run_group_tests(once, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("adopt", scenarios);
}
