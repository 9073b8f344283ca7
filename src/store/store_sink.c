/* A store's sink: decides where values go that arrive. Who receives is never kept
 * waiting here: it is told to ask again, and woken. What blocks is a job of the store's
 * pool: opening, which finds a range and writes the header to it, and writing. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/log.h"
#include "memory/payload_slices.h"
#include "platform/spill_file.h"
#include "store/store_sink_state.h"

/* ----- its end ----- */

/* The value under way, if there is one, is whole or given up. */
static void end_value(spw__store_sink *sink)
{
    if (sink->arrival != NULL)
        spw__place_unref(&sink->arrival->place);
    spw_file_unref(sink->file);
    spw_buffer_unref(sink->header.buffer);
    sink->arrival = NULL;
    sink->file = NULL;
    sink->header.buffer = NULL;
    sink->opening = SPW__NOT_OPENED;
}

static void destroy(spw__store_sink *sink)
{
    spw_store *store = sink->store;
    end_value(sink);
    spw_buffer_unref(sink->window);
    spw__release(store->context, sink, sizeof *sink, _Alignof(spw__store_sink));
    spw__store_unref(store);
}

static void free_sink(spw_value_sink *base)
{
    spw__store_sink *sink = (spw__store_sink *)base;
    spw_store *store = sink->store;
    spw__store_lock(store);
    sink->is_given_up = true;
    bool is_last = sink->jobs == 0;
    spw__store_unlock(store);
    if (is_last)
        destroy(sink);
}

/* ----- jobs ----- */

spw_status spw__store_sink_tell_closed(spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                          "the store was closed for which a value arrives");
}

void spw__store_sink_start(spw__store_sink *sink, spw__job *job)
{
    assert(!sink->store->is_closed);
    sink->jobs++;
    sink->store->arriving_jobs++;
    spw__store_run(sink->store, job, SPW__JOB_PATIENT);
}

void spw__store_sink_end_job(spw__store_sink *sink)
{
    spw_store *store = sink->store;
    sink->jobs--;
    store->arriving_jobs--;
    (void)pthread_cond_broadcast(&store->changed);
    bool is_last = sink->is_given_up && sink->jobs == 0;
    if (!sink->is_given_up && sink->is_waited_for && sink->base.wake != NULL)
        sink->base.wake(sink->base.user);
    sink->is_waited_for = false;
    spw__store_unlock(store);
    if (is_last)
        destroy(sink);
}

void spw__store_sink_fail(spw__store_sink *sink, const spw_error *why)
{
    spw_store *store = sink->store;
    spw__range range = {0};
    bool is_passed_on = sink->arrival->range.segment != NULL &&
                        spw__segments_refuse(store->segments, &sink->arrival->range);
    if (sink->jobs == 1) /* else the other half may be on its way there */
        spw__arrival_take_range(sink->arrival, &range);
    spw__store_unlock(store);
    /* Before the trouble is noted, which ends when space is given back: this is none.
     */
    bool is_something = spw__segments_give_up(store->segments, &range);
    (void)spw__segments_collect(store->segments);
    spw__store_lock(store);
    if (!is_passed_on)
        (void)spw__store_note_disk(store, why->status);
    if (is_something)
        spw__store_collect_later(store); /* what has become sparse */
    if (is_passed_on || store->is_trouble_logged)
        return;
    store->is_trouble_logged = true;
    spw__store_unlock(store);
    spw__log(store->context, SPW_LOG_WARNING,
             "values that arrive are taken to memory for a while: %s", why->message);
    spw__store_lock(store);
}

/* ----- opening ----- */

/* Let the slices of the plan be of a range, and write the header to it. Blocks. */
static spw_status lay_out(spw__store_sink *sink, const spw__range *range,
                          spw_error *error)
{
    static const char ZEROS[SPW__SEGMENT_ALIGNMENT];
    spw_payload *plan = sink->arrival->on_disk;
    spw_slice *slices = spw__payload_slices(plan);
    spw_file *file = spw__range_file(range);
    for (size_t i = 0; i < spw_payload_count(plan); i++) {
        slices[i].file = spw_file_ref(file);
        slices[i].offset += range->offset;
    }
    const void *data = spw_slice_data(&sink->header);
    size_t size = (size_t)sink->header.size;
    slices[0].checksum = spw__checksum(data, size);
    slices[0].flags |= SPW_SLICE_HAS_CHECKSUM;
    spw__spill_part parts[2] = {
        {data, size}, {ZEROS, (size_t)(slices[1].offset - slices[0].offset) - size}};
    int answer =
        spw__spill_file_write(spw_file_descriptor(file), parts, 2, range->offset);
    if (answer < 0)
        return spw__error_set(error, SPW_STATUS_IO, -answer,
                              "cannot write to disk, in the worker's local directory "
                              "or where it is told to spill");
    spw_status status =
        spw__file_share(file, &sink->arrival->place, &sink->file, error);
    if (status == SPW_STATUS_OK)
        (void)spw__place_ref(&sink->arrival->place);
    return status;
}

static void open_range(spw__job *job)
{
    spw__store_sink *sink =
        (spw__store_sink *)((char *)job - offsetof(spw__store_sink, open_job));
    spw_store *store = sink->store;
    spw__range range = {0};
    spw_error why;
    spw_status status = spw__segments_reserve(
        store->segments, spw__arrival_range_bytes(sink->arrival), &range, &why);
    if (status == SPW_STATUS_OK)
        status = lay_out(sink, &range, &why);
    spw__store_lock(store);
    if (range.segment != NULL)
        spw__arrival_give_range(sink->arrival, &range);
    if (status == SPW_STATUS_OK)
        store->figures.received_bytes += sink->header.size;
    else if (status == SPW_STATUS_NO_MEMORY)
        sink->fault = why; /* there is none for the value either */
    else if (status == SPW_STATUS_IO)
        spw__store_sink_fail(sink, &why);
    /* That one is too large for the limit says nothing of others. */
    sink->opening = status == SPW_STATUS_OK ? SPW__IS_OPEN : SPW__IS_REFUSED;
    spw__store_sink_end_job(sink);
}

/* ----- where a value goes ----- */

typedef enum destination { TO_MEMORY, TO_RESERVED, TO_DISK } destination;

/* Room in memory is the arrival's at once. With the lock. */
static destination decide(spw_store *store, spw__arrival *arrival, uint64_t weight)
{
    if (store->is_closed || store->segments == NULL)
        return TO_MEMORY;
    uint64_t used =
        spw__store_staying(store) + store->leaving_weight + store->arriving_weight;
    uint64_t room = spw__store_room(store);
    if (used <= room && weight <= room - used) {
        spw__arrival_reserve(arrival, weight);
        return TO_RESERVED;
    }
    return spw__store_is_in_trouble(store) ? TO_MEMORY : TO_DISK;
}

/* Have a job find a range. Errors: AGAIN, NO_MEMORY, and OK where it goes to memory. */
static spw_status go_to_disk(spw__store_sink *sink, spw__arrival *arrival,
                             const spw_slice *header, const uint64_t *sizes,
                             uint64_t count, spw_error *error)
{
    spw_store *store = sink->store;
    spw_status status = spw__arrival_plan(arrival, header, sizes, count, error);
    if (status != SPW_STATUS_OK)
        return status;
    sink->arrival = arrival;
    (void)spw__place_ref(&arrival->place);
    sink->header = *header;
    (void)spw_buffer_ref(header->buffer);
    spw__store_lock(store);
    bool is_closed = store->is_closed;
    if (!is_closed) {
        sink->opening = SPW__IS_OPENING;
        sink->is_waited_for = true;
        spw__store_sink_start(sink, &sink->open_job);
    }
    spw__store_unlock(store);
    if (is_closed) {
        end_value(sink);
        return SPW_STATUS_OK;
    }
    return spw__error_set(error, SPW_STATUS_AGAIN, 0, "a disk is waited for");
}

static spw_status begin_new(spw__store_sink *sink, const spw_slice *header,
                            const uint64_t *sizes, uint64_t count,
                            spw__value_room *ret_room, spw_error *error)
{
    spw_store *store = sink->store;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; i++)
        bytes += sizes[i]; /* the sum of all in a message has been checked */
    if (bytes < SPW__LARGE_BYTES || store->target_bytes == 0)
        return SPW_STATUS_OK;
    spw__arrival *arrival;
    spw_status status = spw__arrival_create(store, &arrival, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__store_lock(store);
    destination to = decide(store, arrival, bytes + header->size);
    spw__store_unlock(store);
    if (to == TO_RESERVED) {
        ret_room->place = &arrival->place;
        return SPW_STATUS_OK;
    }
    if (to == TO_DISK)
        status = go_to_disk(sink, arrival, header, sizes, count, error);
    spw__place_unref(&arrival->place);
    return status;
}

static spw_status begin(spw_value_sink *base, const spw_slice *header,
                        const uint64_t *sizes, uint64_t count,
                        spw__value_room *ret_room, spw_error *error)
{
    spw__store_sink *sink = (spw__store_sink *)base;
    spw__store_lock(sink->store);
    spw__opening opening = sink->opening;
    sink->is_waited_for = opening == SPW__IS_OPENING;
    spw__store_unlock(sink->store);
    if (opening == SPW__NOT_OPENED)
        return begin_new(sink, header, sizes, count, ret_room, error);
    if (opening == SPW__IS_OPENING)
        return spw__error_set(error, SPW_STATUS_AGAIN, 0, "a disk is waited for");
    if (opening == SPW__IS_REFUSED) {
        end_value(sink);
        if (sink->fault.status != SPW_STATUS_OK && error != NULL)
            *error = sink->fault;
        return sink->fault.status;
    }
    spw_status status = spw__window_begin(sink, error);
    if (status != SPW_STATUS_OK)
        return status;
    ret_room->file = spw_file_ref(sink->file);
    ret_room->slices = spw_payload_slices(sink->arrival->on_disk) + 1;
    return SPW_STATUS_OK;
}

static spw_status finish(spw_value_sink *base, spw_error *error)
{
    spw__store_sink *sink = (spw__store_sink *)base;
    spw_status status = spw__window_flush(sink, error);
    if (status == SPW_STATUS_OK)
        end_value(sink);
    return status;
}

static bool is_for(spw_value_sink *base, const spw_slice *first)
{
    const spw__store_sink *sink = (const spw__store_sink *)base;
    size_t size = strlen(sink->only_with);
    return size == 0 || (first->size > 0 && memmem(spw_slice_data(first), first->size,
                                                   sink->only_with, size) != NULL);
}

spw_status spw_store_create_sink(spw_store *store, const char *only_with,
                                 spw_value_sink **ret_sink, spw_error *error)
{
    static const spw__value_sink_ops OPS = {.is_for = is_for,
                                            .begin = begin,
                                            .window = spw__window_get,
                                            .wrote = spw__window_wrote,
                                            .finish = finish,
                                            .free = free_sink};
    if (only_with != NULL && strlen(only_with) > SPW_STORE_ONLY_WITH_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "what a message is to have in it has more than %d bytes",
                              SPW_STORE_ONLY_WITH_MAX);
    spw__store_sink *sink =
        spw__allocate(store->context, sizeof *sink, _Alignof(spw__store_sink));
    if (sink == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a store's sink");
    *sink =
        (spw__store_sink){.base.ops = &OPS, .store = store, .open_job.run = open_range};
    if (only_with != NULL)
        memcpy(sink->only_with, only_with, strlen(only_with) + 1);
    atomic_fetch_add(&store->references, 1);
    *ret_sink = &sink->base;
    return SPW_STATUS_OK;
}
