/* The way to memory: every allocation of the library but the budget's and the
 * context's own goes through the context's allocator. */
#ifndef SPW_CONTEXT_ALLOCATE_H
#define SPW_CONTEXT_ALLOCATE_H

#include <stddef.h>

#include "spillway/context.h"

/* size bytes (> 0) on a boundary of alignment (a power of two), uninitialised, not
 * charged. Returns: NULL when there is no memory. */
void *spw__allocate(spw_context *context, size_t size, size_t alignment);
/* Takes: pointer (NULL allowed), with the size and alignment it was allocated with. */
void spw__release(spw_context *context, void *pointer, size_t size, size_t alignment);

/* Grow an array of item_size items to at least needed of them, keeping its content.
 * array is the address of the caller's pointer, whatever it points to; on success the
 * pointer and *capacity are updated. Errors: NO_MEMORY. */
spw_status spw__grow(spw_context *context, void *array, size_t *capacity, size_t needed,
                     size_t item_size, spw_error *error);

#endif
