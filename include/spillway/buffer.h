/* A buffer: one piece of memory with one reference count. Memory of our own starts
 * on a 64-byte boundary; foreign memory is wrapped with a release callback. */
#ifndef SPILLWAY_BUFFER_H
#define SPILLWAY_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "spillway/context.h"

#define SPW_BUFFER_ALIGNMENT 64

typedef struct spw_buffer spw_buffer;

/* Called once, when the last reference goes. Thread: the one that drops it. */
typedef void (*spw_release_fn)(void *user);

/* Allocate size bytes (0 allowed), charged to the context's budget. They hold whatever
 * an earlier buffer left there, which is for nobody to see: write them before they are
 * handed out.
 * Returns: one reference. Thread: any. Errors: NO_MEMORY, LIMIT_EXCEEDED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_buffer_create(spw_context *context, size_t size,
                                                      spw_charge charge,
                                                      spw_buffer **ret_buffer,
                                                      spw_error *error);
/* Wrap memory of the caller's; not charged.
 * Borrows: data (NULL only when empty) until release(user) is called. A failed call
 * never calls it.
 * Returns: one reference. Thread: any. Errors: NO_MEMORY, INVALID_ARGUMENT (no data, no
 * release callback). */
SPW_EXPORT SPW_NODISCARD spw_status spw_buffer_wrap(spw_context *context, void *data,
                                                    size_t size, bool is_writeable,
                                                    spw_release_fn release, void *user,
                                                    spw_buffer **ret_buffer,
                                                    spw_error *error);
/* Takes one more reference. Returns: buffer. Thread: any. */
SPW_EXPORT spw_buffer *spw_buffer_ref(spw_buffer *buffer);
/* Drop a reference.
 * Takes: one reference (NULL allowed). Thread: any; the last one calls the release
 * callback. */
SPW_EXPORT void spw_buffer_unref(spw_buffer *buffer);

/* The memory of a buffer.
 * Borrows: the memory, until the caller's reference goes. Returns: its first byte, also
 * of an empty buffer. Thread: any; what is written, one decides with the others. */
SPW_EXPORT void *spw_buffer_data(const spw_buffer *buffer);
/* Returns: how many bytes it has, as create or wrap was told. Thread: any. */
SPW_EXPORT size_t spw_buffer_size(const spw_buffer *buffer);
/* Returns: whether it may be written to; nothing enforces it. Thread: any. */
SPW_EXPORT bool spw_buffer_is_writeable(const spw_buffer *buffer);
/* Move the charge of a buffer of our own (nothing for a wrapped one).
 * Thread: any, one at a time. */
SPW_EXPORT void spw_buffer_recharge(spw_buffer *buffer, spw_charge charge);

#endif
