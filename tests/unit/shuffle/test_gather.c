#include "shuffle/gather.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

enum { ROWS = 3000, LEAD_MAX = 17, SIZE_MAX_TRIED = 40 };

static uint8_t *bytes_of(size_t size, unsigned *seed)
{
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(rand_r(seed) >> 2);
    return bytes;
}

/* One run of items that begin anywhere, into memory that begins anywhere, by every
 * way. */
static void check_size(size_t item_size, size_t count, unsigned *seed)
{
    size_t in_lead = (size_t)rand_r(seed) % LEAD_MAX;
    size_t out_lead = (size_t)rand_r(seed) % 70;
    size_t out_size = out_lead + count * item_size;
    size_t stride = item_size + (rand_r(seed) % 2 == 0 ? 0 : (size_t)rand_r(seed) % 50);
    uint8_t *memory = bytes_of(in_lead + (ROWS - 1) * stride + item_size, seed);
    const uint8_t *items = memory + in_lead;
    uint32_t *order = malloc(count * sizeof *order + 1);
    uint8_t *expected = malloc(out_size + 1);
    memset(expected, 0x5a, out_size + 1);
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)rand_r(seed) % ROWS;
        for (size_t j = 0; j < item_size; j++)
            expected[out_lead + i * item_size + j] = items[order[i] * stride + j];
    }
    for (int way = 0; way <= SPW__GATHER_STREAMED; way++) {
        uint8_t *out = malloc(out_size + 1);
        memset(out, 0x5a, out_size + 1);
        spw__gather_for((spw__gather_way)way, item_size,
                        stride)(out + out_lead, items, order, count, item_size, stride);
        assert_memory_equal(out, expected, out_size + 1);
        free(out);
    }
    free(memory);
    free(order);
    free(expected);
}

static void every_way_gives_the_same_bytes(void **state)
{
    (void)state;
    unsigned seed = 11;
    for (size_t size = 1; size <= SIZE_MAX_TRIED; size++) {
        for (size_t count = 0; count < 40; count++)
            check_size(size, count, &seed);
        for (int round = 0; round < 30; round++)
            check_size(size, (size_t)rand_r(&seed) % ROWS, &seed);
    }
}

#if defined(__SSE2__)
static void sizes_that_are_streamed_have_a_way_of_their_own(void **state)
{
    (void)state;
    for (size_t size = 1; size < 20; size++) {
        bool is_streamed = size == 4 || size == 8 || size == 16;
        for (size_t stride = size; stride < size + 2; stride++)
            assert_int_equal(spw__gather_for(SPW__GATHER_PLAIN, size, stride) !=
                                 spw__gather_for(SPW__GATHER_STREAMED, size, stride),
                             is_streamed);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_gives_the_same_bytes),
#if defined(__SSE2__)
        cmocka_unit_test(sizes_that_are_streamed_have_a_way_of_their_own),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
