/* Time that only goes forward. */
#ifndef SPW_PLATFORM_CLOCK_H
#define SPW_PLATFORM_CLOCK_H

#include <stdint.h>

/* Milliseconds since some moment before the process began; may be a timer tick (10 ms
 * at most) behind, which makes it cheap enough for each release of a buffer. */
uint64_t spw__clock_ms(void);
/* The same in nanoseconds, and never behind: for what is measured. */
uint64_t spw__clock_ns(void);

#endif
