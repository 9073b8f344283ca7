#include <stdlib.h>
#include <string.h>

#include "shuffle/gather.h"
#include "testing.h"

enum { ROWS = 200, VALUE_BYTES_MAX = 70 };

static void put(uint8_t *numbers, size_t size, size_t i, uint64_t number)
{
    memcpy(numbers + i * size, &number, size);
}

/* A column whose memory ends with its last value, gathered in two runs into memory that
 * ends with the last value. */
static void check_round(uint32_t offset_size, uint32_t end_size, unsigned *seed)
{
    uint64_t starts[ROWS + 1] = {(uint64_t)rand_r(seed) % 9}, bytes = 0;
    unsigned most = 1 + (unsigned)rand_r(seed) % VALUE_BYTES_MAX;
    for (size_t i = 0; i < ROWS; i++)
        starts[i + 1] = starts[i] + (uint64_t)rand_r(seed) % most;
    uint8_t *offsets = malloc((ROWS + 1) * (size_t)offset_size);
    uint8_t *data = malloc((size_t)starts[ROWS] + 1);
    for (size_t i = 0; i <= ROWS; i++)
        put(offsets, offset_size, i, starts[i]);
    for (size_t i = 0; i < starts[ROWS]; i++)
        data[i] = (uint8_t)rand_r(seed);
    uint32_t order[ROWS + SPW__GATHER_AHEAD] = {0};
    size_t count = (size_t)rand_r(seed) % ROWS, half = count / 3;
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)rand_r(seed) % ROWS;
        bytes += starts[order[i] + 1] - starts[order[i]];
    }
    uint8_t *ends = malloc(count * end_size + 1), *out = malloc((size_t)bytes + 1);
    out[bytes] = 0x5a;
    spw__binary_source source = {offsets, offset_size, data, starts[ROWS]};
    spw__binary_run run = {
        .ends = ends, .end_size = end_size, .data = out, .data_size = bytes};
    spw__gather_binary(&run, &source, order, half);
    run.rows_before = (uint32_t)half;
    spw__gather_binary(&run, &source, order + half, count - half);
    for (uint64_t i = 0, end = 0; i < count; i++) {
        uint64_t size = starts[order[i] + 1] - starts[order[i]], found = 0;
        assert_memory_equal(out + end, data + starts[order[i]], size);
        end += size;
        memcpy(&found, ends + i * end_size, end_size);
        assert_int_equal(found, end);
    }
    assert_int_equal(out[bytes], 0x5a);
    free(offsets);
    free(data);
    free(ends);
    free(out);
}

static void values_lie_side_by_side_with_their_ends(void **state)
{
    (void)state;
    unsigned seed = 23;
    for (int round = 0; round < 3000; round++)
        check_round(round % 2 == 0 ? 4 : 8, round / 2 % 2 == 0 ? 4 : 8, &seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_lie_side_by_side_with_their_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
