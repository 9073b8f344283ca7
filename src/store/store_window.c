/* The window through which a value comes to disk, in two halves: while one is written,
 * the other is filled. Whoever receives fills, and adds to the checksums while the
 * bytes are in the cache; jobs write. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "context/error.h"
#include "memory/payload_slices.h"
#include "platform/clock.h"
#include "platform/spill_file.h"
#include "store/store_sink_state.h"

enum {
    WINDOW_BYTES = 1 << 20,
    HALF_BYTES = WINDOW_BYTES / 2,
    /* So that what fills up to a boundary has room behind it. */
    FILL_BYTES = HALF_BYTES - SPW__SEGMENT_ALIGNMENT
};

/* ----- writing ----- */

static void write_half(spw__job *job)
{
    spw__window_half *half = (spw__window_half *)job;
    spw__store_sink *sink = half->sink;
    spw_store *store = sink->store;
    spw__spill_part part = {.data = half->data, .size = half->used};
    uint64_t before = spw__clock_ns();
    int answer =
        spw__spill_file_write(spw_file_descriptor(sink->file), &part, 1, half->offset);
    uint64_t took = spw__clock_ns() - before;
    spw__store_lock(store);
    store->figures.write_ns += took;
    if (answer >= 0) {
        store->figures.received_bytes += half->used;
    } else {
        spw_error why;
        (void)spw__error_set(&why, SPW_STATUS_IO, -answer,
                             "cannot write %zu bytes that arrive to disk, in the "
                             "worker's local directory or where it is told to spill",
                             half->used);
        if (sink->fault.status == SPW_STATUS_OK)
            sink->fault = why;
        spw__store_sink_fail(sink, &why);
    }
    half->used = 0;
    half->is_busy = false;
    spw__store_sink_end_job(sink);
}

/* Have what was filled of the current half written, and go on with the other. With the
 * lock. */
static void submit(spw__store_sink *sink)
{
    spw__window_half *half = &sink->halves[sink->current];
    assert(!half->is_busy && half->used > 0);
    half->is_busy = true;
    sink->current ^= 1;
    spw__store_sink_start(sink, &half->job);
}

/* With the lock. Errors: why the value cannot come to disk. */
static spw_status check_well(const spw__store_sink *sink, spw_error *error)
{
    if (sink->store->is_closed)
        return spw__store_sink_tell_closed(error);
    if (sink->fault.status != SPW_STATUS_OK && error != NULL)
        *error = sink->fault;
    return sink->fault.status;
}

/* With the lock. Whoever receives is to be woken when a job ends. */
static spw_status wait(spw__store_sink *sink, spw_error *error)
{
    sink->is_waited_for = true;
    return spw__error_set(error, SPW_STATUS_AGAIN, 0, "a disk is waited for");
}

/* ----- filling ----- */

static const spw_slice *slice_of(const spw__store_sink *sink)
{
    return &spw_payload_slices(sink->arrival->on_disk)[sink->slice];
}

/* Note the checksums of the slices that are full, and go on with one that is not. */
static void end_slices(spw__store_sink *sink)
{
    spw_payload *on_disk = sink->arrival->on_disk;
    spw_slice *slices = spw__payload_slices(on_disk);
    while (sink->slice < spw_payload_count(on_disk) &&
           sink->filled == slices[sink->slice].size) {
        slices[sink->slice].checksum = spw__checksum_end(&sink->sum);
        slices[sink->slice].flags |= SPW_SLICE_HAS_CHECKSUM;
        spw__checksum_begin(&sink->sum);
        sink->filled = 0;
        sink->slice++;
    }
}

spw_status spw__window_begin(spw__store_sink *sink, spw_error *error)
{
    if (sink->window == NULL) {
        spw_status status =
            spw_buffer_create(sink->store->context, WINDOW_BYTES, SPW_CHARGE_SPILLING,
                              &sink->window, error);
        if (status != SPW_STATUS_OK)
            return status;
        for (size_t i = 0; i < 2; i++)
            sink->halves[i] = (spw__window_half){
                .job.run = write_half,
                .sink = sink,
                .data = (char *)spw_buffer_data(sink->window) + i * HALF_BYTES};
    }
    sink->slice = 1; /* the header is there */
    sink->filled = 0;
    sink->end = slice_of(sink)->offset;
    spw__checksum_begin(&sink->sum);
    end_slices(sink);
    return SPW_STATUS_OK;
}

spw_status spw__window_get(spw_value_sink *base, void **ret_data, size_t *ret_size,
                           spw_error *error)
{
    spw__store_sink *sink = (spw__store_sink *)base;
    uint64_t rest = slice_of(sink)->size - sink->filled;
    size_t least = rest < SPW__WINDOW_LEAST ? (size_t)rest : SPW__WINDOW_LEAST;
    spw__store_lock(sink->store);
    spw_status status = check_well(sink, error);
    const spw__window_half *half = &sink->halves[sink->current];
    if (status == SPW_STATUS_OK && !half->is_busy && FILL_BYTES - half->used < least)
        submit(sink);
    half = &sink->halves[sink->current];
    if (status == SPW_STATUS_OK && half->is_busy)
        status = wait(sink, error);
    spw__store_unlock(sink->store);
    if (status != SPW_STATUS_OK)
        return status;
    size_t room = FILL_BYTES - half->used;
    *ret_data = half->data + half->used;
    *ret_size = rest < room ? (size_t)rest : room;
    return SPW_STATUS_OK;
}

void spw__window_wrote(spw_value_sink *base, size_t size)
{
    spw__store_sink *sink = (spw__store_sink *)base;
    spw__window_half *half = &sink->halves[sink->current];
    char *data = half->data + half->used;
    if (half->used == 0)
        half->offset = sink->end;
    spw__checksum_add(&sink->sum, data, size);
    sink->filled += size;
    sink->end += size;
    half->used += size;
    if (sink->filled < slice_of(sink)->size)
        return;
    size_t gap = (size_t)(spw__segment_space(sink->end) - sink->end);
    memset(data + size, 0, gap);
    half->used += gap;
    sink->end += gap;
    end_slices(sink);
}

spw_status spw__window_flush(spw__store_sink *sink, spw_error *error)
{
    spw_store *store = sink->store;
    spw__store_lock(store);
    spw_status status = check_well(sink, error);
    const spw__window_half *half = &sink->halves[sink->current];
    if (status == SPW_STATUS_OK && !half->is_busy && half->used > 0)
        submit(sink);
    if (status == SPW_STATUS_OK && (sink->halves[0].is_busy || sink->halves[1].is_busy))
        status = wait(sink, error);
    if (status == SPW_STATUS_OK) {
        sink->arrival->is_whole = true;
        store->figures.received++;
        (void)spw__store_note_disk(store, status);
    }
    spw__store_unlock(store);
    return status;
}
