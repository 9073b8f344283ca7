/* Arrivals: what was received and has not been put. Invariant: one is among those of
 * its store exactly while it has room reserved or a range; and the store's
 * arriving_weight is the sum of what they have reserved. */
#include "store/arrival.h"

#include <assert.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/checksum.h"
#include "memory/payload_slices.h"

/* ----- having something; with the lock ----- */

static void add(spw__arrival *arrival)
{
    spw_store *store = arrival->store;
    arrival->previous = NULL;
    arrival->next = store->arrivals;
    if (arrival->next != NULL)
        arrival->next->previous = arrival;
    store->arrivals = arrival;
}

static bool has_something(const spw__arrival *arrival)
{
    return arrival->reserved > 0 || arrival->range.segment != NULL;
}

/* It has nothing more of what it had. */
static void leave(spw__arrival *arrival)
{
    spw_store *store = arrival->store;
    store->arriving_weight -= arrival->reserved;
    arrival->reserved = 0;
    arrival->range = (spw__range){0};
    if (arrival->previous != NULL)
        arrival->previous->next = arrival->next;
    else
        store->arrivals = arrival->next;
    if (arrival->next != NULL)
        arrival->next->previous = arrival->previous;
}

void spw__arrival_reserve(spw__arrival *arrival, uint64_t weight)
{
    assert(!has_something(arrival) && weight > 0);
    arrival->reserved = weight;
    arrival->store->arriving_weight += weight;
    add(arrival);
}

void spw__arrival_give_range(spw__arrival *arrival, const spw__range *range)
{
    assert(!has_something(arrival));
    arrival->range = *range;
    add(arrival);
}

void spw__arrival_take_range(spw__arrival *arrival, spw__range *ret_range)
{
    *ret_range = arrival->range;
    if (has_something(arrival))
        leave(arrival);
}

static void give_up(spw__arrival *arrival)
{
    spw_store *store = arrival->store;
    if (!has_something(arrival))
        return;
    /* Here and not later, for the segments may go as soon as the lock is free. */
    bool is_something = spw__segments_release(store->segments, &arrival->range);
    leave(arrival);
    if (is_something)
        spw__store_collect_later(store);
}

/* ----- its life ----- */

static void release(spw__place *place)
{
    spw__arrival *arrival = (spw__arrival *)place;
    spw_store *store = arrival->store;
    spw__store_lock(store);
    give_up(arrival);
    spw__store_unlock(store);
    spw_payload_free(arrival->on_disk);
    spw__release(store->context, arrival, sizeof *arrival, _Alignof(spw__arrival));
    spw__store_unref(store);
}

spw_status spw__arrival_create(spw_store *store, spw__arrival **ret_arrival,
                               spw_error *error)
{
    spw__arrival *arrival =
        spw__allocate(store->context, sizeof *arrival, _Alignof(spw__arrival));
    if (arrival == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a value that arrives");
    *arrival =
        (spw__arrival){.place = {.references = 1, .release = release}, .store = store};
    atomic_fetch_add(&store->references, 1);
    *ret_arrival = arrival;
    return SPW_STATUS_OK;
}

void spw__arrivals_clear(spw_store *store)
{
    spw__store_lock(store);
    assert(store->arriving_jobs == 0);
    while (store->arrivals != NULL)
        give_up(store->arrivals);
    spw__store_unlock(store);
}

/* ----- on disk ----- */

spw_status spw__arrival_plan(spw__arrival *arrival, const spw_slice *header,
                             const uint64_t *sizes, uint64_t count, spw_error *error)
{
    spw_context *context = arrival->store->context;
    spw_payload *plan;
    uint64_t offset = 0;
    if (count >= SIZE_MAX)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "a value has more frames than there is memory");
    spw_status status = spw_payload_create(context, (size_t)count + 1, &plan, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (uint64_t i = 0; i <= count && status == SPW_STATUS_OK; i++) {
        uint64_t size = i == 0 ? header->size : sizes[i - 1];
        spw_slice slice = {.kind = SPW_MEMORY_FILE,
                           .flags = SPW_SLICE_WRITEABLE,
                           .offset = offset,
                           .size = size,
                           .plain_size = size};
        status = spw_payload_append(plan, &slice, error);
        offset += spw__segment_space(size);
    }
    if (status != SPW_STATUS_OK) {
        spw_payload_free(plan);
        return status;
    }
    arrival->on_disk = plan;
    return SPW_STATUS_OK;
}

uint64_t spw__arrival_range_bytes(const spw__arrival *arrival)
{
    size_t last = spw_payload_count(arrival->on_disk) - 1;
    const spw_slice *slice = &spw_payload_slices(arrival->on_disk)[last];
    return slice->offset + spw__segment_space(slice->size);
}

/* ----- being put ----- */

static spw__place *place_of(const spw_slice *slice)
{
    return slice->kind == SPW_MEMORY_FILE ? spw__file_place(slice->file)
                                          : spw__buffer_place(slice->buffer);
}

/* The arrival of this store's that a slice holds; NULL: none. */
static spw__arrival *arrival_of(const spw_store *store, const spw_slice *slice)
{
    spw__place *place = place_of(slice);
    if (place == NULL || place->release != release)
        return NULL;
    spw__arrival *arrival = (spw__arrival *)place;
    return arrival->store == store ? arrival : NULL;
}

static const spw_slice *first_on_disk(const spw_payload *payload)
{
    for (size_t i = 0; i < spw_payload_count(payload); i++)
        if (spw_payload_slices(payload)[i].kind == SPW_MEMORY_FILE)
            return &spw_payload_slices(payload)[i];
    return NULL;
}

/* Whether a slice is the one that was written: its bytes, or, of the header, the same
 * bytes in memory. One without any may be anywhere. */
static bool is_same(const spw_slice *slice, const spw_slice *written, bool is_header)
{
    if (slice->size != written->size)
        return false;
    if (slice->size == 0)
        return true;
    if (slice->kind == SPW_MEMORY_FILE)
        return slice->offset == written->offset;
    return is_header &&
           spw__checksum(spw_slice_data(slice), slice->size) == written->checksum;
}

spw_status spw__arrival_check(spw_store *store, const spw_payload *payload,
                              spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(payload);
    size_t count = spw_payload_count(payload);
    const spw_slice *first = first_on_disk(payload);
    if (first == NULL)
        return SPW_STATUS_OK;
    spw__arrival *arrival = arrival_of(store, first);
    spw_payload *written = NULL;
    spw_status status = SPW_STATUS_OK;
    if (arrival != NULL) {
        spw__store_lock(store);
        if (arrival->is_whole && arrival->on_disk != NULL)
            status = spw__payload_share(store, arrival->on_disk, &written, error);
        spw__store_unlock(store);
    }
    if (status != SPW_STATUS_OK)
        return status;
    bool is_whole = written != NULL && spw_payload_count(written) == count;
    for (size_t i = 0; i < count && is_whole; i++)
        is_whole = is_same(&slices[i], &spw_payload_slices(written)[i], i == 0) &&
                   (slices[i].kind == SPW_MEMORY_HOST ||
                    spw__file_place(slices[i].file) == &arrival->place);
    spw_payload_free(written);
    return is_whole ? SPW_STATUS_OK
                    : spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                     "a payload with ranges of files that are not, in "
                                     "order, what a sink of this store received of one "
                                     "value");
}

spw_status spw__arrival_take(spw_store *store, spw_payload *payload,
                             spw__forms *ret_forms, spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(payload);
    const spw_slice *first = first_on_disk(payload);
    if (first != NULL) {
        spw__arrival *arrival = arrival_of(store, first);
        if (!has_something(arrival))
            return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                                  "what was received to disk is not there any more: "
                                  "the store was closed, or it has been put");
        ret_forms->on_disk = arrival->on_disk;
        ret_forms->range = arrival->range;
        arrival->on_disk = NULL;
        leave(arrival);
        return SPW_STATUS_OK;
    }
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        spw__arrival *arrival = arrival_of(store, &slices[i]);
        if (arrival != NULL && has_something(arrival))
            leave(arrival);
    }
    ret_forms->packed = payload;
    return SPW_STATUS_OK;
}
