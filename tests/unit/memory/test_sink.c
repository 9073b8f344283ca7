#include "spillway/sink.h"

#include <string.h>

#include "testing.h"
#include "torture.h"

static void a_place_is_in_flight_until_it_is_committed(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_sink sink = spw_sink_heap(counted.context);
    spw_slice slice;
    assert_ok(sink.ops->reserve(sink.self, 1000, &slice, NULL));
    assert_int_equal(slice.kind, SPW_MEMORY_HOST);
    assert_int_equal(slice.flags, SPW_SLICE_WRITEABLE);
    assert_int_equal(slice.codec, SPW_CODEC_NONE);
    assert_int_equal(slice.size, 1000);
    assert_int_equal(slice.plain_size, 1000);
    assert_int_equal((uintptr_t)spw_slice_data(&slice) % SPW_BUFFER_ALIGNMENT, 0);
    memset(spw_slice_data(&slice), 1, 1000);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_IN_FLIGHT), 1000);
    sink.ops->commit(sink.self, &slice);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_IN_FLIGHT), 0);
    assert_int_equal(counted_context_charged(&counted, SPW_CHARGE_HELD), 1000);
    spw_buffer_unref(slice.buffer);
    counted_context_close(&counted);
}

static void an_aborted_place_goes_with_its_reference(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_sink sink = spw_sink_heap(counted.context);
    spw_slice slice;
    assert_ok(sink.ops->reserve(sink.self, 1, &slice, NULL));
    sink.ops->abort(sink.self, &slice);
    spw_buffer_unref(slice.buffer);
    counted_context_close(&counted);
}

static void places_that_cannot_be_are_refused(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 1000);
    spw_sink sink = spw_sink_heap(counted.context);
    spw_slice slice, before;
    memset(&slice, 7, sizeof slice);
    before = slice;
    spw_error error;
    static const uint64_t SIZES[] = {1001, SIZE_MAX / 2, (uint64_t)SIZE_MAX / 2 + 1,
                                     UINT64_MAX};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        assert_status(sink.ops->reserve(sink.self, SIZES[i], &slice, &error),
                      LIMIT_EXCEEDED);
        assert_memory_equal(&slice, &before, sizeof slice);
    }
    assert_non_null(strstr(error.message, "address space"));
    counted_context_close(&counted);
}

static spw_status reserve_three(spw_context *context, void *user, spw_error *error)
{
    (void)user;
    spw_sink sink = spw_sink_heap(context);
    spw_slice slices[3];
    int count = 0;
    spw_status status = SPW_STATUS_OK;
    while (count < 3 && status == SPW_STATUS_OK) {
        status = sink.ops->reserve(sink.self, 100, &slices[count], error);
        count += status == SPW_STATUS_OK;
    }
    for (int i = 0; i < count; i++) {
        sink.ops->abort(sink.self, &slices[i]);
        spw_buffer_unref(slices[i].buffer);
    }
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    torture_allocations("sink", reserve_three, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_place_is_in_flight_until_it_is_committed),
        TEST(an_aborted_place_goes_with_its_reference),
        TEST(places_that_cannot_be_are_refused),
        TEST(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
