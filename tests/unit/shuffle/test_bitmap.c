#include "shuffle/bitmap.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

enum { BYTES = 24, BITS_MAX = BYTES * 8, ROUNDS = 20000 };

static void set_bit(uint8_t *bitmap, size_t at, unsigned bit)
{
    bitmap[at / 8] = (uint8_t)((bitmap[at / 8] & ~(1u << at % 8)) | bit << at % 8);
}

static unsigned bit_of(const uint8_t *bitmap, size_t at)
{
    return (unsigned)bitmap[at / 8] >> (at % 8) & 1u;
}

/* Bit by bit, and then what is behind the last one in its byte. */
static void append_slowly(uint8_t *bitmap, size_t at, const uint8_t *source,
                          size_t first, const uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t from = first + (order != NULL ? order[i] : i);
        set_bit(bitmap, at + i, source != NULL ? bit_of(source, from) : 1);
    }
    for (size_t end = at + count; count > 0 && end % 8 > 0; end++)
        set_bit(bitmap, end, 0);
}

static void every_way_appends_what_bit_by_bit_does(void **state)
{
    (void)state;
    unsigned seed = 5;
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t found[BYTES], expected[BYTES], source[BYTES];
        uint32_t order[BITS_MAX];
        for (size_t i = 0; i < BYTES; i++) {
            found[i] = expected[i] = (uint8_t)rand_r(&seed);
            source[i] = (uint8_t)rand_r(&seed);
        }
        size_t at = (size_t)rand_r(&seed) % BITS_MAX;
        size_t count = (size_t)rand_r(&seed) % (BITS_MAX - at + 1);
        size_t first = (size_t)rand_r(&seed) % 10;
        for (size_t i = 0; i < count; i++)
            order[i] = (uint32_t)rand_r(&seed) % (BITS_MAX - 10);
        if (round % 3 == 0) {
            spw__bitmap_append_ones(found, at, count);
            append_slowly(expected, at, NULL, 0, NULL, count);
        } else if (round % 3 == 1) {
            spw__bitmap_append(found, at, source, count);
            append_slowly(expected, at, source, 0, NULL, count);
        } else {
            spw__bitmap_append_gathered(found, at, source, first, order, count);
            append_slowly(expected, at, source, first, order, count);
        }
        assert_memory_equal(found, expected, BYTES);
    }
}

/* Memory that ends with the last bit: AddressSanitizer sees who goes on. */
static void nothing_behind_the_last_byte_is_touched(void **state)
{
    (void)state;
    for (size_t at = 0; at < 20; at++) {
        for (size_t count = 0; at + count < 60; count++) {
            size_t bytes = (at + count + 7) / 8;
            uint8_t *bitmap = malloc(bytes + 1), *source = malloc((count + 7) / 8 + 1);
            uint32_t order[60];
            memset(bitmap, 0, bytes);
            bitmap[bytes] = 0xa5;
            memset(source, 0xff, (count + 7) / 8);
            for (size_t i = 0; i < count; i++)
                order[i] = (uint32_t)(count - 1 - i);
            spw__bitmap_append(bitmap, at, source, count);
            spw__bitmap_append_ones(bitmap, at, count);
            spw__bitmap_append_gathered(bitmap, at, source, 0, order, count);
            assert_int_equal(bitmap[bytes], 0xa5);
            for (size_t i = 0; i < bytes * 8; i++)
                assert_int_equal(bit_of(bitmap, i), i >= at && i < at + count);
            free(bitmap);
            free(source);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_appends_what_bit_by_bit_does),
        cmocka_unit_test(nothing_behind_the_last_byte_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
