/* Reading back: the bytes that were written, in few reads, or an error and never
 * others. */
#include "store/read_back.h"

#include <string.h>
#include <unistd.h>

#include "disk_fault.h"
#include "file_payloads.h"
#include "io_fault.h"
#include "payloads.h"
#include "torture.h"

static const size_t SIZES[] = {0, 1, 100, 63, 65536, 0, 400000, 5, 7};

static void what_was_written_comes_back(void **state)
{
    torture *t = *state;
    spw_payload *on_disk = NULL, *read = NULL;
    spw__read_back_figures figures = {0};
    TRY(payload_make_stored(t->context, SIZES, COUNT_OF(SIZES), 7, &on_disk,
                            &t->error));
    TRY(spw__read_back(t->context, on_disk, false, &read, &figures, &t->error));
    payload_assert(read, SIZES, COUNT_OF(SIZES), 7);
    for (size_t i = 0; i < COUNT_OF(SIZES); i++)
        assert_int_equal(spw_payload_slices(read)[i].flags & SPW_SLICE_HAS_CHECKSUM, 0);
    assert_true(figures.read_bytes >= spw_payload_bytes(on_disk));
end:
    spw_payload_free(read);
    spw_payload_free(on_disk);
}

static void many_small_slices_are_read_together(void **state)
{
    torture *t = *state;
    enum { COUNT = 64 };
    size_t sizes[COUNT];
    spw_payload *on_disk, *read;
    spw__read_back_figures figures = {0};
    for (size_t i = 0; i < COUNT; i++)
        sizes[i] = 50 + i % 100;
    assert_ok(payload_make_stored(t->context, sizes, COUNT, 7, &on_disk, &t->error));
    uint64_t before = io_fault_calls_of("spill_read");
    assert_ok(spw__read_back(t->context, on_disk, false, &read, &figures, NULL));
    assert_true(io_fault_calls_of("spill_read") - before <= 2);
    payload_assert(read, sizes, COUNT, 7);
    spw_payload_free(read);
    spw_payload_free(on_disk);
}

static void a_large_slice_has_memory_of_its_own(void **state)
{
    torture *t = *state;
    const size_t sizes[] = {100, 1 << 20, 100};
    spw_payload *on_disk, *read;
    spw__read_back_figures figures = {0};
    assert_ok(payload_make_stored(t->context, sizes, COUNT_OF(sizes), 7, &on_disk,
                                  &t->error));
    assert_ok(spw__read_back(t->context, on_disk, false, &read, &figures, NULL));
    const spw_slice *slices = spw_payload_slices(read);
    assert_int_equal(spw_buffer_size(slices[1].buffer), 1 << 20);
    assert_ptr_not_equal(slices[0].buffer, slices[1].buffer);
    spw_payload_free(read);
    spw_payload_free(on_disk);
}

static void a_wrong_bit_anywhere_is_found(void **state)
{
    torture *t = *state;
    const size_t sizes[] = {40, 70, 3000};
    spw_payload *on_disk, *read;
    assert_ok(payload_make_stored(t->context, sizes, COUNT_OF(sizes), 7, &on_disk,
                                  &t->error));
    const spw_slice *slices = spw_payload_slices(on_disk);
    uint64_t end = slices[2].offset + slices[2].size - slices[0].offset;
    for (uint64_t bit = 0; bit < 8 * end; bit += 7) {
        uint64_t byte = slices[0].offset + bit / 8;
        bool is_wanted = false;
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            is_wanted |=
                byte >= slices[i].offset && byte < slices[i].offset + slices[i].size;
        spw__read_back_figures figures = {0};
        disk_fault_corrupt(1, bit);
        spw_status status =
            spw__read_back(t->context, on_disk, false, &read, &figures, &t->error);
        assert_int_equal(status, is_wanted ? SPW_STATUS_CORRUPT : SPW_STATUS_OK);
        if (status == SPW_STATUS_OK)
            spw_payload_free(read);
    }
    spw_payload_free(on_disk);
}

static void a_file_that_ends_too_early_is_corrupt(void **state)
{
    torture *t = *state;
    spw_payload *on_disk, *read;
    spw__read_back_figures figures = {0};
    assert_ok(payload_make_stored(t->context, SIZES, COUNT_OF(SIZES), 7, &on_disk,
                                  &t->error));
    payload_cut_file(on_disk, 6, 399999);
    assert_status(
        spw__read_back(t->context, on_disk, false, &read, &figures, &t->error),
        CORRUPT);
    spw_payload_free(on_disk);
}

static void a_large_slice_is_read_past_the_cache(void **state)
{
    torture *t = *state;
    const size_t sizes[] = {100, (3 << 20) + 77, 100};
    spw_payload *on_disk = NULL, *read = NULL;
    spw__read_back_figures figures = {0};
    torture_use_pool(t); /* for memory that begins where a page does */
    TRY(payload_make_stored(t->context, sizes, COUNT_OF(sizes), 7, &on_disk,
                            &t->error));
    TRY(spw__read_back(t->context, on_disk, true, &read, &figures, &t->error));
    payload_assert(read, sizes, COUNT_OF(sizes), 7);
    const spw_slice *slice = &spw_payload_slices(read)[1];
    assert_int_equal((uintptr_t)spw_slice_data(slice) % SPW_BUFFER_ALIGNMENT,
                     spw_payload_slices(on_disk)[1].offset % SPW_BUFFER_ALIGNMENT);
end:
    spw_payload_free(read);
    spw_payload_free(on_disk);
}

int main(void)
{
    const struct CMUnitTest scenarios[] = {
        SCENARIO(what_was_written_comes_back),
        SCENARIO(a_large_slice_is_read_past_the_cache)};
    const struct CMUnitTest tests[] = {
        SCENARIO(many_small_slices_are_read_together),
        SCENARIO(a_large_slice_has_memory_of_its_own),
        SCENARIO(a_wrong_bit_anywhere_is_found),
        SCENARIO(a_file_that_ends_too_early_is_corrupt),
    };
    int failures = cmocka_run_group_tests(scenarios, NULL, NULL) +
                   cmocka_run_group_tests(tests, NULL, NULL);
    return failures + TORTURE_SUITE("read back", scenarios);
}
