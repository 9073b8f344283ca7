/* A store's sink behind a reader of messages: what has room in memory, what comes to
 * disk, and what becomes of both when they are put, or not. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "context/shuffled.h"
#include "disk_fault.h"
#include "framing/message_reader.h"
#include "framing/message_writer.h"
#include "io_fault.h"
#include "store/store_state.h"
#include "value_messages.h"

enum { MIB = 1 << 20 };
static const size_t BODY[] = {MIB + 1};
static const size_t SEVERAL[] = {0, 70000, MIB - 1, 3, 0};
static const size_t HUGE[] = {5 * MIB};
static const size_t SMALL[] = {MIB - 1};

/* A message on its way to a store. */
typedef struct arriving {
    value_message message;
    char *wire;
    size_t size, fed;
    spw__message_reader *reader;
} arriving;

static char *wire_of(torture *t, const value_message *message, size_t *ret_size)
{
    enum { PIECES = 64 };
    spw_payload *payload;
    spw__message_writer *writer;
    assert_ok(value_message_make(t->context, message, &payload, NULL));
    assert_ok(spw__message_writer_create(t->context, payload, &writer, NULL));
    char *wire = malloc((size_t)spw__message_writer_total(writer));
    assert_non_null(wire);
    size_t filled = 0;
    while (spw__message_writer_unsent(writer) > 0) {
        struct iovec pieces[PIECES];
        size_t n = spw__message_writer_pieces(writer, pieces, PIECES, SIZE_MAX / 2);
        size_t start = filled;
        for (size_t i = 0; i < n; i++) {
            memcpy(wire + filled, pieces[i].iov_base, pieces[i].iov_len);
            filled += pieces[i].iov_len;
        }
        spw__message_writer_advance(writer, filled - start);
    }
    spw__message_writer_free(writer);
    *ret_size = filled;
    return wire;
}

static spw_status begin(torture *t, const value_store *at, size_t values,
                        const size_t *sizes, size_t frames, unsigned seed, arriving *a)
{
    uint64_t fail_at = t->allocator.fail_at;
    spw_value_sink *sink;
    *a = (arriving){.message = {values, sizes, frames, seed}};
    t->allocator.fail_at = 0; /* what is sent is no part of the scenario */
    uint64_t before = t->allocator.calls;
    a->wire = wire_of(t, &a->message, &a->size);
    t->allocator.calls = before;
    t->allocator.fail_at = fail_at;
    spw_status status = spw__message_reader_create(
        t->context, spw_sink_heap(t->context), &a->reader, &t->error);
    if (status == SPW_STATUS_OK)
        status = spw_store_create_sink(at->store, NULL, &sink, &t->error);
    if (status == SPW_STATUS_OK)
        spw__message_reader_ask(a->reader, sink);
    return status;
}

#define BEGIN(at, values, sizes, seed, a)                                              \
    TRY(begin(t, at, values, sizes, COUNT_OF(sizes), seed, a))

static void end(arriving *a)
{
    spw__message_reader_free(a->reader);
    free(a->wire);
    *a = (arriving){0};
}

/* Feed at most so many bytes, or until it waits; of a stepped store nobody works
 * meanwhile. */
static spw_status feed_some(torture *t, arriving *a, size_t bytes)
{
    size_t consumed, left = a->size - a->fed;
    spw_status status = spw__message_reader_feed(
        a->reader, a->wire + a->fed, bytes < left ? bytes : left, &consumed, &t->error);
    if (status == SPW_STATUS_OK)
        a->fed += consumed;
    return status;
}

/* Feed until so many bytes have been taken, waiting for the disk. */
static spw_status feed(torture *t, arriving *a, size_t until)
{
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK &&
           (a->fed < until || spw__message_reader_is_waiting(a->reader))) {
        if (spw__message_reader_is_waiting(a->reader)) {
            (void)sched_yield();
            status = spw__message_reader_look_again(a->reader, &t->error);
        } else {
            status = feed_some(t, a, until - a->fed < 99991 ? until - a->fed : 99991);
        }
    }
    return status;
}

/* All of a message with one value. Returns: the value. */
static spw_status arrive(torture *t, arriving *a, spw_payload **ret_value)
{
    spw_status status = feed(t, a, a->size);
    if (status != SPW_STATUS_OK)
        return status;
    assert_true(spw__message_reader_is_whole(a->reader));
    spw_payload *payload = spw__message_reader_take(a->reader);
    status =
        value_message_value(t->context, payload, &a->message, 0, ret_value, &t->error);
    spw_payload_free(payload);
    return status;
}

static uint64_t weight_of(const spw_payload *value)
{
    return spw_payload_bytes(value);
}

/* Takes: value, always. */
static spw_status put(torture *t, const value_store *at, spw_payload *value,
                      spw_entry **ret_entry)
{
    spw_status status = spw_store_put_packed(at->store, "x", 1, value, weight_of(value),
                                             ret_entry, &t->error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(value);
    return status;
}

static spw_status check_entry(torture *t, spw_entry *entry, const arriving *a)
{
    spw_payload *payload;
    spw_status status = spw_entry_payload(entry, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = value_message_check(t->context, payload, &a->message, 0, &t->error);
    spw_payload_free(payload);
    return status;
}

static uint64_t arriving_bytes(const value_store *at)
{
    return value_store_figures(at).arriving_bytes;
}

/* ----- which messages ----- */

static bool is_for(torture *t, spw_value_sink *sink, const char *head)
{
    spw_slice first = {.kind = SPW_MEMORY_HOST, .size = strlen(head)};
    assert_ok(spw_buffer_create(t->context, first.size, SPW_CHARGE_HELD, &first.buffer,
                                &t->error));
    memcpy(spw_slice_data(&first), head, first.size);
    bool is_it = sink->ops->is_for(sink, &first);
    spw_buffer_unref(first.buffer);
    return is_it;
}

static void a_text_says_which_messages_it_is_for(void **state)
{
    torture *t = *state;
    value_store at;
    spw_value_sink *sink;
    assert_ok(value_store_open(t, 4 * MIB, 0, &at));
    assert_ok(spw_store_create_sink(at.store, NULL, &sink, &t->error));
    assert_true(is_for(t, sink, "anything"));
    assert_true(is_for(t, sink, ""));
    spw_value_sink_free(sink);
    assert_ok(spw_store_create_sink(at.store, "wanted", &sink, &t->error));
    assert_true(is_for(t, sink, "wanted"));
    assert_true(is_for(t, sink, "what is wanted."));
    assert_false(is_for(t, sink, "what is want"));
    assert_false(is_for(t, sink, ""));
    spw_value_sink_free(sink);
    assert_status(spw_store_create_sink(at.store,
                                        "a text of more than thirty-one bytes", &sink,
                                        &t->error),
                  INVALID_ARGUMENT);
    value_store_close(&at);
}

/* ----- in memory ----- */

static uint64_t shuffled_bytes(const torture *t)
{
    spw_budget_figures figures;
    spw_budget_read(t->budget, &figures);
    return figures.shuffled_bytes;
}

static void room_in_memory_is_the_values_own(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    spw_entry *entry;
    TRY(value_store_open(t, 4 * MIB, 0, &at));
    BEGIN(&at, 1, BODY, 1, &a);
    TRY(feed(t, &a, MIB / 2));
    assert_in_range(arriving_bytes(&at), MIB + 1, MIB + 1000);
    TRY(arrive(t, &a, &value));
    assert_int_equal(arriving_bytes(&at), weight_of(value));
    assert_false(value_message_is_on_disk(value));
    uint64_t weight = weight_of(value);
    TRY(put(t, &at, value, &entry));
    assert_int_equal(arriving_bytes(&at), 0);
    assert_int_equal(value_store_figures(&at).packed.weight, weight);
    t->status = check_entry(t, entry, &a);
    spw_store_remove(entry);
end:
    end(&a);
    value_store_close(&at);
}

static void two_at_once_do_not_take_the_same_room(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0}, b = {0};
    spw_payload *first, *second;
    spw_entry *entry;
    spw_store_event event;
    TRY(value_store_open(t, 2 * MIB, 0, &at));
    BEGIN(&at, 1, BODY, 1, &a);
    BEGIN(&at, 1, BODY, 2, &b);
    TRY(feed(t, &a, MIB / 2));
    TRY(feed(t, &b, MIB / 2));
    TRY(arrive(t, &b, &second));
    assert_true(value_message_is_on_disk(second));
    TRY(arrive(t, &a, &first));
    assert_false(value_message_is_on_disk(first));
    TRY(put(t, &at, first, &entry));
    /* What was put is in memory as what was reserved was. */
    end(&b);
    spw_payload_free(second);
    BEGIN(&at, 1, BODY, 2, &b);
    TRY(arrive(t, &b, &second));
    assert_true(value_message_is_on_disk(second));
    spw_payload_free(second);
    spw_store_remove(entry);
    spw_store_work(at.store, 0, &event); /* which lets go of what is large */
    end(&b);
    BEGIN(&at, 1, BODY, 2, &b);
    TRY(arrive(t, &b, &second));
    assert_false(value_message_is_on_disk(second));
    spw_payload_free(second);
end:
    end(&a);
    end(&b);
    value_store_close(&at);
}

static void what_shuffles_hold_is_no_room(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    TRY(value_store_open(t, 4 * MIB, 0, &at));
    spw__budget_shuffled_came(t->budget, 3 * MIB);
    BEGIN(&at, 1, BODY, 1, &a);
    TRY(arrive(t, &a, &value));
    assert_true(value_message_is_on_disk(value));
    spw_payload_free(value);
    end(&a);
    spw__budget_shuffled_went(t->budget, MIB);
    BEGIN(&at, 1, BODY, 1, &a);
    TRY(arrive(t, &a, &value));
    assert_false(value_message_is_on_disk(value));
    spw_payload_free(value);
end:
    spw__budget_shuffled_went(t->budget, shuffled_bytes(t));
    end(&a);
    value_store_close(&at);
}

static void room_is_given_back_when_nobody_puts_it(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    TRY(value_store_open(t, 4 * MIB, 0, &at));
    BEGIN(&at, 1, SEVERAL, 1, &a);
    TRY(feed(t, &a, MIB / 2));
    assert_true(arriving_bytes(&at) > MIB);
    end(&a); /* the connection is lost */
    assert_int_equal(arriving_bytes(&at), 0);
    BEGIN(&at, 1, SEVERAL, 1, &a);
    TRY(arrive(t, &a, &value));
    assert_true(arriving_bytes(&at) > MIB);
    spw_payload_free(value);
    assert_int_equal(arriving_bytes(&at), 0);
end:
    end(&a);
    value_store_close(&at);
}

static void what_nobody_limits_goes_to_memory(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    TRY(value_store_open(t, 0, 0, &at));
    BEGIN(&at, 1, HUGE, 1, &a);
    TRY(arrive(t, &a, &value));
    assert_false(value_message_is_on_disk(value));
    assert_int_equal(arriving_bytes(&at), 0);
    spw_payload_free(value);
    end(&a);
    value_store_close(&at);
    TRY(value_store_open(t, 1, 0, &at));
    BEGIN(&at, 1, SMALL, 1, &a);
    TRY(arrive(t, &a, &value));
    assert_false(value_message_is_on_disk(value));
    spw_payload_free(value);
end:
    end(&a);
    value_store_close(&at);
}

/* ----- on disk ----- */

static void what_came_to_disk_is_a_value_there(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    spw_entry *entry;
    TRY(value_store_open(t, 1, 0, &at));
    BEGIN(&at, 1, SEVERAL, 1, &a);
    TRY(arrive(t, &a, &value));
    bool is_on_disk = value_message_is_on_disk(value);
    TRY(put(t, &at, value, &entry));
    if (is_on_disk) {
        spw_store_figures figures = value_store_figures(&at);
        assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_ON_DISK);
        assert_int_equal(figures.on_disk.count, 1);
        assert_int_equal(figures.packed.count, 0);
        assert_int_equal(figures.received, 1);
    }
    t->status = check_entry(t, entry, &a);
    spw_store_remove(entry);
end:
    end(&a);
    value_store_close(&at);
}

static void space_comes_back(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    spw_entry *entry;
    TRY(value_store_open(t, 1, 0, &at));
    BEGIN(&at, 1, HUGE, 1, &a);
    TRY(feed(t, &a, 2 * MIB));
    assert_true(value_store_figures(&at).disk_bytes > 5 * MIB);
    end(&a); /* the connection is lost */
    value_store_wait_for_space(&at, 0);
    BEGIN(&at, 1, HUGE, 1, &a);
    TRY(arrive(t, &a, &value));
    spw_payload_free(value); /* nobody wants it */
    value_store_wait_for_space(&at, 0);
    end(&a);
    BEGIN(&at, 1, HUGE, 1, &a);
    TRY(arrive(t, &a, &value));
    TRY(put(t, &at, value, &entry));
    spw_store_remove(entry);
    value_store_wait_for_space(&at, 0);
end:
    end(&a);
    value_store_close(&at);
}

static void what_is_left_in_a_sparse_file_moves(void **state)
{
    torture *t = *state;
    value_store at;
    enum { COUNT = 70 };
    arriving a = {0};
    spw_entry *entries[COUNT] = {NULL};
    TRY(value_store_open(t, 1, (uint64_t)COUNT * BODY[0] * 15 / 14, &at));
    for (unsigned i = 0; i < COUNT; i++) {
        spw_payload *value;
        end(&a);
        BEGIN(&at, 1, BODY, i == 0 ? 7 : 1, &a);
        TRY(arrive(t, &a, &value));
        TRY(put(t, &at, value, &entries[i]));
    }
    for (unsigned i = 1; i < COUNT; i++)
        spw_store_remove(entries[i]);
    while (value_store_figures(&at).moved_bytes == 0)
        (void)sched_yield();
    a.message.seed = 7;
    TRY(check_entry(t, entries[0], &a));
    spw_store_remove(entries[0]);
end:
    end(&a);
    value_store_close(&at);
}

/* Of two directories the first takes nothing: what arrives then goes to memory, and
 * what comes after it to the other. */
static void what_one_directory_cannot_take_another_one_does(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    TRY(value_store_open_with_two(t, 1, &at));
    for (int i = 0; i < 3; i++) {
        io_fault_arm_call("spill_write", i == 0 ? 1 : 0, ENOSPC);
        BEGIN(&at, 1, BODY, 1, &a);
        TRY(arrive(t, &a, &value));
        assert_int_equal(value_message_is_on_disk(value), i > 0);
        TRY(value_message_check(t->context, value, &a.message, 0, &t->error));
        spw_payload_free(value);
        end(&a);
    }
    assert_int_equal(value_store_figures(&at).failures, 0);
end:
    end(&a);
    value_store_close(&at);
}

static void what_is_spoilt_on_disk_is_seen(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    spw_payload *value;
    spw_entry *entry;
    TRY(value_store_open(t, 1, 0, &at));
    BEGIN(&at, 1, HUGE, 1, &a);
    TRY(arrive(t, &a, &value));
    TRY(put(t, &at, value, &entry));
    disk_fault_corrupt(2, 12345678); /* the first read is the header's */
    assert_status(check_entry(t, entry, &a), CORRUPT);
    spw_store_remove(entry);
end:
    end(&a);
    value_store_close(&at);
}

static void run_jobs(const value_store *at)
{
    while (spw__worker_pool_run_one(at->store->pool))
        ;
}

static void nothing_is_taken_while_the_disk_is_behind(void **state)
{
    torture *t = *state;
    value_store at;
    arriving a = {0};
    TRY(value_store_open_stepped(t, 1, &at));
    BEGIN(&at, 1, HUGE, 1, &a);
    TRY(feed_some(t, &a, SIZE_MAX));
    assert_true(spw__message_reader_is_waiting(a.reader));
    assert_true(a.fed < 1000); /* the header, and where it goes is not known yet */
    size_t before = a.fed, none;
    assert_null(spw__message_reader_direct(a.reader, &none));
    TRY(feed_some(t, &a, SIZE_MAX));
    assert_int_equal(a.fed, before);
    run_jobs(&at);
    TRY(spw__message_reader_look_again(a.reader, &t->error));
    assert_false(spw__message_reader_is_waiting(a.reader));
    TRY(feed_some(t, &a, SIZE_MAX));
    /* A window of it, and no more until some is written. */
    assert_true(spw__message_reader_is_waiting(a.reader));
    assert_in_range(a.fed - before, MIB / 2, MIB);
    before = a.fed;
    TRY(spw__message_reader_look_again(a.reader, &t->error));
    assert_true(spw__message_reader_is_waiting(a.reader));
    assert_true(spw__worker_pool_run_one(at.store->pool));
    TRY(spw__message_reader_look_again(a.reader, &t->error));
    TRY(feed_some(t, &a, SIZE_MAX));
    assert_in_range(a.fed - before, MIB / 4, MIB / 2);
    while (a.fed < a.size || spw__message_reader_is_waiting(a.reader)) {
        run_jobs(&at);
        TRY(spw__message_reader_look_again(a.reader, &t->error));
        TRY(feed_some(t, &a, SIZE_MAX));
    }
    /* All of it is on disk before anybody has the message. */
    assert_true(spw__message_reader_is_whole(a.reader));
    assert_false(spw__worker_pool_run_one(at.store->pool));
    assert_true(value_store_figures(&at).received_bytes >= HUGE[0]);
end:
    end(&a);
    run_jobs(&at);
    value_store_close(&at);
}

/* ----- putting ----- */

/* Takes: value. */
static spw_status put_again(torture *t, const value_store *at, spw_payload *value)
{
    size_t count = spw_payload_count(value);
    spw_payload *same;
    spw_entry *entry, *none;
    assert_ok(spw_payload_create(t->context, count, &same, NULL));
    for (size_t i = 0; i < count; i++) {
        spw_slice slice = spw_payload_slices(value)[i];
        if (slice.kind == SPW_MEMORY_FILE)
            (void)spw_file_ref(slice.file);
        else
            (void)spw_buffer_ref(slice.buffer);
        assert_ok(spw_payload_append(same, &slice, NULL));
    }
    spw_status status = put(t, at, value, &entry);
    assert_ok(status);
    assert_status(spw_store_put_packed(at->store, "x", 1, same, 1, &none, &t->error),
                  INVALID_ARGUMENT);
    spw_payload_free(same);
    assert_int_equal(spw_entry_forms(entry), SPW_ENTRY_ON_DISK);
    spw_store_remove(entry);
    return SPW_STATUS_OK;
}

static void only_what_was_received_is_put(void **state)
{
    torture *t = *state;
    value_store at, other;
    arriving a = {0};
    spw_payload *value, *changed;
    spw_entry *entry;
    TRY(value_store_open(t, 1, 0, &at));
    TRY(value_store_open(t, 1, 0, &other));
    BEGIN(&at, 1, SEVERAL, 1, &a);
    TRY(arrive(t, &a, &value));
    assert_true(value_message_is_on_disk(value));
    assert_status(
        spw_store_put_packed(other.store, "x", 1, value, 1, &entry, &t->error),
        INVALID_ARGUMENT);
    /* Without its last frames, and with another header. */
    const spw_slice *slices = spw_payload_slices(value);
    for (size_t kept = 2; kept <= COUNT_OF(SEVERAL) + 1; kept++) {
        TRY(spw_payload_create(t->context, kept, &changed, &t->error));
        for (size_t i = 0; i < kept; i++) {
            spw_slice slice = slices[i];
            if (slice.kind == SPW_MEMORY_FILE)
                (void)spw_file_ref(slice.file);
            else
                (void)spw_buffer_ref(slice.buffer);
            if (kept == COUNT_OF(SEVERAL) + 1 && i == 0)
                slice.size--;
            assert_ok(spw_payload_append(changed, &slice, NULL));
        }
        bool has_file = kept > 2;
        if (has_file)
            assert_status(
                spw_store_put_packed(at.store, "x", 1, changed, 1, &entry, &t->error),
                INVALID_ARGUMENT);
        spw_payload_free(changed);
    }
    /* Once, and not again. */
    TRY(put_again(t, &at, value));
end:
    end(&a);
    value_store_close(&at);
    value_store_close(&other);
}

static void what_outlives_its_store_cannot_be_put(void **state)
{
    torture *t = *state;
    value_store at, other = {0};
    arriving a = {0};
    spw_payload *value;
    spw_entry *entry;
    TRY(value_store_open(t, 1, 0, &at));
    BEGIN(&at, 1, BODY, 1, &a);
    TRY(arrive(t, &a, &value));
    spw_store_close(at.store);
    assert_ok(spw_store_put_packed(at.store, "x", 1, value, 1, &entry, &t->error));
    spw_store_remove(entry);
    value_store_close(&at);
    /* Its bytes can be read for as long as somebody has them. */
    TRY(value_store_open(t, 1, 0, &at));
    end(&a);
    BEGIN(&at, 1, BODY, 1, &a);
    TRY(arrive(t, &a, &value));
    value_store_close(&at);
    TRY(value_store_open(t, 1, 0, &other));
    assert_status(
        spw_store_put_packed(other.store, "x", 1, value, 1, &entry, &t->error),
        INVALID_ARGUMENT);
    t->status = value_message_check(t->context, value, &a.message, 0, &t->error);
    spw_payload_free(value);
end:
    end(&a);
    value_store_close(&other);
}

int main(void)
{
    const struct CMUnitTest once[] = {
        SCENARIO(a_text_says_which_messages_it_is_for),
        SCENARIO(two_at_once_do_not_take_the_same_room),
        SCENARIO(what_shuffles_hold_is_no_room),
        SCENARIO(room_is_given_back_when_nobody_puts_it),
        SCENARIO(what_nobody_limits_goes_to_memory),
        SCENARIO(space_comes_back),
        SCENARIO(what_is_left_in_a_sparse_file_moves),
        SCENARIO(what_one_directory_cannot_take_another_one_does),
        SCENARIO(what_is_spoilt_on_disk_is_seen),
        SCENARIO(nothing_is_taken_while_the_disk_is_behind),
        SCENARIO(only_what_was_received_is_put),
        SCENARIO(what_outlives_its_store_cannot_be_put),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(room_in_memory_is_the_values_own),
        SCENARIO(what_came_to_disk_is_a_value_there),
    };
    return cmocka_run_group_tests(once, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("store_sink", scenarios);
}
