/* The context: allocator, log hook, limits, budget and counters that everything
 * made from it shares. The library has no process-wide state beside it. */
#ifndef SPILLWAY_CONTEXT_H
#define SPILLWAY_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include "spillway/budget.h"
#include "spillway/status.h"

typedef struct spw_context spw_context;

/* Where memory comes from. allocate answers NULL when there is none; alignment is a
 * power of two. release is given the size and alignment of the allocation.
 * Thread: both are called from any thread. */
typedef struct spw_allocator {
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*release)(void *user, void *pointer, size_t size, size_t alignment);
    void *user;
} spw_allocator;

typedef enum spw_log_level {
    SPW_LOG_ERROR = 1,
    SPW_LOG_WARNING = 2,
    SPW_LOG_INFO = 3,
    SPW_LOG_DEBUG = 4
} spw_log_level;

/* Thread: write is called from any, also from several at once, and calls nothing of the
 * library. message is only for the call. */
typedef struct spw_log_hook {
    void (*write)(void *user, spw_log_level level, const char *message);
    void *user;
    spw_log_level level; /* messages above this level are not even formatted */
} spw_log_hook;

/* Limits on what a peer may claim. Zero means the default in brackets. */
typedef struct spw_limits {
    uint64_t frames_per_message; /* [1 << 24] */
    uint64_t bytes_per_message;  /* [1 << 44] */
    uint64_t sub_header_bytes;   /* [1 << 31] sub-headers above get plain placement */
} spw_limits;

/* Where buffers take their memory from. */
typedef enum spw_pool_use {
    SPW_POOL_DEFAULT = 0, /* the pool, unless the context is given an allocator */
    SPW_POOL_OFF = 1,     /* the allocator */
    SPW_POOL_ON = 2       /* the pool (pool.h); the allocator has what is small */
} spw_pool_use;

/* As every option struct: zero means the default; it grows at its end; a program that
 * was built with an older header gets the defaults for what it does not know, and one
 * that sets what only a newer library knows is refused. What stands inside one, such as
 * spw_limits, never grows. */
typedef struct spw_context_options {
    size_t struct_size;      /* set by SPW_CONTEXT_OPTIONS_INIT */
    spw_allocator allocator; /* all zero: the C library's */
    spw_log_hook log;        /* all zero: silent */
    spw_limits limits;
    spw_budget *budget; /* required; borrowed until the context is gone */
    spw_pool_use pool;
} spw_context_options;

#define SPW_CONTEXT_OPTIONS_INIT                                                       \
    {                                                                                  \
        .struct_size = sizeof(spw_context_options)                                     \
    }

/* Bytes copied, by reason. */
typedef enum spw_copy_reason {
    SPW_COPY_READ_AHEAD = 0,  /* received together with an earlier piece, then placed */
    SPW_COPY_SMALL_FRAME = 1, /* small frames gathered into one send */
    SPW_COPY_NONCONTIGUOUS = 2, /* the sender's buffer had strides */
    SPW_COPY_DECOMPRESSED = 3,  /* written by a decompressor into its region */
    SPW_COPY_METADATA = 4,      /* message headers handed out as bytes */
    SPW_COPY_MERGED = 5,        /* parts of one buffer that did not lie side by side */
    SPW_COPY_REASON_COUNT = 6
} spw_copy_reason;

/* The name of a reason, such as "read_ahead".
 * Returns: a string that lives for ever, "unknown" for a value that is none. Thread:
 * any. */
SPW_EXPORT const char *spw_copy_reason_name(spw_copy_reason reason);

typedef struct spw_figures {
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received; /* on the wire, headers included */
    uint64_t connections_opened, connections_closed, connections_failed;
    uint64_t connections_tuned; /* given a congestion control of their own */
    uint64_t copies[SPW_COPY_REASON_COUNT], copied_bytes[SPW_COPY_REASON_COUNT];
    uint64_t host_meetings; /* peers of this host that came to send by it */
    uint64_t host_refusals; /* times that a better way between them was refused */
    uint64_t host_bytes_sent, host_bytes_by_address, host_bytes_by_descriptor,
        host_bytes_by_stream; /* sent; received by each way. Of bytes_sent, _received */
    uint64_t regions_recycled, regions_added; /* by the pool, for buffers */
    uint64_t pool_bytes_moved; /* under new addresses, so that they were not fresh */
} spw_figures;

/* Make a context.
 * Borrows: options, during the call; options->budget, and what allocator and log point
 * to, until the last reference to the context is gone.
 * Returns: one reference. Thread: any.
 * Errors: NO_MEMORY, INVALID_ARGUMENT (no budget, half an allocator, an unknown use of
 * the pool, unknown tail). */
SPW_EXPORT SPW_NODISCARD spw_status spw_context_create(
    const spw_context_options *options, spw_context **ret_context, spw_error *error);
/* Takes one more reference. Returns: context. Thread: any. */
SPW_EXPORT spw_context *spw_context_ref(spw_context *context);
/* Drop a reference. Everything made from the context holds one, so the order in which
 * the caller lets go does not matter.
 * Takes: one reference (NULL allowed). Thread: any. */
SPW_EXPORT void spw_context_unref(spw_context *context);

/* Returns: the budget that the context borrows. Thread: any. */
SPW_EXPORT spw_budget *spw_context_budget(const spw_context *context);
/* Read all figures, one after another, not as one snapshot.
 * Returns: in ret_figures, of the caller's. Thread: any. */
SPW_EXPORT void spw_context_read_figures(const spw_context *context,
                                         spw_figures *ret_figures);
/* Count a copy that the caller made on the library's behalf. Thread: any. */
SPW_EXPORT void spw_context_count_copy(spw_context *context, spw_copy_reason reason,
                                       uint64_t bytes);

#endif
