/* Buffers. Memory of our own is allocated apart from the struct, so that its start is
 * aligned and its size is what was asked for.
 * Invariant: release == NULL means memory of our own, charged under charge for size
 * bytes; otherwise the memory is the caller's and nothing is charged. */
#include "spillway/buffer.h"

#include <stdatomic.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/memory_advice.h"

struct spw_buffer {
    _Atomic size_t references;
    spw_context *context; /* one reference */
    void *data;
    size_t size;
    spw_release_fn release;
    void *user;
    spw_charge charge; /* by the thread that owns the buffer while it is filled */
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
    spw_budget *budget = spw_context_budget(context);
    spw_status status = spw_budget_charge(budget, charge, size, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_buffer *buffer;
    status = make(context, &buffer, error);
    if (status != SPW_STATUS_OK) {
        spw_budget_release(budget, charge, size);
        return status;
    }
    /* An empty buffer has an address too: exporters may not hand out NULL. */
    buffer->data = spw__allocate(context, size > 0 ? size : 1, SPW_BUFFER_ALIGNMENT);
    if (buffer->data == NULL) {
        spw__release(context, buffer, sizeof *buffer, _Alignof(spw_buffer));
        spw_budget_release(budget, charge, size);
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a buffer of %zu bytes", size);
    }
    spw__memory_advise_huge(buffer->data, size);
    buffer->size = size;
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
    if (buffer->release != NULL) {
        buffer->release(buffer->user);
    } else {
        spw__release(context, buffer->data, buffer->size > 0 ? buffer->size : 1,
                     SPW_BUFFER_ALIGNMENT);
        spw_budget_release(spw_context_budget(context), buffer->charge, buffer->size);
    }
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
                    buffer->size);
    buffer->charge = charge;
}
