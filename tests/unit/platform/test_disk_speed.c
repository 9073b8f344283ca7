/* When a disk is slow, and for how long. */
#include "platform/disk_speed.h"

#include "testing.h"

#define MIB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)

static void a_slow_disk_is_left_alone_for_a_while(void **state)
{
    (void)state;
    spw__disk_speed speed = {0};
    assert_true(spw__disk_is_fast(&speed, 1000));
    spw__disk_wrote(&speed, 256 * MIB, 200 * MS, 1200);
    assert_true(spw__disk_is_fast(&speed, 1200));
    spw__disk_wrote(&speed, 256 * MIB, 5120 * MS, 6320);
    assert_false(spw__disk_is_fast(&speed, 6320));
    assert_false(spw__disk_is_fast(&speed, 30000));
    assert_true(spw__disk_is_fast(&speed, 36320));
    spw__disk_wrote(&speed, 256 * MIB, 200 * MS, 36520);
    assert_true(spw__disk_is_fast(&speed, 36520));
}

static void falling_behind_adds_up_and_is_made_good(void **state)
{
    (void)state;
    spw__disk_speed speed = {0};
    for (int i = 0; i < 8; i++)
        spw__disk_wrote(&speed, 2 * MIB, 38 * MS, 1000); /* 30 ms too many, each */
    assert_true(spw__disk_is_fast(&speed, 1000));
    spw__disk_wrote(&speed, 64 * MIB, 8 * MS, 1000);
    assert_int_equal(speed.behind_ns, 0);
    for (int i = 0; i < 8; i++)
        spw__disk_wrote(&speed, 2 * MIB, 38 * MS, 1000);
    assert_true(spw__disk_is_fast(&speed, 1000));
    spw__disk_wrote(&speed, 2 * MIB, 38 * MS, 1000);
    assert_false(spw__disk_is_fast(&speed, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_disk_is_left_alone_for_a_while),
        cmocka_unit_test(falling_behind_adds_up_and_is_made_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
