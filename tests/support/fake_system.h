/* A clock and a size of the process that tests set. The linker sends the library's
 * questions through here, as in io_fault.h. */
#ifndef SPW_TESTS_FAKE_SYSTEM_H
#define SPW_TESTS_FAKE_SYSTEM_H

#include <stdint.h>

/* What the clock says from now on; 0: the system's answer. */
void fake_clock_set(uint64_t ms);
/* How much memory the process has in use from now on; 0: the system's answer. */
void fake_resident_set(uint64_t bytes);

#endif
