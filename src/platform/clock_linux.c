/* The clock on Linux. */
#include "platform/clock.h"

#include <time.h>

uint64_t spw__clock_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE,
                        &now); /* cannot fail: the clock exists */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t spw__clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail either */
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
