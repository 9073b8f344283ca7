#include "stored_arrivals.h"

#include <stdlib.h>
#include <string.h>

#include "memory/payload_slices.h"
#include "memory/value_sink.h"
#include "testing.h"

typedef struct arrival {
    spw_value_sink *sink;
    const spw_payload *sent;
    spw_payload *received;
    spw__value_room room;
    bool (*wait)(void *user);
    void *user;
} arrival;

static spw_status wait_for(const arrival *a, spw_status status)
{
    if (status != SPW_STATUS_AGAIN)
        return status;
    return a->wait(a->user) ? SPW_STATUS_AGAIN : SPW_STATUS_CLOSED;
}

static spw_status begin(arrival *a, spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(a->sent);
    size_t count = spw_payload_count(a->sent) - 1;
    uint64_t *sizes = calloc(count + 1, sizeof *sizes);
    spw_status status;
    assert_non_null(sizes);
    for (size_t i = 0; i < count; i++)
        sizes[i] = slices[1 + i].size;
    do
        status = wait_for(
            a, a->sink->ops->begin(a->sink, &slices[0], sizes, count, &a->room, error));
    while (status == SPW_STATUS_AGAIN);
    free(sizes);
    return status;
}

static spw_status bring_to_disk(arrival *a, const spw_slice *slice, spw_error *error)
{
    for (uint64_t done = 0; done < slice->size;) {
        void *data;
        size_t size;
        spw_status status =
            wait_for(a, a->sink->ops->window(a->sink, &data, &size, error));
        if (status == SPW_STATUS_AGAIN)
            continue;
        if (status != SPW_STATUS_OK)
            return status;
        assert_true(size > 0 && size <= slice->size - done);
        memcpy(data, (const char *)spw_slice_data(slice) + done, size);
        a->sink->ops->wrote(a->sink, size);
        done += size;
    }
    return SPW_STATUS_OK;
}

static void append(arrival *a, const spw_slice *slice, bool is_on_disk)
{
    if (is_on_disk)
        (void)spw_file_ref(slice->file);
    else
        (void)spw_buffer_ref(slice->buffer);
    assert_ok(spw_payload_append(a->received, slice, NULL));
}

static void bring_to_memory(spw_context *context, arrival *a, const spw_slice *slice)
{
    spw_slice own = *slice;
    assert_ok(spw_buffer_create(context, (size_t)slice->size, SPW_CHARGE_HELD,
                                &own.buffer, NULL));
    own.offset = 0;
    if (slice->size > 0)
        memcpy(spw_buffer_data(own.buffer), spw_slice_data(slice), slice->size);
    if (a->room.place != NULL)
        spw__buffer_hold(own.buffer, spw__place_ref(a->room.place));
    append(a, &own, false);
    spw_buffer_unref(own.buffer);
}

static spw_status bring(spw_context *context, arrival *a, spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(a->sent);
    size_t count = spw_payload_count(a->sent);
    bool is_on_disk = a->room.file != NULL;
    spw_status status = SPW_STATUS_OK;
    append(a, &slices[0], false);
    for (size_t i = 1; i < count && status == SPW_STATUS_OK; i++)
        if (is_on_disk)
            status = bring_to_disk(a, &slices[i], error);
        else
            bring_to_memory(context, a, &slices[i]);
    if (!is_on_disk || status != SPW_STATUS_OK)
        return status;
    do
        status = wait_for(a, a->sink->ops->finish(a->sink, error));
    while (status == SPW_STATUS_AGAIN);
    for (size_t i = 0; i + 1 < count && status == SPW_STATUS_OK; i++) {
        spw_slice slice = a->room.slices[i];
        slice.file = a->room.file;
        append(a, &slice, true);
    }
    return status;
}

spw_status stored_arrival_bring(spw_store *store, spw_context *context,
                                const spw_payload *payload, bool (*wait)(void *user),
                                void *user, spw_payload **ret_payload, spw_error *error)
{
    arrival a = {.sent = payload, .wait = wait, .user = user};
    assert_ok(spw_store_create_sink(store, NULL, &a.sink, NULL));
    assert_ok(
        spw_payload_create(context, spw_payload_count(payload), &a.received, NULL));
    spw_status status = begin(&a, error);
    if (status == SPW_STATUS_OK)
        status = bring(context, &a, error);
    spw_value_sink_free(a.sink);
    spw__place_unref(a.room.place);
    spw_file_unref(a.room.file);
    if (status == SPW_STATUS_OK)
        *ret_payload = a.received;
    else
        spw_payload_free(a.received);
    return status;
}
