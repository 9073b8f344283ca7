#include "transport/host_packet.h"

#include <string.h>

#include "testing.h"

static void a_packet_is_five_numbers(void **state)
{
    (void)state;
    const spw__host_packet packet = {.kind = SPW__HOST_WAY,
                                     .epoch = 0x0102030405060708,
                                     .number = 9,
                                     .place = UINT64_MAX,
                                     .way = 3,
                                     .os_errno = 0x80000001};
    static const uint8_t EXPECTED[SPW__HOST_HEAD_BYTES] = {
        2,    'S',  'P',  'W',  'H', 'O', 'S', 'T', 8, 7, 6,    5,    4,    3,
        2,    1,    9,    0,    0,   0,   0,   0,   0, 0, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 3,   0,   0,   0,   1, 0, 0,    0x80};
    uint8_t head[SPW__HOST_HEAD_BYTES];
    spw__host_packet got;
    spw__host_packet_put(&packet, head);
    assert_memory_equal(head, EXPECTED, sizeof head);
    assert_true(spw__host_packet_get(head, sizeof head, &got));
    assert_memory_equal(&got, &packet, sizeof got);
    /* What is behind it is not its own. */
    uint8_t longer[SPW__HOST_HEAD_BYTES + 1];
    memcpy(longer, head, sizeof head);
    assert_true(spw__host_packet_get(longer, sizeof longer, &got));
}

static void what_is_none_of_ours_is_none(void **state)
{
    (void)state;
    uint8_t head[SPW__HOST_HEAD_BYTES];
    spw__host_packet got = {.kind = 77};
    for (uint64_t kind = 0; kind < 256; kind++) {
        spw__host_packet_put(&(spw__host_packet){.kind = kind}, head);
        assert_int_equal(spw__host_packet_get(head, sizeof head, &got),
                         kind >= SPW__HOST_HELLO && kind <= SPW__HOST_BYTES);
    }
    spw__host_packet_put(&(spw__host_packet){.kind = SPW__HOST_HELLO}, head);
    got.kind = 77;
    for (size_t size = 0; size < sizeof head; size++)
        assert_false(spw__host_packet_get(head, size, &got));
    for (size_t i = 1; i < 8; i++) {
        head[i] ^= 0x20;
        assert_false(spw__host_packet_get(head, sizeof head, &got));
        head[i] ^= 0x20;
    }
    assert_int_equal(got.kind, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_is_five_numbers),
        cmocka_unit_test(what_is_none_of_ours_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
