/* Buffers. Memory of our own is apart from the struct, so that its start is aligned and
 * its size is what was asked for.
 * Invariant: release == NULL means memory of our own, in region, charged under charge;
 * otherwise the memory is the caller's and nothing is charged. */
#include "spillway/buffer.h"

#include <assert.h>
#include <stdatomic.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/buffer_discard.h"
#include "memory/place.h"
#include "memory/region_pool.h"
#include "platform/memory_map.h"

struct spw_buffer {
    _Atomic size_t references;
    spw_context *context; /* one reference */
    void *data;
    size_t size;
    spw__region region;
    spw_release_fn release;
    void *user;
    spw__place *place; /* one reference; NULL: none */
    spw_charge charge; /* by the thread that owns the buffer while it is filled */
    _Atomic size_t
        discarded; /* bytes of the region that are neither there nor charged */
    bool is_writeable;
};

static spw_status make(spw_context *context, spw_buffer **ret_buffer, spw_error *error)
{
    spw_buffer *buffer = spw__allocate(context, sizeof *buffer, _Alignof(spw_buffer));
    if (buffer == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a buffer");
    *buffer = (spw_buffer){.references = 1, .context = context};
    *ret_buffer = buffer;
    return SPW_STATUS_OK;
}

spw_status spw_buffer_create(spw_context *context, size_t size, spw_charge charge,
                             spw_buffer **ret_buffer, spw_error *error)
{
    spw__region region;
    spw_status status = spw__region_acquire(context, size, charge, &region, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_buffer *buffer;
    status = make(context, &buffer, error);
    if (status != SPW_STATUS_OK) {
        spw__region_release(context, &region, charge);
        return status;
    }
    buffer->data = region.data;
    buffer->size = size;
    buffer->region = region;
    buffer->charge = charge;
    buffer->is_writeable = true;
    spw_context_ref(context);
    *ret_buffer = buffer;
    return SPW_STATUS_OK;
}

spw_status spw_buffer_wrap(spw_context *context, void *data, size_t size,
                           bool is_writeable, spw_release_fn release, void *user,
                           spw_buffer **ret_buffer, spw_error *error)
{
    if (release == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a wrapped buffer needs a release callback");
    if (data == NULL && size > 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a wrapped buffer of %zu bytes has no address", size);
    spw_buffer *buffer;
    spw_status status = make(context, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    /* An empty buffer has an address here too; which one does not matter. */
    buffer->data = data != NULL ? data : buffer;
    buffer->size = size;
    buffer->is_writeable = is_writeable;
    buffer->release = release;
    buffer->user = user;
    spw_context_ref(context);
    *ret_buffer = buffer;
    return SPW_STATUS_OK;
}

spw_buffer *spw_buffer_ref(spw_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

void spw_buffer_unref(spw_buffer *buffer)
{
    if (buffer == NULL ||
        atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) != 1)
        return;
    spw_context *context = buffer->context;
    if (buffer->release != NULL)
        buffer->release(buffer->user);
    else
        spw__region_release_part(context, &buffer->region, buffer->discarded,
                                 buffer->charge);
    spw__place_unref(buffer->place); /* there is room again */
    spw__release(context, buffer, sizeof *buffer, _Alignof(spw_buffer));
    spw_context_unref(context);
}

void *spw_buffer_data(const spw_buffer *buffer)
{
    return buffer->data;
}

size_t spw_buffer_size(const spw_buffer *buffer)
{
    return buffer->size;
}

bool spw_buffer_is_writeable(const spw_buffer *buffer)
{
    return buffer->is_writeable;
}

void spw_buffer_recharge(spw_buffer *buffer, spw_charge charge)
{
    if (buffer->release != NULL || buffer->charge == charge)
        return;
    spw_budget_move(spw_context_budget(buffer->context), buffer->charge, charge,
                    buffer->size - buffer->discarded);
    buffer->charge = charge;
}

size_t spw__buffer_discard(spw_buffer *buffer, size_t from, size_t to,
                           spw__freed_pages *pages)
{
    size_t size = 0;
    if (buffer->release != NULL ||
        atomic_load_explicit(&buffer->references, memory_order_acquire) != 1)
        return 0;
    char *start =
        spw__region_find_pages(buffer->context, &buffer->region, from, to, &size);
    if (start == NULL)
        return 0;
    size_t before = atomic_fetch_add(&buffer->discarded, size);
    assert(size <= buffer->size - before); /* or a page went twice */
    (void)before;
    if (pages != NULL && spw__freed_pages_take(pages, start, size, buffer->charge))
        return size;
    spw__memory_discard(start, size);
    spw_budget_release(spw_context_budget(buffer->context), buffer->charge, size);
    return size;
}

void spw__buffer_hold(spw_buffer *buffer, spw__place *place)
{
    assert(buffer->place == NULL);
    buffer->place = place;
}

spw__place *spw__buffer_place(const spw_buffer *buffer)
{
    return buffer->place;
}
