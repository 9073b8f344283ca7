/* The context: what everything made from it shares. It lives until the last object
 * made from it is gone, so that owners may let go in any order. */
#include "spillway/context.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "context/options.h"

static const spw_limits DEFAULT_LIMITS = {
    .frames_per_message = UINT64_C(1) << 24,
    .bytes_per_message = UINT64_C(1) << 44,
    .sub_header_bytes = UINT64_C(1) << 31,
};

static void *system_allocate(void *user, size_t size, size_t alignment)
{
    (void)user;
    void *pointer = NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    return posix_memalign(&pointer, alignment, size) == 0 ? pointer : NULL;
}

static void system_release(void *user, void *pointer, size_t size, size_t alignment)
{
    (void)user;
    (void)size;
    (void)alignment;
    free(pointer);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value != 0 ? value : fallback;
}

static spw_status read_options(const spw_context_options *given,
                               spw_context_options *ret_options, spw_error *error)
{
    spw_context_options options = {0};
    spw_status status =
        spw__options_read(given, "CONTEXT", &options, sizeof options, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (options.budget == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a context needs a budget");
    if ((unsigned)options.pool > SPW_POOL_ON)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "an unknown use of the pool: %d", (int)options.pool);
    if ((options.allocator.allocate == NULL) != (options.allocator.release == NULL))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "an allocator needs both allocate and release");
    *ret_options = options;
    return SPW_STATUS_OK;
}

spw_status spw_context_create(const spw_context_options *given,
                              spw_context **ret_context, spw_error *error)
{
    spw_context_options options = {0};
    spw_status status = read_options(given, &options, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_allocator allocator = options.allocator;
    bool is_given = allocator.allocate != NULL;
    if (!is_given)
        allocator = (spw_allocator){system_allocate, system_release, NULL};
    spw_context *context =
        allocator.allocate(allocator.user, sizeof *context, _Alignof(spw_context));
    if (context == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a context");
    memset(context, 0, sizeof *context);
    const spw_limits *limits = &options.limits;
    context->references = 1;
    context->allocator = allocator;
    context->log = options.log;
    context->limits = (spw_limits){
        .frames_per_message =
            or_default(limits->frames_per_message, DEFAULT_LIMITS.frames_per_message),
        .bytes_per_message =
            or_default(limits->bytes_per_message, DEFAULT_LIMITS.bytes_per_message),
        .sub_header_bytes =
            or_default(limits->sub_header_bytes, DEFAULT_LIMITS.sub_header_bytes),
    };
    context->budget = options.budget;
    context->uses_pool =
        options.pool == SPW_POOL_ON || (options.pool == SPW_POOL_DEFAULT && !is_given);
    *ret_context = context;
    return SPW_STATUS_OK;
}

spw_context *spw_context_ref(spw_context *context)
{
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
    return context;
}

void spw_context_unref(spw_context *context)
{
    if (context == NULL ||
        atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) != 1)
        return;
    spw__context_part *pool = atomic_load(&context->region_pool);
    if (pool != NULL)
        pool->free(pool);
    spw_allocator allocator = context->allocator;
    allocator.release(allocator.user, context, sizeof *context, _Alignof(spw_context));
}

spw_budget *spw_context_budget(const spw_context *context)
{
    return context->budget;
}

void spw_context_read_figures(const spw_context *context, spw_figures *ret_figures)
{
    const _Atomic uint64_t *figures = context->figures;
    *ret_figures = (spw_figures){
        .messages_sent = atomic_load(&figures[SPW__FIGURE_MESSAGES_SENT]),
        .messages_received = atomic_load(&figures[SPW__FIGURE_MESSAGES_RECEIVED]),
        .bytes_sent = atomic_load(&figures[SPW__FIGURE_BYTES_SENT]),
        .bytes_received = atomic_load(&figures[SPW__FIGURE_BYTES_RECEIVED]),
        .connections_opened = atomic_load(&figures[SPW__FIGURE_CONNECTIONS_OPENED]),
        .connections_closed = atomic_load(&figures[SPW__FIGURE_CONNECTIONS_CLOSED]),
        .connections_failed = atomic_load(&figures[SPW__FIGURE_CONNECTIONS_FAILED]),
        .connections_tuned = atomic_load(&figures[SPW__FIGURE_CONNECTIONS_TUNED]),
        .host_meetings = atomic_load(&figures[SPW__FIGURE_HOST_MEETINGS]),
        .host_refusals = atomic_load(&figures[SPW__FIGURE_HOST_REFUSALS]),
        .host_bytes_sent = atomic_load(&figures[SPW__FIGURE_HOST_BYTES_SENT]),
        .host_bytes_by_address =
            atomic_load(&figures[SPW__FIGURE_HOST_BYTES_BY_ADDRESS]),
        .host_bytes_by_descriptor =
            atomic_load(&figures[SPW__FIGURE_HOST_BYTES_BY_DESCRIPTOR]),
        .host_bytes_by_stream = atomic_load(&figures[SPW__FIGURE_HOST_BYTES_BY_STREAM]),
        .regions_recycled = atomic_load(&figures[SPW__FIGURE_REGIONS_RECYCLED]),
        .regions_added = atomic_load(&figures[SPW__FIGURE_REGIONS_ADDED]),
        .pool_bytes_moved = atomic_load(&figures[SPW__FIGURE_POOL_BYTES_MOVED]),
    };
    for (int i = 0; i < SPW_COPY_REASON_COUNT; i++) {
        ret_figures->copies[i] = atomic_load(&context->copies[i]);
        ret_figures->copied_bytes[i] = atomic_load(&context->copied_bytes[i]);
    }
}

const char *spw_copy_reason_name(spw_copy_reason reason)
{
    static const char *const NAMES[SPW_COPY_REASON_COUNT] = {
        [SPW_COPY_READ_AHEAD] = "read_ahead",
        [SPW_COPY_SMALL_FRAME] = "small_frame",
        [SPW_COPY_NONCONTIGUOUS] = "noncontiguous",
        [SPW_COPY_DECOMPRESSED] = "decompressed",
        [SPW_COPY_METADATA] = "metadata",
        [SPW_COPY_MERGED] = "merged",
    };
    return (unsigned)reason < SPW_COPY_REASON_COUNT ? NAMES[reason] : "unknown";
}

void spw_context_count_copy(spw_context *context, spw_copy_reason reason,
                            uint64_t bytes)
{
    atomic_fetch_add_explicit(&context->copies[reason], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&context->copied_bytes[reason], bytes,
                              memory_order_relaxed);
}

void *spw__allocate(spw_context *context, size_t size, size_t alignment)
{
    return context->allocator.allocate(context->allocator.user, size, alignment);
}

void spw__release(spw_context *context, void *pointer, size_t size, size_t alignment)
{
    if (pointer != NULL)
        context->allocator.release(context->allocator.user, pointer, size, alignment);
}

spw_status spw__grow(spw_context *context, void *array, size_t *capacity, size_t needed,
                     size_t item_size, spw_error *error)
{
    if (needed <= *capacity)
        return SPW_STATUS_OK;
    size_t larger = *capacity + *capacity / 2;
    if (larger < needed)
        larger = needed;
    if (larger < 8)
        larger = 8;
    void *grown = larger > SIZE_MAX / item_size
                      ? NULL
                      : spw__allocate(context, larger * item_size, sizeof(void *));
    if (grown == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for an array of %zu items of %zu bytes",
                              larger, item_size);
    /* The caller's pointer is of another type than void *, so its bytes are copied: to
     * read it through a void ** would break the aliasing rules. */
    void *old;
    memcpy(&old, array, sizeof old);
    if (*capacity > 0)
        memcpy(grown, old, *capacity * item_size);
    spw__release(context, old, *capacity * item_size, sizeof(void *));
    memcpy(array, &grown, sizeof grown);
    *capacity = larger;
    return SPW_STATUS_OK;
}
