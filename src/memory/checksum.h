/* XXH3 with 64 bits, by the xxHash library: what says whether bytes that lay on a disk
 * are still those that were written. Not against anybody who means harm. */
#ifndef SPW_MEMORY_CHECKSUM_H
#define SPW_MEMORY_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of size bytes (0 allowed). Thread: any. */
uint64_t spw__checksum(const void *data, size_t size);

/* The same of bytes that come in pieces, one after another. Memory of the caller's;
 * nothing has to end it. */
typedef struct spw__checksum_state {
    _Alignas(64) unsigned char inside[576];
} spw__checksum_state;

void spw__checksum_begin(spw__checksum_state *state);
void spw__checksum_add(spw__checksum_state *state, const void *data, size_t size);
/* Returns: the checksum of what was added so far. */
uint64_t spw__checksum_end(const spw__checksum_state *state);

#endif
