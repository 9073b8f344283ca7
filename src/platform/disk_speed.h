/* Whether to write and read past the system's cache: as long as the disk is so
 * fast that waiting for it costs less than the cache does. A slow one is better hidden
 * behind the cache, which takes what it can, and has it when it is read back. */
#ifndef SPW_PLATFORM_DISK_SPEED_H
#define SPW_PLATFORM_DISK_SPEED_H

#include <stdbool.h>
#include <stdint.h>

/* Zeros at first. */
typedef struct spw__disk_speed {
    uint64_t behind_ns;     /* a disk that is fast enough */
    uint64_t slow_until_ms; /* by the clock; 0: it never was */
} spw__disk_speed;

/* Whether it is not slow, or is to be tried again. */
bool spw__disk_is_fast(const spw__disk_speed *speed, uint64_t now_ms);
/* So much was written directly, in that time. */
void spw__disk_wrote(spw__disk_speed *speed, uint64_t bytes, uint64_t ns,
                     uint64_t now_ms);

#endif
