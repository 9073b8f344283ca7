/* The pool of recycled regions. Each context has one, from which buffers of 4 KiB and
 * more take their memory: a first touch of fresh pages is the dearest part of
 * receiving. From 2 MiB on a buffer has a region of its own on huge pages; smaller ones
 * are cut from slabs. What a buffer leaves is kept for the next one, charged as
 * SPW_CHARGE_POOLED, until somebody trims the pool, the budget or the system is short
 * of memory, or the process is near its limit. A buffer is given at most an eighth more
 * than it asked for; that is charged as SPW_CHARGE_POOLED too.
 *
 * In a forked child the pool is off: what the child inherited stays readable and may be
 * let go of in any order, and new buffers take their memory from the allocator. */
#ifndef SPILLWAY_POOL_H
#define SPILLWAY_POOL_H

#include <stdint.h>

#include "spillway/context.h"

/* There is nothing to trim, now or when the buffers that live are let go of. */
#define SPW_TRIM_NEVER UINT64_MAX

/* Give back what has been cached for at least older_than_ms, until no more than
 * keep_bytes are cached. The library has no timer: whoever has one calls this.
 * Returns: in ret_next_due_ms (NULL allowed) after how long to call it again with the
 * same arguments at the latest, or SPW_TRIM_NEVER. Thread: any. */
SPW_EXPORT void spw_context_trim(spw_context *context, uint64_t keep_bytes,
                                 uint64_t older_than_ms, uint64_t *ret_next_due_ms);

/* While more than resident_bytes of memory are in use by the whole process, the pool
 * keeps nothing for long, and no more than cached_bytes otherwise: what it keeps is
 * missing to who takes memory elsewhere, of which it hears nothing. It looks each time
 * 32 MiB have passed through it, and when it is trimmed. 0, as at first: no such limit.
 * Thread: any. */
SPW_EXPORT void spw_context_limit_resident(spw_context *context,
                                           uint64_t resident_bytes,
                                           uint64_t cached_bytes);

#endif
