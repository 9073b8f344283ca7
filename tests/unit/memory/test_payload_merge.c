#include <stdlib.h>
#include <string.h>

#include "counted_context.h"
#include "file_payloads.h"
#include "spillway/payload.h"
#include "testing.h"
#include "torture.h"

enum { BUFFER_BYTES = 1000, MOST_PARTS = 8 };

/* One part of a case: bytes [offset, offset + size) of the buffer with that number. */
typedef struct part {
    int buffer;
    size_t offset, size;
} part;

static spw_status make_buffer(spw_context *context, unsigned seed, spw_buffer **ret,
                              spw_error *error)
{
    spw_status status =
        spw_buffer_create(context, BUFFER_BYTES, SPW_CHARGE_HELD, ret, error);
    for (size_t i = 0; status == SPW_STATUS_OK && i < BUFFER_BYTES; i++)
        ((unsigned char *)spw_buffer_data(*ret))[i] = (unsigned char)(i * seed + i / 7);
    return status;
}

static spw_status append(spw_payload *payload, spw_buffer *buffer, size_t offset,
                         size_t size, uint32_t flags, spw_error *error)
{
    spw_slice slice = {.buffer = spw_buffer_ref(buffer),
                       .flags = flags,
                       .offset = offset,
                       .size = size,
                       .plain_size = size};
    spw_status status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(buffer);
    return status;
}

typedef struct fixture {
    counted_context counted;
    spw_buffer *buffers[2];
    spw_payload *payload;
} fixture;

static void open_fixture(fixture *f)
{
    counted_context_open(&f->counted, 0, 0);
    for (unsigned i = 0; i < 2; i++)
        assert_ok(make_buffer(f->counted.context, i + 3, &f->buffers[i], NULL));
    assert_ok(spw_payload_create(f->counted.context, 0, &f->payload, NULL));
}

static void add(fixture *f, const part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_ok(append(f->payload, f->buffers[parts[i].buffer], parts[i].offset,
                         parts[i].size, SPW_SLICE_WRITEABLE, NULL));
}

/* Start again with another payload. */
static void begin(fixture *f)
{
    spw_payload_free(f->payload);
    assert_ok(spw_payload_create(f->counted.context, 0, &f->payload, NULL));
}

static uint64_t merged_bytes(const fixture *f)
{
    spw_figures figures;
    spw_context_read_figures(f->counted.context, &figures);
    return figures.copied_bytes[SPW_COPY_MERGED];
}

static void close_fixture(fixture *f)
{
    spw_payload_free(f->payload);
    for (int i = 0; i < 2; i++)
        spw_buffer_unref(f->buffers[i]);
    counted_context_close(&f->counted);
}

/* Fails the test unless the slice has the bytes of the payload's, one after another. */
static void check_bytes(const fixture *f, const spw_slice *merged)
{
    const spw_slice *slices = spw_payload_slices(f->payload);
    const char *at = spw_slice_data(merged);
    for (size_t i = 0; i < spw_payload_count(f->payload); i++) {
        assert_memory_equal(at, spw_slice_data(&slices[i]), slices[i].size);
        at += slices[i].size;
    }
    assert_int_equal(merged->size, spw_payload_bytes(f->payload));
    assert_int_equal(merged->plain_size, merged->size);
    assert_int_equal(merged->codec, SPW_CODEC_NONE);
}

static void slices_side_by_side_become_one_without_a_copy(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        part parts[MOST_PARTS];
        size_t offset;
    } CASES[] = {
        {1, {{0, 0, 1000}}, 0},
        {1, {{0, 17, 1}}, 17},
        {2, {{0, 0, 500}, {0, 500, 500}}, 0},
        {3, {{0, 13, 7}, {0, 20, 1}, {0, 21, 979}}, 13},
        /* Nothing at all may lie anywhere, in any buffer. */
        {5, {{1, 3, 0}, {0, 10, 5}, {1, 1000, 0}, {0, 15, 5}, {0, 0, 0}}, 10},
        {4, {{0, 900, 0}, {0, 0, 0}, {0, 10, 5}, {0, 15, 5}}, 10},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        for (int copy = SPW_MERGE_NEVER; copy <= SPW_MERGE_IF_NEEDED; copy++) {
            begin(&f);
            add(&f, CASES[i].parts, CASES[i].count);
            uint64_t charged = counted_context_charged(&f.counted, SPW_CHARGE_HELD);
            spw_slice merged;
            assert_ok(
                spw_payload_merge(f.payload, (spw_merge_copy)copy, &merged, NULL));
            assert_ptr_equal(merged.buffer, f.buffers[0]);
            assert_int_equal(merged.offset, CASES[i].offset);
            check_bytes(&f, &merged);
            assert_int_equal(counted_context_charged(&f.counted, SPW_CHARGE_HELD),
                             charged);
            spw_buffer_unref(merged.buffer);
        }
    }
    assert_int_equal(merged_bytes(&f), 0);
    close_fixture(&f);
}

static void what_does_not_follow_is_named_or_copied_once(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        part parts[MOST_PARTS];
        const char *message;
    } CASES[] = {
        {2,
         {{0, 0, 10}, {0, 11, 5}},
         "part 1 does not follow part 0: it starts 1 bytes after the end of that one"},
        {3,
         {{0, 0, 10}, {0, 10, 5}, {0, 12, 5}},
         "part 2 does not follow part 1: it starts 3 bytes before the end of that one"},
        {2,
         {{0, 500, 500}, {0, 0, 500}},
         "part 1 does not follow part 0: it starts 1000 bytes before the end of that "
         "one"},
        {2,
         {{0, 0, 10}, {0, 0, 10}},
         "part 1 does not follow part 0: it starts 10 bytes before the end of that "
         "one"},
        {4,
         {{1, 0, 0}, {0, 0, 10}, {0, 700, 0}, {1, 10, 5}},
         "part 3 does not follow part 1: it is in the memory of another owner"},
        /* The first fault is named, not the last one. */
        {3,
         {{0, 0, 1}, {1, 1, 1}, {0, 3, 1}},
         "part 1 does not follow part 0: it is in the memory of another owner"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        begin(&f);
        add(&f, CASES[i].parts, CASES[i].count);
        spw_slice merged = {.size = 12345};
        spw_error error;
        assert_status(spw_payload_merge(f.payload, SPW_MERGE_NEVER, &merged, &error),
                      INVALID_ARGUMENT);
        assert_string_equal(error.message, CASES[i].message);
        assert_int_equal(merged.size, 12345);

        uint64_t copied = merged_bytes(&f);
        assert_ok(spw_payload_merge(f.payload, SPW_MERGE_IF_NEEDED, &merged, &error));
        assert_ptr_not_equal(merged.buffer, f.buffers[0]);
        assert_int_equal((uintptr_t)spw_slice_data(&merged) % SPW_BUFFER_ALIGNMENT, 0);
        assert_int_equal(merged.flags, SPW_SLICE_WRITEABLE);
        check_bytes(&f, &merged);
        assert_int_equal(merged_bytes(&f) - copied, spw_payload_bytes(f.payload));
        spw_buffer_unref(merged.buffer);
    }
    close_fixture(&f);
}

static void nothing(void *user)
{
    (void)user;
}

static void memory_of_two_owners_that_touches_is_not_merged(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    char memory[20] = "ten bytesten bytes.";
    for (size_t i = 0; i < 2; i++) {
        spw_buffer *half;
        assert_ok(spw_buffer_wrap(f.counted.context, memory + 10 * i, 10, true, nothing,
                                  NULL, &half, NULL));
        assert_ok(append(f.payload, half, 0, 10, 0, NULL));
        spw_buffer_unref(half);
    }
    spw_slice merged;
    assert_status(spw_payload_merge(f.payload, SPW_MERGE_NEVER, &merged, NULL),
                  INVALID_ARGUMENT);
    assert_ok(spw_payload_merge(f.payload, SPW_MERGE_IF_NEEDED, &merged, NULL));
    assert_ptr_not_equal(spw_slice_data(&merged), memory);
    assert_memory_equal(spw_slice_data(&merged), memory, sizeof memory);
    spw_buffer_unref(merged.buffer);
    close_fixture(&f);
}

static void it_is_writeable_if_every_slice_is(void **state)
{
    (void)state;
    enum { W = SPW_SLICE_WRITEABLE, T = SPW_SLICE_TRANSIENT };
    static const struct {
        uint32_t flags[3];
        size_t sizes[3];
        uint32_t merged;
    } CASES[] = {
        {{W, W, W}, {5, 5, 5}, W},
        {{W, 0, W}, {5, 5, 5}, 0},
        {{W, W, 0}, {5, 5, 0}, 0},
        {{0, W, W}, {0, 0, 0}, 0},
        {{W, W, W}, {0, 0, 0}, W},
        {{T, T, T}, {5, 0, 5}, T},
        {{T, W, T | W}, {5, 0, 5}, 0},
        {{W, W | SPW_SLICE_HAS_CHECKSUM, W}, {5, 5, 5}, W},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        for (size_t gap = 0; gap < 2; gap++) {
            begin(&f);
            for (size_t at = 0, j = 0; j < 3; at += CASES[i].sizes[j++] + gap)
                assert_ok(append(f.payload, f.buffers[0], at, CASES[i].sizes[j],
                                 CASES[i].flags[j], NULL));
            spw_slice merged;
            assert_ok(spw_payload_merge(f.payload, SPW_MERGE_IF_NEEDED, &merged, NULL));
            assert_int_equal(merged.flags, CASES[i].merged);
            spw_buffer_unref(merged.buffer);
        }
    }
    close_fixture(&f);
}

static void without_bytes_it_is_an_empty_buffer_that_pins_nothing(void **state)
{
    (void)state;
    static const part EMPTY[] = {{0, 0, 0}, {1, 1000, 0}, {0, 999, 0}};
    fixture f;
    open_fixture(&f);
    for (size_t count = 0; count <= COUNT_OF(EMPTY); count++) {
        begin(&f);
        add(&f, EMPTY, count);
        spw_slice merged;
        assert_ok(spw_payload_merge(f.payload, SPW_MERGE_NEVER, &merged, NULL));
        assert_int_equal(merged.size, 0);
        assert_int_equal(merged.flags & SPW_SLICE_WRITEABLE, SPW_SLICE_WRITEABLE);
        assert_int_equal(spw_buffer_size(merged.buffer), 0);
        spw_buffer_unref(merged.buffer);
    }
    spw_figures figures;
    spw_context_read_figures(f.counted.context, &figures);
    assert_int_equal(figures.copies[SPW_COPY_MERGED], 0);
    close_fixture(&f);
}

static void what_is_no_plain_memory_is_refused(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    for (int i = 0; i < 2; i++) {
        begin(&f);
        add(&f, &(part){0, 0, 10}, 1);
        spw_slice slice = {.codec = i == 0 ? SPW_CODEC_NONE : SPW_CODEC_LZ4,
                           .offset = 10,
                           .size = 10,
                           .plain_size = 10};
        if (i == 0) {
            slice.kind = SPW_MEMORY_FILE;
            assert_ok(
                spw_file_adopt(f.counted.context, file_open(), &slice.file, NULL));
        } else {
            slice.buffer = spw_buffer_ref(f.buffers[0]);
        }
        assert_ok(spw_payload_append(f.payload, &slice, NULL));
        spw_slice merged;
        spw_error error;
        assert_status(
            spw_payload_merge(f.payload, SPW_MERGE_IF_NEEDED, &merged, &error),
            INVALID_ARGUMENT);
        assert_string_equal(error.message, "part 1 is not plain bytes in memory");
    }
    begin(&f);
    spw_slice merged;
    assert_status(spw_payload_merge(f.payload, (spw_merge_copy)2, &merged, NULL),
                  INVALID_ARGUMENT);
    assert_status(spw_payload_merge(f.payload, (spw_merge_copy)-1, &merged, NULL),
                  INVALID_ARGUMENT);
    close_fixture(&f);
}

static void more_than_the_address_space_is_refused(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    /* A buffer that claims half of it, of which nobody reads a byte. */
    spw_buffer *vast;
    assert_ok(spw_buffer_wrap(f.counted.context, &f, SIZE_MAX / 2 + 1, true, nothing,
                              NULL, &vast, NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(append(f.payload, vast, 0, SIZE_MAX / 2 + 1, 0, NULL));
    spw_buffer_unref(vast);
    spw_slice merged;
    assert_status(spw_payload_merge(f.payload, SPW_MERGE_IF_NEEDED, &merged, NULL),
                  LIMIT_EXCEEDED);
    close_fixture(&f);
}

static void a_budget_that_has_no_room_refuses_the_copy_alone(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 2 * BUFFER_BYTES);
    spw_buffer *buffer;
    spw_payload *payload;
    assert_ok(make_buffer(counted.context, 3, &buffer, NULL));
    assert_ok(spw_payload_create(counted.context, 0, &payload, NULL));
    assert_ok(append(payload, buffer, 0, BUFFER_BYTES, 0, NULL));
    spw_slice merged;
    assert_ok(spw_payload_merge(payload, SPW_MERGE_IF_NEEDED, &merged, NULL));
    spw_buffer_unref(merged.buffer);
    assert_ok(append(payload, buffer, 0, BUFFER_BYTES, 0, NULL));
    assert_status(spw_payload_merge(payload, SPW_MERGE_IF_NEEDED, &merged, NULL),
                  LIMIT_EXCEEDED);
    spw_buffer_unref(buffer);
    spw_payload_free(payload);
    counted_context_close(&counted);
}

/* Random cuts of random buffers against plain joining. */
static void it_has_the_bytes_of_plain_joining(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    unsigned seed = 7;
    for (int round = 0; round < 2000; round++) {
        begin(&f);
        size_t count = (size_t)rand_r(&seed) % MOST_PARTS, at = 0;
        bool is_one = true, has_bytes = false;
        for (size_t i = 0; i < count; i++) {
            size_t size = (size_t)rand_r(&seed) % 4 * 30;
            bool moves = rand_r(&seed) % 8 == 0;
            if (moves)
                at += 1;
            add(&f, &(part){0, at, size}, 1);
            if (size > 0 && moves && has_bytes)
                is_one = false;
            else if (moves && has_bytes && size == 0)
                at -= 1; /* what has no bytes moves nothing */
            has_bytes |= size > 0;
            at += size;
        }
        spw_slice merged;
        spw_status status =
            spw_payload_merge(f.payload, SPW_MERGE_NEVER, &merged, NULL);
        assert_int_equal(status == SPW_STATUS_OK, is_one);
        if (is_one)
            spw_buffer_unref(merged.buffer);
        assert_ok(spw_payload_merge(f.payload, SPW_MERGE_IF_NEEDED, &merged, NULL));
        check_bytes(&f, &merged);
        assert_int_equal(merged.buffer == f.buffers[0], is_one && has_bytes);
        spw_buffer_unref(merged.buffer);
    }
    close_fixture(&f);
}

static void merges(void **state)
{
    torture *t = *state;
    spw_payload *payload = NULL;
    spw_buffer *buffer = NULL;
    spw_slice merged = {0};
    TRY(make_buffer(t->context, 3, &buffer, &t->error));
    TRY(spw_payload_create(t->context, 0, &payload, &t->error));
    for (size_t i = 0; i < 12; i++)
        TRY(append(payload, buffer, 10 * i, 10, 0, &t->error));
    TRY(spw_payload_merge(payload, SPW_MERGE_NEVER, &merged, &t->error));
    spw_buffer_unref(merged.buffer);
    merged.buffer = NULL;
    TRY(append(payload, buffer, 0, 10, 0, &t->error));
    TRY(spw_payload_merge(payload, SPW_MERGE_IF_NEEDED, &merged, &t->error));
    assert_int_equal(merged.size, 130);
end:
    spw_buffer_unref(merged.buffer);
    spw_buffer_unref(buffer);
    spw_payload_free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_side_by_side_become_one_without_a_copy),
        cmocka_unit_test(what_does_not_follow_is_named_or_copied_once),
        cmocka_unit_test(memory_of_two_owners_that_touches_is_not_merged),
        cmocka_unit_test(it_is_writeable_if_every_slice_is),
        cmocka_unit_test(without_bytes_it_is_an_empty_buffer_that_pins_nothing),
        cmocka_unit_test(what_is_no_plain_memory_is_refused),
        cmocka_unit_test(more_than_the_address_space_is_refused),
        cmocka_unit_test(a_budget_that_has_no_room_refuses_the_copy_alone),
        cmocka_unit_test(it_has_the_bytes_of_plain_joining),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(merges)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("payload merge", scenarios);
}
