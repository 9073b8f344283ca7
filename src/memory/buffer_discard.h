/* Giving the memory under a part of a buffer back before the buffer goes, for who has
 * read or written that part and will not look at it again. */
#ifndef SPW_MEMORY_BUFFER_DISCARD_H
#define SPW_MEMORY_BUFFER_DISCARD_H

#include "memory/freed_pages.h"
#include "spillway/buffer.h"

/* Of a region of its own of the pool, that nobody but the caller refers to, the whole
 * pages in [from, to) go to pages, if that (may be NULL) takes them, or back to the
 * system: they read as zero from then on, and are charged no more. No page may be given
 * back twice. When the buffer goes, the pool takes what is left for cold.
 * Returns: how many bytes went; 0 of any other buffer. Thread: any; several at once for
 * different pages. */
size_t spw__buffer_discard(spw_buffer *buffer, size_t from, size_t to,
                           spw__freed_pages *pages);

#endif
