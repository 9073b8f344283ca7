/* XXH3 with 64 bits, by the xxHash library: what says whether bytes that lay on a disk
 * are still those that were written. Not against anybody who means harm. */
#ifndef SPW_MEMORY_CHECKSUM_H
#define SPW_MEMORY_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of size bytes (0 allowed). Thread: any. */
uint64_t spw__checksum(const void *data, size_t size);

#endif
