/* What the library asks of the operating system for memory that is passed to another
 * process: an anonymous file that is filled once, sealed, and then read by whoever got
 * its descriptor. Sealed, nobody can change it or cut it short under a reader.
 *
 * Every function answers a value >= 0, or the negative errno of what went wrong. An
 * interrupted call is repeated, nothing else is. Thread: any; one descriptor is used by
 * one thread at a time. */
#ifndef SPW_PLATFORM_SHARED_MEMORY_H
#define SPW_PLATFORM_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* An empty one, which child processes do not inherit. Returns: its descriptor. */
int spw__shared_memory_create(void);
/* Write all of size bytes at offset; the file grows to that. */
int spw__shared_memory_fill(int descriptor, uint64_t offset, const void *data,
                            size_t size);
/* No byte and no size of it changes any more. Not while it is mapped to be written. */
int spw__shared_memory_seal(int descriptor);
/* One that came from elsewhere: sealed, of plain pages, and of exactly that size.
 * Errors: EPERM (not sealed), EINVAL (no shared memory, huge pages), EMSGSIZE (of
 * another size). */
int spw__shared_memory_verify(int descriptor, uint64_t size);
/* Map a sealed one: readable and writeable, what is written is seen here alone. The
 * descriptor may be closed afterwards. */
int spw__shared_memory_map(int descriptor, size_t size, void **ret_data);
void spw__shared_memory_unmap(void *data, size_t size);
/* Read all of size bytes at offset. Errors: EIO (it ends before that) and others. */
int spw__shared_memory_read(int descriptor, uint64_t offset, void *to, size_t size);
void spw__shared_memory_close(int descriptor);

#endif
