/* Giving the memory under a part of a buffer back before the buffer goes, for who has
 * read or written that part and will not look at it again. Both are for a region of its
 * own of the pool, that nobody but the caller refers to. */
#ifndef SPW_MEMORY_BUFFER_DISCARD_H
#define SPW_MEMORY_BUFFER_DISCARD_H

#include "spillway/buffer.h"

/* The whole pages in [from, to) go back to the system: they read as zero from then on,
 * and are charged no more. No page may be given back twice. When the buffer goes, the
 * pool takes what is left for cold.
 * Returns: how many bytes went; 0 of any other buffer. Thread: any; several at once for
 * different pages. */
size_t spw__buffer_discard(spw_buffer *buffer, size_t from, size_t to);

/* In what units the pool can have memory of a buffer back, from its begin on.
 * Returns: bytes; 0 if it cannot. Thread: any. */
size_t spw__buffer_unit_bytes(const spw_buffer *buffer);
/* The whole units in [from, to) are the pool's, whose next buffers may have them at
 * once: they are charged no more and must not be touched. No unit twice, and none of
 * which pages were discarded. Returns: how many bytes went; 0 of any other buffer.
 * Thread: any; several at once for different units. */
size_t spw__buffer_vacate(spw_buffer *buffer, size_t from, size_t to);

#endif
