/* Ranges of files for who sends them: read, or verified with little memory. */
#include "spillway/stored_ranges.h"

#include <errno.h>

#include "disk_fault.h"
#include "file_payloads.h"
#include "io_fault.h"
#include "memory/checksum.h"
#include "payloads.h"
#include "torture.h"

enum { MIB = 1 << 20 };
static const size_t SIZES[] = {0, 1, 300, 65536, 2 * MIB + 5, MIB};

static void they_are_read_or_verified(void **state)
{
    torture *t = *state;
    spw_payload *stored = NULL, *read = NULL;
    disk_fault_reset();
    TRY(payload_make_stored(t->context, SIZES, COUNT_OF(SIZES), 3, &stored, &t->error));
    TRY(spw_payload_verify(t->context, stored, &t->error));
    assert_int_equal(torture_charged(t, SPW_CHARGE_HELD), 0);
    TRY(spw_payload_read_back(t->context, stored, &read, &t->error));
    payload_assert(read, SIZES, COUNT_OF(SIZES), 3);
    /* What is in memory is nothing to verify. */
    TRY(spw_payload_verify(t->context, read, &t->error));
end:
    spw_payload_free(read);
    spw_payload_free(stored);
}

static void a_wrong_bit_in_any_piece_is_found(void **state)
{
    torture *t = *state;
    const size_t size = 2 * MIB + 5;
    spw_payload *stored, *read;
    disk_fault_reset();
    assert_ok(payload_make_stored(t->context, &size, 1, 3, &stored, NULL));
    for (uint64_t piece = 1; piece <= 3; piece++) {
        disk_fault_corrupt(piece, 29);
        assert_int_equal(spw_payload_verify(t->context, stored, &t->error),
                         SPW_STATUS_CORRUPT);
    }
    disk_fault_corrupt(1, 8 * size - 1);
    assert_int_equal(spw_payload_read_back(t->context, stored, &read, &t->error),
                     SPW_STATUS_CORRUPT);
    assert_ok(spw_payload_verify(t->context, stored, NULL));
    spw_payload_free(stored);
}

static void a_file_that_ends_is_found(void **state)
{
    torture *t = *state;
    const size_t size = 2 * MIB;
    spw_payload *stored;
    disk_fault_reset();
    assert_ok(payload_make_stored(t->context, &size, 1, 3, &stored, NULL));
    payload_cut_file(stored, 0, size - 1);
    assert_int_equal(spw_payload_verify(t->context, stored, &t->error),
                     SPW_STATUS_CORRUPT);
    spw_payload_free(stored);
}

static void what_a_disk_says_is_told(void **state)
{
    torture *t = *state;
    const size_t size = 2 * MIB;
    spw_payload *stored;
    disk_fault_reset();
    assert_ok(payload_make_stored(t->context, &size, 1, 3, &stored, NULL));
    io_fault_arm_call("spill_read", 2, EIO);
    assert_int_equal(spw_payload_verify(t->context, stored, &t->error), SPW_STATUS_IO);
    assert_int_equal(t->error.os_errno, EIO);
    spw_payload_free(stored);
}

static void a_range_may_begin_past_4_gib(void **state)
{
    torture *t = *state;
    const size_t size = 3000;
    spw_payload *stored, *read;
    disk_fault_reset();
    assert_ok(
        payload_make_stored_at(t->context, UINT64_C(5) << 30, size, 3, &stored, NULL));
    assert_ok(spw_payload_verify(t->context, stored, NULL));
    assert_ok(spw_payload_read_back(t->context, stored, &read, NULL));
    payload_assert(read, &size, 1, 3);
    spw_payload_free(read);
    spw_payload_free(stored);
}

static void a_checksum_is_that_of_slices(void **state)
{
    (void)state;
    assert_int_equal(spw_checksum("spill", 5), spw__checksum("spill", 5));
    assert_int_equal(spw_checksum(NULL, 0), spw__checksum(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest scenarios[] = {SCENARIO(they_are_read_or_verified)};
    const struct CMUnitTest tests[] = {
        SCENARIO(a_wrong_bit_in_any_piece_is_found),
        SCENARIO(a_file_that_ends_is_found),
        SCENARIO(what_a_disk_says_is_told),
        SCENARIO(a_range_may_begin_past_4_gib),
        SCENARIO(a_checksum_is_that_of_slices),
    };
    int failures = cmocka_run_group_tests(scenarios, NULL, NULL);
    failures += cmocka_run_group_tests(tests, NULL, NULL);
    return failures + TORTURE_SUITE("stored_ranges", scenarios);
}
