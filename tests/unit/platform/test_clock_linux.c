#include "platform/clock.h"

#include <time.h>

#include "testing.h"

static uint64_t exact_ms(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void it_goes_forward_a_tick_behind_at_most(void **state)
{
    (void)state;
    uint64_t first = spw__clock_ms(), last = first;
    while (last < first + 30) {
        uint64_t before = exact_ms();
        uint64_t now = spw__clock_ms();
        assert_true(now >= last);
        assert_true(now + 10 >= before);
        assert_true(now <= exact_ms());
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_forward_a_tick_behind_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
