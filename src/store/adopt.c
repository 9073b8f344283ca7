/* Adopting: nothing is read and nothing written. What a peer had on disk is there for
 * us as well, by a descriptor of our own, for as long as we want it. */
#include "store/adopt.h"

#include <string.h>

#include "context/error.h"
#include "memory/payload_slices.h"
#include "memory/place.h"

/* Returns: NULL if there is none with bytes. */
static const spw_slice *first_range(const spw_payload *payload)
{
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < spw_payload_count(payload); i++)
        if (slices[i].kind == SPW_MEMORY_FILE && slices[i].size > 0)
            return &slices[i];
    return NULL;
}

bool spw__payload_is_foreign(const spw_payload *payload)
{
    const spw_slice *first = first_range(payload);
    return first != NULL && spw__file_place(first->file) == NULL;
}

/* Whether all that has bytes behind the header is of one file. Returns: in ret_begin
 * and ret_end between which bytes of it, in whatever order. */
static bool is_one(const spw_payload *payload, const spw_file *file,
                   uint64_t *ret_begin, uint64_t *ret_end)
{
    const spw_slice *slices = spw_payload_slices(payload);
    uint64_t begin = UINT64_MAX, end = 0;
    if (slices[0].kind != SPW_MEMORY_HOST)
        return false;
    for (size_t i = 1; i < spw_payload_count(payload); i++) {
        const spw_slice *slice = &slices[i];
        if (slice->size == 0)
            continue;
        if (slice->kind != SPW_MEMORY_FILE || slice->file != file)
            return false;
        begin = slice->offset < begin ? slice->offset : begin;
        end = slice->offset + slice->size > end ? slice->offset + slice->size : end;
    }
    *ret_begin = begin;
    *ret_end = end;
    return true;
}

/* The header in memory of its own: it stays for as long as the entry, and threads of
 * the store may be the last to let go of it, which must not touch the owner's objects.
 * Nor does it keep what it came with. */
static spw_status copy_header(spw_store *store, const spw_payload *payload,
                              spw_buffer **ret_header, spw_error *error)
{
    const spw_slice *header = &spw_payload_slices(payload)[0];
    spw_status status = spw_buffer_create(store->context, (size_t)header->size,
                                          SPW_CHARGE_HELD, ret_header, error);
    if (status == SPW_STATUS_OK && header->size > 0)
        memcpy(spw_buffer_data(*ret_header), spw_slice_data(header),
               (size_t)header->size);
    return status;
}

/* All but the header is of the range's file from now on. The descriptor that was
 * received goes with its last slice. */
static void change_file(spw_payload *payload, const spw__range *range)
{
    spw_slice *slices = spw__payload_slices(payload);
    for (size_t i = 1; i < spw_payload_count(payload); i++) {
        spw_slice *slice = &slices[i];
        spw_slice before = *slice;
        slice->kind = SPW_MEMORY_FILE;
        slice->file = spw_file_ref(spw__range_file(range));
        if (slice->size == 0)
            slice->offset = range->offset; /* it may have been anywhere */
        if (before.kind == SPW_MEMORY_FILE)
            spw_file_unref(before.file);
        else
            spw_buffer_unref(before.buffer);
    }
}

spw_status spw__payload_adopt(spw_store *store, spw_payload *payload,
                              spw__forms *ret_forms, spw_error *error)
{
    uint64_t begin, end;
    spw__range range;
    spw_buffer *header;
    spw__store_lock(store);
    bool is_closed = store->is_closed;
    spw__store_unlock(store);
    if (is_closed)
        return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                              "the store was closed that was to have what is in a file "
                              "of a peer's");
    if (store->segments == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a store without a directory has nothing on disk, not in "
                              "a file of a peer's either");
    if (!is_one(payload, first_range(payload)->file, &begin, &end))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a payload with ranges of a file that are not a value as "
                              "a peer has it on disk: a header in memory, and all else "
                              "in one file");
    spw_status status = copy_header(store, payload, &header, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw__segments_adopt(store->segments, first_range(payload)->file, begin,
                                 end - begin, &range, error);
    if (status != SPW_STATUS_OK) {
        spw_buffer_unref(header);
        return status;
    }
    spw__payload_replace(payload, 0, header);
    change_file(payload, &range);
    *ret_forms = (spw__forms){.on_disk = payload, .range = range};
    return SPW_STATUS_OK;
}
