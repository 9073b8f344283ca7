/* What the library asks about its own process. Thread: any. */
#ifndef SPW_PLATFORM_PROCESS_H
#define SPW_PLATFORM_PROCESS_H

#include <stdint.h>

/* Bytes of physical memory in use by the process, 0 when the system does not say. Costs
 * about 10 us. */
uint64_t spw__process_resident_bytes(void);

/* Cores that the process may run on, at least 1. */
unsigned spw__process_core_count(void);

/* How many forks lie between this process and the first of its ancestors that asked.
 * What was made under another count was copied from the parent, perhaps in the middle
 * of a change by a thread that the child does not have. */
uint32_t spw__process_fork_count(void);

#endif
