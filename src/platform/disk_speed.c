/* A disk is slow when it has fallen behind by as long as a thread may have waited for a
 * processor. */
#include "platform/disk_speed.h"

/* By the cache a thread writes half a GB a second and more. */
static const uint64_t FAST_BYTES_PER_S = 256 << 20;
static const uint64_t BEHIND_MOST_NS = 250000000;
static const uint64_t SLOW_FOR_MS = 30000;

bool spw__disk_is_fast(const spw__disk_speed *speed, uint64_t now_ms)
{
    return now_ms >= speed->slow_until_ms;
}

void spw__disk_wrote(spw__disk_speed *speed, uint64_t bytes, uint64_t ns,
                     uint64_t now_ms)
{
    uint64_t due_ns = bytes * 1000 / (FAST_BYTES_PER_S / 1000000);
    speed->behind_ns += ns;
    speed->behind_ns -= due_ns < speed->behind_ns ? due_ns : speed->behind_ns;
    if (speed->behind_ns <= BEHIND_MOST_NS)
        return;
    speed->behind_ns = 0;
    speed->slow_until_ms = now_ms + SLOW_FOR_MS;
}
