/* Merging the slices of a payload into one.
 * Invariant: only slices of one buffer are ever taken for neighbours. Two allocations
 * may touch by chance, and who keeps one of them alive keeps nothing of the other:
 * addresses alone prove nothing, so they are not even looked at. */
#include <string.h>

#include "context/error.h"
#include "memory/payload_slices.h"

/* Refuse what has no plain bytes in memory, and find what all slices have in common. */
static spw_status measure(const spw_payload *payload, size_t *ret_bytes,
                          uint32_t *ret_flags, spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(payload);
    uint32_t flags = SPW_SLICE_WRITEABLE | SPW_SLICE_TRANSIENT;
    size_t bytes = 0;
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        const spw_slice *slice = &slices[i];
        if (slice->kind != SPW_MEMORY_HOST || slice->codec != SPW_CODEC_NONE)
            return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                  "part %zu is not plain bytes in memory", i);
        /* The same bytes may be in many slices. */
        if (slice->size > SIZE_MAX - bytes)
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "the parts have more bytes than the address space");
        bytes += (size_t)slice->size;
        flags &= slice->flags;
    }
    *ret_bytes = bytes;
    *ret_flags = flags;
    return SPW_STATUS_OK;
}

static spw_status refuse(size_t part, size_t before, const spw_slice *slice,
                         const spw_slice *merged, spw_error *error)
{
    if (slice->buffer != merged->buffer)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "part %zu does not follow part %zu: it is in the memory "
                              "of another owner",
                              part, before);
    uint64_t end = merged->offset + merged->size;
    bool is_gap = slice->offset > end;
    return spw__error_set(
        error, SPW_STATUS_INVALID_ARGUMENT, 0,
        "part %zu does not follow part %zu: it starts %llu bytes "
        "%s the end of that one",
        part, before,
        (unsigned long long)(is_gap ? slice->offset - end : end - slice->offset),
        is_gap ? "after" : "before");
}

/* The range that the slices cover, if they do so one after another; merged->buffer is
 * NULL if there are no bytes. */
static spw_status find_range(const spw_payload *payload, spw_slice *merged,
                             spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(payload);
    size_t before = 0;
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        const spw_slice *slice = &slices[i];
        if (slice->size == 0)
            continue;
        if (merged->buffer == NULL) {
            merged->buffer = slice->buffer;
            merged->offset = slice->offset;
        } else if (slice->buffer != merged->buffer ||
                   slice->offset != merged->offset + merged->size) {
            return refuse(i, before, slice, merged, error);
        }
        merged->size += slice->size;
        before = i;
    }
    return SPW_STATUS_OK;
}

/* Returns: one reference. */
static spw_status copy_all(const spw_payload *payload, size_t bytes,
                           spw_buffer **ret_buffer, spw_error *error)
{
    spw_context *context = spw__payload_context(payload);
    spw_buffer *buffer;
    spw_status status =
        spw_buffer_create(context, bytes, SPW_CHARGE_HELD, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    const spw_slice *slices = spw_payload_slices(payload);
    char *out = spw_buffer_data(buffer);
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        memcpy(out, spw_slice_data(&slices[i]), (size_t)slices[i].size);
        out += slices[i].size;
    }
    if (bytes > 0)
        spw_context_count_copy(context, SPW_COPY_MERGED, bytes);
    *ret_buffer = buffer;
    return SPW_STATUS_OK;
}

spw_status spw_payload_merge(const spw_payload *payload, spw_merge_copy copy,
                             spw_slice *ret_slice, spw_error *error)
{
    if ((unsigned)copy > SPW_MERGE_IF_NEEDED)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "an unknown choice about copies: %d", (int)copy);
    size_t bytes = 0;
    uint32_t flags = 0;
    spw_status status = measure(payload, &bytes, &flags, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_slice merged = {.kind = SPW_MEMORY_HOST};
    bool is_copy = copy == SPW_MERGE_IF_NEEDED;
    status = find_range(payload, &merged, is_copy ? NULL : error);
    if (status == SPW_STATUS_OK && merged.buffer != NULL) {
        spw_buffer_ref(merged.buffer);
    } else if (status == SPW_STATUS_OK || is_copy) {
        merged = (spw_slice){.kind = SPW_MEMORY_HOST};
        status = copy_all(payload, bytes, &merged.buffer, error);
    }
    if (status != SPW_STATUS_OK)
        return status;
    merged.flags = flags;
    merged.size = merged.plain_size = bytes;
    *ret_slice = merged;
    return SPW_STATUS_OK;
}
