/* The heap sink: a buffer of its own for every body. And the end of value sinks, which
 * others make. */
#include "spillway/sink.h"

#include <stdint.h>

#include "context/error.h"
#include "memory/value_sink.h"

static spw_status heap_reserve(void *self, uint64_t size, spw_slice *ret_slice,
                               spw_error *error)
{
    if (size > SIZE_MAX / 2)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "a body is larger than the address space");
    spw_buffer *buffer;
    spw_status status =
        spw_buffer_create(self, (size_t)size, SPW_CHARGE_IN_FLIGHT, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    *ret_slice = (spw_slice){
        .kind = SPW_MEMORY_HOST,
        .flags = SPW_SLICE_WRITEABLE,
        .buffer = buffer,
        .size = size,
        .plain_size = size,
    };
    return SPW_STATUS_OK;
}

static void heap_commit(void *self, const spw_slice *slice)
{
    (void)self;
    spw_buffer_recharge(slice->buffer, SPW_CHARGE_HELD);
}

static void heap_abort(void *self, const spw_slice *slice)
{
    /* Nothing beside the reference, which the caller drops. */
    (void)self;
    (void)slice;
}

spw_sink spw_sink_heap(spw_context *context)
{
    static const spw_sink_ops OPS = {heap_reserve, heap_commit, heap_abort};
    return (spw_sink){.ops = &OPS, .self = context};
}

void spw_value_sink_free(spw_value_sink *sink)
{
    if (sink != NULL)
        sink->ops->free(sink);
}
