#include "spillway/payload.h"

#include <fcntl.h>
#include <string.h>

#include "counted_context.h"
#include "file_payloads.h"
#include "memory/payload_slices.h"
#include "testing.h"
#include "torture.h"

static spw_slice slice_of(spw_buffer *buffer, uint64_t offset, uint64_t size)
{
    return (spw_slice){.buffer = spw_buffer_ref(buffer),
                       .offset = offset,
                       .size = size,
                       .plain_size = size};
}

static spw_buffer *make_buffer(spw_context *context, size_t size)
{
    spw_buffer *buffer;
    assert_ok(spw_buffer_create(context, size, SPW_CHARGE_HELD, &buffer, NULL));
    return buffer;
}

static void slices_stay_in_order_and_are_summed(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer = make_buffer(counted.context, 1000);
    spw_payload *payload;
    assert_ok(spw_payload_create(counted.context, 0, &payload, NULL));
    assert_int_equal(spw_payload_count(payload), 0);
    for (uint64_t i = 0; i < 100; i++) {
        spw_slice slice = slice_of(buffer, 10 * i, i % 11);
        assert_ok(spw_payload_append(payload, &slice, NULL));
    }
    assert_int_equal(spw_payload_count(payload), 100);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const spw_slice *slice = &spw_payload_slices(payload)[i];
        assert_int_equal(slice->offset, 10 * i);
        assert_int_equal(slice->size, i % 11);
        assert_ptr_equal(spw_slice_data(slice),
                         (char *)spw_buffer_data(buffer) + 10 * i);
        sum += slice->size;
    }
    assert_int_equal(spw_payload_bytes(payload), sum);
    spw_buffer_unref(buffer);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 1000);
    spw_payload_free(payload);
    counted_context_close(&counted);
}

static void within_its_capacity_a_payload_does_not_allocate(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer = make_buffer(counted.context, 1);
    spw_payload *payload;
    assert_ok(spw_payload_create(counted.context, 50, &payload, NULL));
    uint64_t calls = counted.allocator.calls;
    for (int i = 0; i < 50; i++) {
        spw_slice slice = slice_of(buffer, 0, 1);
        assert_ok(spw_payload_append(payload, &slice, NULL));
    }
    assert_int_equal(counted.allocator.calls, calls);
    spw_payload_free(payload);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

static void a_slice_outside_its_buffer_is_refused_and_not_taken(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer = make_buffer(counted.context, 100);
    spw_payload *payload;
    assert_ok(spw_payload_create(counted.context, 1, &payload, NULL));
    static const struct {
        uint64_t offset, size;
        bool fits;
    } CASES[] = {
        {0, 100, true},         {100, 0, true},         {99, 1, true},
        {0, 101, false},        {100, 1, false},        {101, 0, false},
        {UINT64_MAX, 1, false}, {1, UINT64_MAX, false}, {UINT64_MAX, UINT64_MAX, false},
    };
    size_t fitting = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        spw_slice slice = slice_of(buffer, CASES[i].offset, CASES[i].size);
        spw_status status = spw_payload_append(payload, &slice, NULL);
        if (CASES[i].fits) {
            assert_ok(status);
            fitting++;
        } else {
            assert_status(status, INVALID_ARGUMENT);
            spw_buffer_unref(buffer);
        }
        assert_int_equal(spw_payload_count(payload), fitting);
    }
    assert_int_equal(spw_payload_bytes(payload), 101);
    spw_payload_free(payload);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

static void a_range_of_a_file_may_be_any_that_a_file_can_have(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_payload *payload;
    spw_file *file;
    assert_ok(spw_payload_create(counted.context, 1, &payload, NULL));
    assert_ok(spw_file_adopt(counted.context, file_open(), &file, NULL));
    int descriptor = spw_file_descriptor(file);
    static const struct {
        uint64_t offset, size;
        bool fits;
    } CASES[] = {
        {0, 1000, true}, /* of an empty file, which may grow */
        {INT64_MAX - 1, 1, true},
        {INT64_MAX, 1, false},
        {0, (uint64_t)INT64_MAX + 1, false},
        {(uint64_t)INT64_MAX + 1, 0, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        spw_slice slice = {.kind = SPW_MEMORY_FILE,
                           .file = file,
                           .offset = CASES[i].offset,
                           .size = CASES[i].size};
        spw_status status = spw_payload_append(payload, &slice, NULL);
        assert_int_equal(status == SPW_STATUS_OK, CASES[i].fits);
        if (CASES[i].fits)
            spw_file_ref(file);
    }
    assert_int_equal(spw_payload_bytes(payload), 1001);
    assert_null(spw_slice_data(spw_payload_slices(payload)));
    spw_slice unknown = {.kind = 2, .file = file};
    assert_status(spw_payload_append(payload, &unknown, NULL), INVALID_ARGUMENT);
    spw_file_unref(file);
    assert_int_not_equal(fcntl(descriptor, F_GETFD), -1);
    spw_payload_free(payload);
    assert_int_equal(fcntl(descriptor, F_GETFD), -1);
    counted_context_close(&counted);
}

static void too_large_a_capacity_is_refused(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_payload *const untouched = (spw_payload *)&counted;
    spw_payload *payload = untouched;
    assert_status(spw_payload_create(counted.context, SIZE_MAX / 16, &payload, NULL),
                  NO_MEMORY);
    assert_ptr_equal(payload, untouched);
    spw_payload_free(NULL);
    counted_context_close(&counted);
}

static spw_status fill(spw_context *context, spw_error *error)
{
    spw_payload *payload;
    spw_status status = spw_payload_create(context, 2, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (int i = 0; i < 12 && status == SPW_STATUS_OK; i++) {
        spw_slice slice = {.size = 4};
        status = spw_buffer_create(context, 4, SPW_CHARGE_HELD, &slice.buffer, error);
        if (status != SPW_STATUS_OK)
            break;
        status = spw_payload_append(payload, &slice, error);
        if (status != SPW_STATUS_OK)
            spw_buffer_unref(slice.buffer);
    }
    spw_payload_free(payload);
    return status;
}

static void a_payload_grows(void **state)
{
    torture *t = *state;
    t->status = fill(t->context, &t->error);
}

static void a_slice_gets_another_buffer(void **state)
{
    torture *t = *state;
    spw_payload *payload = NULL;
    spw_slice slice = {.size = 4, .offset = 3, .flags = SPW_SLICE_WRITEABLE};
    spw_buffer *other;
    TRY(spw_payload_create(t->context, 1, &payload, &t->error));
    TRY(spw_buffer_create(t->context, 9, SPW_CHARGE_HELD, &slice.buffer, &t->error));
    assert_ok(spw_payload_append(payload, &slice, NULL));
    TRY(spw_buffer_create(t->context, 4, SPW_CHARGE_HELD, &other, &t->error));
    spw__payload_replace(payload, 0, other);
    const spw_slice *got = spw_payload_slices(payload);
    assert_ptr_equal(spw_slice_data(got), spw_buffer_data(other));
    assert_int_equal(got->size, 4);
    assert_int_equal(got->flags, SPW_SLICE_WRITEABLE);
    assert_int_equal(spw_payload_bytes(payload), 4);
end:
    spw_payload_free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_stay_in_order_and_are_summed),
        cmocka_unit_test(within_its_capacity_a_payload_does_not_allocate),
        cmocka_unit_test(a_slice_outside_its_buffer_is_refused_and_not_taken),
        cmocka_unit_test(a_range_of_a_file_may_be_any_that_a_file_can_have),
        cmocka_unit_test(too_large_a_capacity_is_refused),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(a_payload_grows),
                                           SCENARIO(a_slice_gets_another_buffer)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("payload", scenarios);
}
