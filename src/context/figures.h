/* The context's inside, for the layers that count: plain atomic adds, no calls. */
#ifndef SPW_CONTEXT_FIGURES_H
#define SPW_CONTEXT_FIGURES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "spillway/context.h"

typedef enum spw__figure {
    SPW__FIGURE_MESSAGES_SENT,
    SPW__FIGURE_MESSAGES_RECEIVED,
    SPW__FIGURE_BYTES_SENT,
    SPW__FIGURE_BYTES_RECEIVED,
    SPW__FIGURE_CONNECTIONS_OPENED,
    SPW__FIGURE_CONNECTIONS_CLOSED,
    SPW__FIGURE_CONNECTIONS_FAILED,
    SPW__FIGURE_CONNECTIONS_TUNED,
    SPW__FIGURE_HOST_MEETINGS,
    SPW__FIGURE_HOST_REFUSALS,
    SPW__FIGURE_HOST_BYTES_SENT,
    SPW__FIGURE_HOST_BYTES_BY_ADDRESS,
    SPW__FIGURE_HOST_BYTES_BY_DESCRIPTOR,
    SPW__FIGURE_HOST_BYTES_BY_STREAM,
    SPW__FIGURE_REGIONS_RECYCLED,
    SPW__FIGURE_REGIONS_ADDED,
    SPW__FIGURE_POOL_BYTES_MOVED,
    SPW__FIGURE_COUNT
} spw__figure;

/* What a layer above keeps with the context, which frees it when its last reference is
 * gone, while its allocator and its budget are still there. */
typedef struct spw__context_part {
    void (*free)(struct spw__context_part *part);
} spw__context_part;

struct spw_context {
    _Atomic size_t references;
    /* Fixed at creation. */
    spw_allocator allocator;
    spw_log_hook log;
    spw_limits limits;
    spw_budget *budget;
    bool uses_pool;
    /* Atomic, any thread. */
    _Atomic(spw__context_part *) region_pool; /* NULL until it is needed */
    _Atomic uint64_t resident_limit_bytes;    /* 0: none */
    _Atomic uint64_t cached_limit_bytes;      /* of the pool; 0: none */
    _Atomic uint64_t figures[SPW__FIGURE_COUNT];
    _Atomic uint64_t copies[SPW_COPY_REASON_COUNT];
    _Atomic uint64_t copied_bytes[SPW_COPY_REASON_COUNT];
};

static inline void spw__count(spw_context *context, spw__figure figure, uint64_t n)
{
    atomic_fetch_add_explicit(&context->figures[figure], n, memory_order_relaxed);
}

#endif
