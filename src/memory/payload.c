/* Payloads. Invariant: count <= capacity, each slice holds one reference to its buffer,
 * inside which it lies, or to its file, bytes is the sum of the sizes. */
#include "spillway/payload.h"

#include <assert.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/payload_slices.h"

struct spw_payload {
    spw_context *context; /* one reference */
    spw_slice *slices;
    size_t count, capacity;
    uint64_t bytes;
};

spw_status spw_payload_create(spw_context *context, size_t capacity,
                              spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload =
        spw__allocate(context, sizeof *payload, _Alignof(spw_payload));
    if (payload == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a payload");
    *payload = (spw_payload){.context = spw_context_ref(context)};
    spw_status status = SPW_STATUS_OK;
    if (capacity > 0)
        status = spw__grow(context, &payload->slices, &payload->capacity, capacity,
                           sizeof(spw_slice), error);
    if (status != SPW_STATUS_OK) {
        spw_payload_free(payload);
        return status;
    }
    *ret_payload = payload;
    return SPW_STATUS_OK;
}

static void let_go(const spw_slice *slice)
{
    if (slice->kind == SPW_MEMORY_FILE)
        spw_file_unref(slice->file);
    else
        spw_buffer_unref(slice->buffer);
}

void spw_payload_free(spw_payload *payload)
{
    if (payload == NULL)
        return;
    spw_context *context = payload->context;
    for (size_t i = 0; i < payload->count; i++)
        let_go(&payload->slices[i]);
    spw__release(context, payload->slices, payload->capacity * sizeof(spw_slice),
                 sizeof(void *));
    spw__release(context, payload, sizeof *payload, _Alignof(spw_payload));
    spw_context_unref(context);
}

/* How long a file is may change until it is sent, so that only what no file can have is
 * refused here. */
static spw_status check(const spw_slice *slice, spw_error *error)
{
    uint64_t held;
    if (slice->kind == SPW_MEMORY_FILE)
        held = INT64_MAX;
    else if (slice->kind == SPW_MEMORY_HOST)
        held = spw_buffer_size(slice->buffer);
    else
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a slice of an unknown kind of memory: %u", slice->kind);
    if (slice->offset > held || slice->size > held - slice->offset)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a slice reaches past the end of its %s",
                              slice->kind == SPW_MEMORY_FILE ? "file" : "buffer");
    return SPW_STATUS_OK;
}

spw_status spw_payload_append(spw_payload *payload, const spw_slice *slice,
                              spw_error *error)
{
    spw_status status = check(slice, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw__grow(payload->context, &payload->slices, &payload->capacity,
                       payload->count + 1, sizeof(spw_slice), error);
    if (status != SPW_STATUS_OK)
        return status;
    payload->slices[payload->count++] = *slice;
    payload->bytes += slice->size;
    return SPW_STATUS_OK;
}

size_t spw_payload_count(const spw_payload *payload)
{
    return payload->count;
}

const spw_slice *spw_payload_slices(const spw_payload *payload)
{
    return payload->slices;
}

uint64_t spw_payload_bytes(const spw_payload *payload)
{
    return payload->bytes;
}

void spw__payload_replace(spw_payload *payload, size_t index, spw_buffer *buffer)
{
    spw_slice *slice = &payload->slices[index];
    assert(index < payload->count && slice->kind == SPW_MEMORY_HOST);
    assert(spw_buffer_size(buffer) == slice->size);
    spw_buffer_unref(slice->buffer);
    slice->buffer = buffer;
    slice->offset = 0;
}

spw_slice *spw__payload_slices(spw_payload *payload)
{
    return payload->slices;
}

spw_context *spw__payload_context(const spw_payload *payload)
{
    return payload->context;
}
