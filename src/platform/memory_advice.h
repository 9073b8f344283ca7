/* What the library asks of the operating system about memory. */
#ifndef SPW_PLATFORM_MEMORY_ADVICE_H
#define SPW_PLATFORM_MEMORY_ADVICE_H

#include <stddef.h>

/* Ask for huge pages under the range, where it is large enough to profit. Only advice:
 * a system that has none is no fault. Thread: any. */
void spw__memory_advise_huge(void *data, size_t size);

#endif
