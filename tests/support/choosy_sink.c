#include "choosy_sink.h"

#include <stdio.h>
#include <string.h>

#include "testing.h"

static spw_status reserve(void *self, uint64_t size, spw_slice *ret_slice,
                          spw_error *error)
{
    choosy_sink *choosy = self;
    assert_true(size > 0);
    choosy->asked++;
    if (choosy->asked == choosy->refuse_at) {
        if (error != NULL) {
            *error = (spw_error){.status = SPW_STATUS_LIMIT_EXCEEDED};
            snprintf(error->message, sizeof error->message, "refused by the test");
        }
        return SPW_STATUS_LIMIT_EXCEEDED;
    }
    spw_status status = choosy->heap.ops->reserve(
        choosy->heap.self, size + choosy->lead_bytes, ret_slice, error);
    if (status != SPW_STATUS_OK)
        return status;
    memset(spw_buffer_data(ret_slice->buffer), CHOOSY_STALE,
           spw_buffer_size(ret_slice->buffer));
    ret_slice->offset += choosy->lead_bytes;
    ret_slice->size = ret_slice->plain_size = size;
    choosy->reserved++;
    choosy->reserved_bytes += size;
    return SPW_STATUS_OK;
}

static void commit(void *self, const spw_slice *slice)
{
    choosy_sink *choosy = self;
    choosy->committed++;
    choosy->heap.ops->commit(choosy->heap.self, slice);
}

static void abort_place(void *self, const spw_slice *slice)
{
    choosy_sink *choosy = self;
    choosy->aborted++;
    choosy->heap.ops->abort(choosy->heap.self, slice);
}

spw_sink choosy_sink_over(choosy_sink *choosy, spw_context *context)
{
    static const spw_sink_ops OPS = {reserve, commit, abort_place};
    choosy->heap = spw_sink_heap(context);
    return (spw_sink){&OPS, choosy};
}
