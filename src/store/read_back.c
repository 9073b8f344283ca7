/* Reading back. A value of many small buffers is read in runs, so that it costs few
 * system calls; a large buffer has memory of its own, which goes when it goes. */
#include "store/read_back.h"

#include <errno.h>
#include <inttypes.h>

#include "context/error.h"
#include "memory/checksum.h"
#include "platform/clock.h"
#include "platform/direct_file.h"
#include "platform/spill_file.h"
#include "spillway/codec.h"

enum {
    SMALL_SLICE_BYTES = 1 << 16, /* larger ones have a buffer of their own */
    RUN_BYTES = 1 << 20,
    GAP_BYTES = 4096 /* between two slices of a run, read along */
};

static bool is_small(const spw_slice *slice)
{
    return slice->kind == SPW_MEMORY_FILE && slice->size < SMALL_SLICE_BYTES;
}

/* How many slices from the first on are read at once. Returns: in ret_bytes how many
 * bytes that is. */
static size_t run_length(const spw_slice *first, size_t left, uint64_t *ret_bytes)
{
    size_t length = 1;
    uint64_t end = first->offset + first->size;
    while (length < left && is_small(first)) {
        const spw_slice *next = &first[length];
        if (!is_small(next) || next->file != first->file || next->offset < end ||
            next->offset - end > GAP_BYTES ||
            next->offset + next->size - first->offset > RUN_BYTES)
            break;
        end = next->offset + next->size;
        length++;
    }
    *ret_bytes = end - first->offset;
    return length;
}

/* Returns: in ret_buffer what was read, from its byte ret_lead on. */
static spw_status read_run(spw_context *context, const spw_slice *first, uint64_t bytes,
                           bool is_direct, spw_buffer **ret_buffer, uint64_t *ret_lead,
                           spw__read_back_figures *figures, spw_error *error)
{
    spw_buffer *buffer;
    is_direct = is_direct && bytes >= SPW__DIRECT_FROM_BYTES;
    /* In memory it lies in its page as in the file. */
    uint64_t lead = is_direct ? first->offset % SPW__DIRECT_BYTES : 0;
    spw_status status =
        spw_buffer_create(context, lead + bytes, SPW_CHARGE_HELD, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint64_t before = spw__clock_ns();
    char *data = (char *)spw_buffer_data(buffer) + lead;
    int descriptor = spw_file_descriptor(first->file);
    int answer = is_direct
                     ? spw__direct_file_read(descriptor, data, bytes, first->offset)
                     : spw__spill_file_read(descriptor, data, bytes, first->offset);
    figures->read_ns += spw__clock_ns() - before;
    if (answer < 0) {
        spw_buffer_unref(buffer);
        return spw__error_set(
            error, answer == -ENODATA ? SPW_STATUS_CORRUPT : SPW_STATUS_IO, -answer,
            "cannot read %" PRIu64 " bytes back from disk", bytes);
    }
    figures->read_bytes += bytes;
    *ret_buffer = buffer;
    *ret_lead = lead;
    return SPW_STATUS_OK;
}

/* Takes: the slice's buffer, also on failure. Returns: in slice a plain one. */
static spw_status make_plain(spw_context *context, spw_slice *slice, spw_error *error)
{
    spw_buffer *plain;
    spw_status status =
        spw_buffer_create(context, slice->plain_size, SPW_CHARGE_HELD, &plain, error);
    if (status == SPW_STATUS_OK) {
        status = spw_codec_decompress((spw_codec_id)slice->codec, spw_slice_data(slice),
                                      slice->size, spw_buffer_data(plain),
                                      slice->plain_size, error);
        if (status != SPW_STATUS_OK)
            spw_buffer_unref(plain);
    }
    spw_buffer_unref(slice->buffer);
    if (status != SPW_STATUS_OK)
        return status;
    slice->buffer = plain;
    slice->offset = 0;
    slice->size = slice->plain_size;
    slice->codec = SPW_CODEC_NONE;
    return SPW_STATUS_OK;
}

/* Append what was read of one slice, which begins at offset of buffer. */
static spw_status append_read(spw_context *context, spw_payload *payload,
                              const spw_slice *on_disk, spw_buffer *buffer,
                              uint64_t offset, spw__read_back_figures *figures,
                              spw_error *error)
{
    spw_slice slice = *on_disk;
    slice.kind = SPW_MEMORY_HOST;
    slice.flags &= ~(uint32_t)SPW_SLICE_HAS_CHECKSUM;
    slice.buffer = buffer;
    slice.offset = offset;
    slice.checksum = 0;
    if ((on_disk->flags & SPW_SLICE_HAS_CHECKSUM) != 0 &&
        spw__checksum(spw_slice_data(&slice), slice.size) != on_disk->checksum)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "%" PRIu64 " bytes that were read back from disk are not "
                              "those that were written",
                              slice.size);
    (void)spw_buffer_ref(buffer);
    spw_status status = SPW_STATUS_OK;
    if (slice.codec != SPW_CODEC_NONE) {
        uint64_t before = spw__clock_ns();
        status = make_plain(context, &slice, error);
        figures->decompress_ns += spw__clock_ns() - before;
        if (status != SPW_STATUS_OK)
            return status;
    }
    status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(slice.buffer);
    return status;
}

/* Read the slices of one run and append them. */
static spw_status append_run(spw_context *context, spw_payload *payload,
                             const spw_slice *first, size_t length, uint64_t bytes,
                             bool is_direct, spw__read_back_figures *figures,
                             spw_error *error)
{
    spw_buffer *buffer = NULL;
    uint64_t lead = 0;
    spw_status status =
        read_run(context, first, bytes, is_direct, &buffer, &lead, figures, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; i < length && status == SPW_STATUS_OK; i++)
        status = append_read(context, payload, &first[i], buffer,
                             lead + first[i].offset - first->offset, figures, error);
    spw_buffer_unref(buffer);
    return status;
}

/* A slice that is in memory already. */
static spw_status append_shared(spw_payload *payload, const spw_slice *slice,
                                spw_error *error)
{
    (void)spw_buffer_ref(slice->buffer);
    spw_status status = spw_payload_append(payload, slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(slice->buffer);
    return status;
}

spw_status spw__read_back(spw_context *context, const spw_payload *on_disk,
                          bool is_direct, spw_payload **ret_payload,
                          spw__read_back_figures *figures, spw_error *error)
{
    spw_payload *payload;
    size_t count = spw_payload_count(on_disk), length;
    const spw_slice *slices = spw_payload_slices(on_disk);
    spw_status status = spw_payload_create(context, count, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; i < count && status == SPW_STATUS_OK; i += length) {
        uint64_t bytes;
        length = 1;
        if (slices[i].kind == SPW_MEMORY_HOST) {
            status = append_shared(payload, &slices[i], error);
            continue;
        }
        length = run_length(&slices[i], count - i, &bytes);
        status = append_run(context, payload, &slices[i], length, bytes, is_direct,
                            figures, error);
    }
    if (status != SPW_STATUS_OK) {
        spw_payload_free(payload);
        return status;
    }
    *ret_payload = payload;
    return SPW_STATUS_OK;
}
