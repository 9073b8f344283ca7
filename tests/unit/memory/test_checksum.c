/* The checksum is XXH3 by xxHash's own test vectors, at every alignment. */
#include "memory/checksum.h"

#include <string.h>

#include "testing.h"

/* From xxHash's sanity check (cli/xsum_sanity_check.c): XXH3_64bits of the first bytes
 * of its test buffer. */
static const struct {
    size_t size;
    uint64_t sum;
} VECTORS[] = {
    {0, 0x2D06800538D394C2},    /* empty string */
    {1, 0xC44BDFF4074EECDB},    /*  1 -  3 */
    {6, 0x27B56A84CD2D7325},    /*  4 -  8 */
    {12, 0xA713DAF0DFBB77E7},   /*  9 - 16 */
    {24, 0xA3FE70BF9D3510EB},   /* 17 - 32 */
    {48, 0x397DA259ECBA1F11},   /* 33 - 64 */
    {80, 0xBCDEFBBB2C47C90A},   /* 65 - 96 */
    {195, 0xCD94217EE362EC3A},  /* 129 - 240 */
    {403, 0xCDEB804D65C6DEA4},  /* one block, its last stripe overlapping */
    {512, 0x617E49599013CB6B},  /* one block, its last stripe whole */
    {2048, 0xDD59E2C3A5F038E0}, /* two blocks */
    {2240, 0x6E73A90539CF2948}, /* three */
    {2367, 0xCB37AEB9E5D361ED},
};
enum { LARGEST = 2367, ALIGNMENTS = 64 };

static void make_data(unsigned char *data)
{
    uint64_t state = 2654435761u;
    for (size_t i = 0; i < LARGEST; i++) {
        data[i] = (unsigned char)(state >> 56);
        state *= UINT64_C(11400714785074694797);
    }
}

static void it_is_xxh3(void **state)
{
    (void)state;
    unsigned char data[LARGEST];
    make_data(data);
    for (size_t i = 0; i < COUNT_OF(VECTORS); i++)
        assert_int_equal(spw__checksum(data, VECTORS[i].size), VECTORS[i].sum);
    assert_int_equal(spw__checksum(NULL, 0), VECTORS[0].sum);
}

static void it_does_not_depend_on_where_the_bytes_are(void **state)
{
    (void)state;
    unsigned char data[LARGEST], moved[LARGEST + ALIGNMENTS];
    make_data(data);
    for (size_t at = 0; at < ALIGNMENTS; at++) {
        memcpy(moved + at, data, LARGEST);
        assert_int_equal(spw__checksum(moved + at, LARGEST), VECTORS[12].sum);
    }
}

static void one_bit_makes_it_another(void **state)
{
    (void)state;
    unsigned char data[LARGEST];
    make_data(data);
    for (size_t bit = 0; bit < (size_t)LARGEST * 8; bit += 13) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(spw__checksum(data, LARGEST), VECTORS[12].sum);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void pieces_make_the_same(void **state)
{
    (void)state;
    unsigned char data[LARGEST];
    make_data(data);
    for (size_t piece = 1; piece <= LARGEST; piece += 101) {
        spw__checksum_state sum;
        spw__checksum_begin(&sum);
        assert_int_equal(spw__checksum_end(&sum), VECTORS[0].sum);
        for (size_t at = 0; at < LARGEST; at += piece)
            spw__checksum_add(&sum, data + at,
                              piece < LARGEST - at ? piece : LARGEST - at);
        assert_int_equal(spw__checksum_end(&sum), VECTORS[12].sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_xxh3),
        cmocka_unit_test(it_does_not_depend_on_where_the_bytes_are),
        cmocka_unit_test(one_bit_makes_it_another),
        cmocka_unit_test(pieces_make_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
