/* Values that a sink takes to disk, or to memory where they have a place: that every
 * byte goes where it is to, however often the sink has to be waited for. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file_payloads.h"
#include "reader_fixture.h"

enum { FRAMES_MAX = 8, HEAD_BYTES = 40 };

/* A sink that takes values with a body of FROM bytes and more to a file, and others to
 * a place. Each question is answered AGAIN so many times first. */
typedef struct scripted {
    spw_value_sink base;
    spw__place place; /* of all values in memory */
    spw_file *file;
    size_t window_bytes;
    unsigned again, asked;
    spw_status fault; /* of writing */
    spw_slice slices[FRAMES_MAX];
    size_t count, slice;
    uint64_t filled, end;
    char window[64];
    unsigned begun, finished, freed;
    unsigned shown; /* first frames of messages */
    bool is_for_others;
} scripted;

enum { FROM = 500 };

static void forget_place(spw__place *place)
{
    (void)place;
    fail_msg("the test has the last reference");
}

static bool has_to_wait(scripted *at)
{
    if (at->asked++ < at->again)
        return true;
    at->asked = 0;
    return false;
}

static bool is_for(spw_value_sink *sink, const spw_slice *first)
{
    scripted *at = (scripted *)sink;
    assert_int_equal(first->kind, SPW_MEMORY_HOST);
    assert_int_equal(first->size, HEAD_BYTES);
    at->shown++;
    return !at->is_for_others;
}

static spw_status begin(spw_value_sink *sink, const spw_slice *header,
                        const uint64_t *sizes, uint64_t count,
                        spw__value_room *ret_room, spw_error *error)
{
    scripted *at = (scripted *)sink;
    uint64_t bytes = 0;
    (void)error;
    assert_true(header->size > 0 && header->kind == SPW_MEMORY_HOST);
    assert_true(count > 0 && count <= FRAMES_MAX);
    if (has_to_wait(at))
        return SPW_STATUS_AGAIN;
    for (uint64_t i = 0; i < count; i++)
        bytes += sizes[i];
    at->begun++;
    if (bytes < FROM) {
        ret_room->place = spw__place_ref(&at->place);
        return SPW_STATUS_OK;
    }
    at->count = (size_t)count;
    at->slice = 0;
    at->filled = 0;
    for (size_t i = 0; i < count; i++) {
        at->slices[i] = (spw_slice){.kind = SPW_MEMORY_FILE,
                                    .offset = at->end,
                                    .size = sizes[i],
                                    .plain_size = sizes[i]};
        at->end += sizes[i];
    }
    while (at->slice < count && at->slices[at->slice].size == 0)
        at->slice++;
    ret_room->file = spw_file_ref(at->file);
    ret_room->slices = at->slices;
    return SPW_STATUS_OK;
}

static spw_status window(spw_value_sink *sink, void **ret_data, size_t *ret_size,
                         spw_error *error)
{
    scripted *at = (scripted *)sink;
    uint64_t rest = at->slices[at->slice].size - at->filled;
    (void)error;
    assert_true(rest > 0);
    if (at->fault != SPW_STATUS_OK)
        return at->fault;
    if (has_to_wait(at))
        return SPW_STATUS_AGAIN;
    *ret_data = at->window;
    *ret_size = rest < at->window_bytes ? (size_t)rest : at->window_bytes;
    return SPW_STATUS_OK;
}

static void wrote(spw_value_sink *sink, size_t size)
{
    scripted *at = (scripted *)sink;
    const spw_slice *slice = &at->slices[at->slice];
    assert_true(size > 0 && size <= slice->size - at->filled);
    assert_int_equal(pwrite(spw_file_descriptor(at->file), at->window, size,
                            (off_t)(slice->offset + at->filled)),
                     size);
    at->filled += size;
    while (at->slice < at->count && at->filled == at->slices[at->slice].size) {
        at->slice++;
        at->filled = 0;
    }
}

static spw_status finish(spw_value_sink *sink, spw_error *error)
{
    scripted *at = (scripted *)sink;
    (void)error;
    assert_int_equal(at->slice, at->count);
    if (has_to_wait(at))
        return SPW_STATUS_AGAIN;
    for (size_t i = 0; i < at->count; i++) {
        at->slices[i].flags |= SPW_SLICE_HAS_CHECKSUM;
        at->slices[i].checksum = 1000 + i;
    }
    at->finished++;
    return SPW_STATUS_OK;
}

static void count_freed(spw_value_sink *sink)
{
    ((scripted *)sink)->freed++;
}

static void script(reader_fixture *at, unsigned again, size_t window_bytes,
                   scripted *ret_script)
{
    static const spw__value_sink_ops OPS = {.is_for = is_for,
                                            .begin = begin,
                                            .window = window,
                                            .wrote = wrote,
                                            .finish = finish,
                                            .free = count_freed};
    *ret_script = (scripted){.base.ops = &OPS,
                             .place = {.references = 1, .release = forget_place},
                             .window_bytes = window_bytes,
                             .again = again};
    assert_ok(
        spw_file_adopt(at->counted.context, file_open(), &ret_script->file, NULL));
    spw__message_reader_ask(at->reader, &ret_script->base);
}

static void end_script(scripted *at, unsigned freed)
{
    assert_int_equal(at->freed, freed);
    assert_int_equal(at->place.references, 1);
    spw_file_unref(at->file);
}

/* A head, a value for the disk, one without split keys for it, one for memory, and a
 * frame that belongs to none. */
static const size_t SHARDS[] = {1, 2, 1};
static const size_t TO_DISK[] = {0, 300, 400, 0}, PLAIN[] = {600, 7},
                    TO_MEMORY[] = {100, 1, 250, 0};

static void put_value(wire_bytes *frames, size_t *count, const size_t *shards,
                      const size_t *sizes, size_t sub_frames)
{
    wire_put_sub_header(&frames[(*count)++],
                        &(wire_value){.shards = shards,
                                      .buffers = shards != NULL ? COUNT_OF(SHARDS) : 0,
                                      .sub_frames = sub_frames});
    for (size_t i = 0; i < sub_frames; i++, (*count)++)
        wire_put_noise(&frames[*count], sizes[i], (unsigned)*count);
}

static void make_message(wire_bytes *wire, bool has_plain)
{
    wire_bytes frames[16] = {0};
    size_t count = 0;
    wire_put_noise(&frames[count++], HEAD_BYTES, 99);
    put_value(frames, &count, SHARDS, TO_DISK, COUNT_OF(TO_DISK));
    if (has_plain)
        put_value(frames, &count, NULL, PLAIN, COUNT_OF(PLAIN));
    put_value(frames, &count, SHARDS, TO_MEMORY, COUNT_OF(TO_MEMORY));
    wire_clear(wire);
    wire_put_message(wire, frames, count, 1);
    for (size_t i = 0; i < count; i++)
        wire_clear(&frames[i]);
}

/* Feed, or write into place, and look again whenever it waits. */
static spw_status feed_all(reader_fixture *at, size_t piece, bool is_direct,
                           spw_error *error)
{
    size_t fed = 0;
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK &&
           (fed < at->wire.size || spw__message_reader_is_waiting(at->reader))) {
        size_t step = at->wire.size - fed < piece ? at->wire.size - fed : piece, room;
        void *direct = spw__message_reader_direct(at->reader, &room);
        if (spw__message_reader_is_waiting(at->reader)) {
            assert_null(direct);
            assert_ok(spw__message_reader_feed(at->reader, at->wire.bytes + fed, step,
                                               &room, NULL));
            assert_int_equal(room, 0);
            status = spw__message_reader_look_again(at->reader, error);
        } else if (is_direct && room > 0) {
            step = step < room ? step : room;
            memcpy(direct, at->wire.bytes + fed, step);
            status = spw__message_reader_advance(at->reader, step, error);
            fed += step;
        } else {
            status = spw__message_reader_feed(at->reader, at->wire.bytes + fed, step,
                                              &step, error);
            if (status == SPW_STATUS_OK)
                fed += step;
        }
    }
    return status;
}

/* Bytes of the slices, in memory or in the file, one after another. */
static void check_bytes(const reader_fixture *at, const spw_payload *payload)
{
    const spw_slice *slices = spw_payload_slices(payload);
    const uint8_t *expected = at->wire.bytes + 16 + 8 * spw_payload_count(payload);
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        unsigned char bytes[1000];
        assert_true(slices[i].size <= sizeof bytes);
        if (slices[i].kind == SPW_MEMORY_FILE)
            assert_int_equal(pread(spw_file_descriptor(slices[i].file), bytes,
                                   slices[i].size, (off_t)slices[i].offset),
                             slices[i].size);
        else if (slices[i].size > 0)
            memcpy(bytes, spw_slice_data(&slices[i]), slices[i].size);
        assert_memory_equal(bytes, expected, slices[i].size);
        expected += slices[i].size;
    }
    assert_ptr_equal(expected, at->wire.bytes + at->wire.size);
}

static void check_places(const spw_payload *payload, const scripted *values,
                         bool has_plain)
{
    const spw_slice *slices = spw_payload_slices(payload);
    size_t on_disk = COUNT_OF(TO_DISK) + (has_plain ? COUNT_OF(PLAIN) : 0), held = 0;
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        if (slices[i].kind == SPW_MEMORY_FILE) {
            assert_true((slices[i].flags & SPW_SLICE_HAS_CHECKSUM) != 0);
            assert_true(slices[i].checksum >= 1000);
            on_disk--;
        } else if (spw__buffer_place(slices[i].buffer) != NULL) {
            assert_ptr_equal(spw__buffer_place(slices[i].buffer), &values->place);
            held++;
        }
    }
    assert_int_equal(on_disk, 0);
    assert_int_equal(held, 3); /* those with bytes */
}

static void values_go_where_they_are_to(void **state)
{
    reader_fixture *at = *state;
    static const size_t PIECES[] = {1, 7, 100, SIZE_MAX}, WINDOWS[] = {1, 13, 64};
    for (size_t i = 0; i < 2 * COUNT_OF(PIECES) * COUNT_OF(WINDOWS) * 3; i++) {
        size_t rest = i / 2;
        bool has_plain = i % 2 == 0;
        scripted values;
        script(at, (unsigned)(rest % 3), WINDOWS[rest / 3 % COUNT_OF(WINDOWS)],
               &values);
        make_message(&at->wire, has_plain);
        assert_ok(feed_all(at, PIECES[rest / 3 / COUNT_OF(WINDOWS)], i % 4 < 2, NULL));
        assert_true(spw__message_reader_is_whole(at->reader));
        spw_payload *payload = spw__message_reader_take(at->reader);
        check_bytes(at, payload);
        check_places(payload, &values, has_plain);
        assert_int_equal(values.shown, 1);
        assert_int_equal(values.begun, has_plain ? 3 : 2);
        assert_int_equal(values.finished, has_plain ? 2 : 1);
        spw_payload_free(payload);
        end_script(&values, 1);
    }
}

static void a_message_that_is_not_for_a_sink_comes_to_memory(void **state)
{
    static const size_t PIECES[] = {1, 100, SIZE_MAX};
    reader_fixture *at = *state;
    for (size_t i = 0; i < COUNT_OF(PIECES); i++) {
        scripted values;
        script(at, 0, 64, &values);
        values.is_for_others = true;
        make_message(&at->wire, true);
        assert_ok(feed_all(at, PIECES[i], false, NULL));
        spw_payload *payload = spw__message_reader_take(at->reader);
        check_bytes(at, payload);
        for (size_t k = 0; k < spw_payload_count(payload); k++)
            assert_int_equal(spw_payload_slices(payload)[k].kind, SPW_MEMORY_HOST);
        assert_int_equal(values.shown, 1);
        assert_int_equal(values.begun, 0);
        spw_payload_free(payload);
        end_script(&values, 1);
    }
}

static void a_sink_is_for_one_message(void **state)
{
    reader_fixture *at = *state;
    scripted values, other;
    make_message(&at->wire, false);
    script(at, 0, 64, &values);
    assert_ok(feed_all(at, SIZE_MAX, false, NULL));
    spw_payload_free(spw__message_reader_take(at->reader));
    assert_int_equal(values.freed, 1);
    reader_read_whole(at); /* in memory */
    assert_int_equal(values.begun, 2);
    end_script(&values, 1);
    /* One that nothing came for goes with the reader, or for another. */
    script(at, 0, 64, &values);
    script(at, 0, 64, &other);
    end_script(&values, 1);
    /* In the middle of a message it is too late. */
    size_t consumed;
    assert_ok(
        spw__message_reader_feed(at->reader, at->wire.bytes, 300, &consumed, NULL));
    script(at, 0, 64, &values);
    end_script(&values, 1);
    spw__message_reader_free(at->reader);
    at->reader = NULL;
    end_script(&other, 1);
}

static void what_fails_in_the_middle_loses_the_message(void **state)
{
    reader_fixture *at = *state;
    scripted values;
    spw_error error = {0};
    size_t consumed;
    make_message(&at->wire, false);
    script(at, 0, 64, &values);
    values.fault = SPW_STATUS_IO;
    assert_status(feed_all(at, SIZE_MAX, false, &error), IO);
    assert_status(spw__message_reader_feed(at->reader, "x", 1, &consumed, NULL),
                  CLOSED);
    assert_false(spw__message_reader_is_waiting(at->reader));
    end_script(&values, 1);
    counted_context_check_uncharged(&at->counted);
}

static void who_waits_may_be_freed(void **state)
{
    reader_fixture *at = *state;
    for (size_t until = 1;; until++) {
        scripted values;
        size_t consumed;
        script(at, 1, 64, &values);
        make_message(&at->wire, false);
        spw_status status = SPW_STATUS_OK;
        size_t fed = 0, looked = 0;
        while (looked < until && fed < at->wire.size) {
            if (spw__message_reader_is_waiting(at->reader)) {
                looked++;
                if (looked == until)
                    break;
                status = spw__message_reader_look_again(at->reader, NULL);
            } else {
                status = spw__message_reader_feed(at->reader, at->wire.bytes + fed,
                                                  at->wire.size - fed, &consumed, NULL);
                fed += consumed;
            }
            assert_ok(status);
        }
        bool is_over = looked < until;
        spw__message_reader_free(at->reader);
        assert_ok(spw__message_reader_create(
            at->counted.context, choosy_sink_over(&at->choosy, at->counted.context),
            &at->reader, NULL));
        end_script(&values, 1);
        if (is_over)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        READER_TEST(values_go_where_they_are_to),
        READER_TEST(a_message_that_is_not_for_a_sink_comes_to_memory),
        READER_TEST(a_sink_is_for_one_message),
        READER_TEST(what_fails_in_the_middle_loses_the_message),
        READER_TEST(who_waits_may_be_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
