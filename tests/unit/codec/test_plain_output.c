/* The output that grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/plain_output.h"
#include "counted_context.h"

#define FIRST SPW__PLAIN_OUTPUT_FIRST_BYTES

/* Write count bytes, each the low byte of its position, in steps of at most step. */
static spw_status write_bytes(spw__plain_output *output, size_t count, size_t step,
                              spw_error *error)
{
    while (count > 0) {
        void *place;
        size_t room;
        spw_status status = spw__plain_output_room(output, &place, &room, error);
        if (status != SPW_STATUS_OK)
            return status;
        size_t bytes = room < step ? room : step;
        bytes = bytes < count ? bytes : count;
        assert_true(bytes > 0);
        for (size_t i = 0; i < bytes; i++)
            ((unsigned char *)place)[i] = (unsigned char)(output->total_bytes + i);
        spw__plain_output_advance(output, bytes);
        count -= bytes;
    }
    return SPW_STATUS_OK;
}

static void check_buffer(const spw_buffer *buffer, size_t size)
{
    assert_int_equal(spw_buffer_size(buffer), size);
    const unsigned char *bytes = spw_buffer_data(buffer);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)i)
            fail_msg("byte %zu of %zu is wrong", i, size);
    }
}

static void joins_what_was_written(void **state)
{
    (void)state;
    static const size_t SIZES[] = {0,         1,         FIRST - 1,     FIRST,
                                   FIRST + 1, 2 * FIRST, 4 * FIRST + 1, 1000003};
    static const size_t STEPS[] = {777, FIRST, SIZE_MAX};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        for (size_t j = 0; j < sizeof STEPS / sizeof STEPS[0]; j++) {
            counted_context counted;
            counted_context_open(&counted, 0, 0);
            spw__plain_output output;
            spw__plain_output_init(&output, counted.context, SPW_CHARGE_HELD,
                                   UINT64_MAX, 0);
            assert_int_equal(write_bytes(&output, SIZES[i], STEPS[j], NULL),
                             SPW_STATUS_OK);
            spw_buffer *buffer;
            assert_int_equal(spw__plain_output_finish(&output, &buffer, NULL),
                             SPW_STATUS_OK);
            check_buffer(buffer, SIZES[i]);
            assert_int_equal(output.piece_count, 0);
            spw_buffer_unref(buffer);
            spw__plain_output_clear(&output);
            counted_context_close(&counted);
        }
    }
}

static void pieces_follow_what_arrived(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw__plain_output output;
    spw__plain_output_init(&output, counted.context, SPW_CHARGE_HELD, UINT64_MAX, 0);
    assert_int_equal(write_bytes(&output, 100 * FIRST, SIZE_MAX, NULL), SPW_STATUS_OK);
    uint64_t held = 0;
    for (size_t i = 0; i < output.piece_count; i++)
        held += spw_buffer_size(output.pieces[i]);
    assert_true(held >= 100 * FIRST && held <= 200 * FIRST);
    assert_int_equal(output.piece_count, 8); /* 1, 1, 2, 4 ... 64 times the first */
    spw__plain_output_clear(&output);
    counted_context_close(&counted);
}

static void the_first_piece_follows_the_guess(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw__plain_output output;
    void *place;
    size_t room;
    spw__plain_output_init(&output, counted.context, SPW_CHARGE_HELD, UINT64_MAX,
                           3 * FIRST);
    assert_int_equal(spw__plain_output_room(&output, &place, &room, NULL),
                     SPW_STATUS_OK);
    assert_int_equal(room, 3 * FIRST);
    spw__plain_output_clear(&output);
    counted_context_close(&counted);
}

static void the_room_stays_until_it_is_used(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw__plain_output output;
    spw__plain_output_init(&output, counted.context, SPW_CHARGE_HELD, UINT64_MAX, 0);
    void *first, *again;
    size_t room;
    assert_int_equal(spw__plain_output_room(&output, &first, &room, NULL),
                     SPW_STATUS_OK);
    assert_int_equal(spw__plain_output_room(&output, &again, &room, NULL),
                     SPW_STATUS_OK);
    assert_ptr_equal(first, again);
    spw__plain_output_advance(&output, 10);
    assert_int_equal(spw__plain_output_room(&output, &again, &room, NULL),
                     SPW_STATUS_OK);
    assert_ptr_equal((char *)first + 10, again);
    assert_int_equal(room, FIRST - 10);
    spw__plain_output_clear(&output);
    counted_context_close(&counted);
}

static void nothing_is_taken_beyond_the_limit(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw__plain_output output;
    const size_t limit = 3 * FIRST + 5;
    spw__plain_output_init(&output, counted.context, SPW_CHARGE_HELD, limit, 0);
    spw_error error;
    assert_int_equal(write_bytes(&output, limit, SIZE_MAX, &error), SPW_STATUS_OK);
    assert_int_equal(write_bytes(&output, 1, SIZE_MAX, &error),
                     SPW_STATUS_LIMIT_EXCEEDED);
    assert_true(strstr(error.message, "196613 bytes a message") != NULL);
    spw_budget_figures figures;
    spw_budget_read(counted.budget, &figures);
    assert_int_equal(figures.peak_bytes, limit);
    spw__plain_output_clear(&output);
    counted_context_close(&counted);
}

static void a_failed_finish_keeps_the_pieces(void **state)
{
    (void)state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw__plain_output output;
    spw__plain_output_init(&output, counted.context, SPW_CHARGE_HELD, UINT64_MAX, 0);
    assert_int_equal(write_bytes(&output, 1000, SIZE_MAX, NULL), SPW_STATUS_OK);
    spw_buffer *buffer = NULL;
    counted_context_fail_at(&counted, 1);
    assert_int_equal(spw__plain_output_finish(&output, &buffer, NULL),
                     SPW_STATUS_NO_MEMORY);
    assert_null(buffer);
    assert_int_equal(spw__plain_output_finish(&output, &buffer, NULL), SPW_STATUS_OK);
    check_buffer(buffer, 1000);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_what_was_written),
        cmocka_unit_test(pieces_follow_what_arrived),
        cmocka_unit_test(the_first_piece_follows_the_guess),
        cmocka_unit_test(the_room_stays_until_it_is_used),
        cmocka_unit_test(nothing_is_taken_beyond_the_limit),
        cmocka_unit_test(a_failed_finish_keeps_the_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
