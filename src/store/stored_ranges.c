/* Ranges of files for those who are not the store: who sends what it has. Invariant: OK
 * is answered only of bytes that were seen, and are those that were written. */
#include "spillway/stored_ranges.h"

#include <errno.h>
#include <inttypes.h>

#include "context/error.h"
#include "memory/checksum.h"
#include "platform/spill_file.h"
#include "store/read_back.h"

enum { PIECE_BYTES = 1 << 20 };

spw_status spw_payload_read_back(spw_context *context, const spw_payload *payload,
                                 spw_payload **ret_payload, spw_error *error)
{
    spw__read_back_figures figures = {0};
    return spw__read_back(context, payload, false, ret_payload, &figures, error);
}

static spw_status verify_range(const spw_slice *slice, spw_buffer *piece,
                               spw_error *error)
{
    spw__checksum_state sum;
    spw__checksum_begin(&sum);
    for (uint64_t done = 0; done < slice->size;) {
        uint64_t left = slice->size - done;
        size_t size = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        int answer =
            spw__spill_file_read(spw_file_descriptor(slice->file),
                                 spw_buffer_data(piece), size, slice->offset + done);
        if (answer < 0)
            return spw__error_set(
                error, answer == -ENODATA ? SPW_STATUS_CORRUPT : SPW_STATUS_IO, -answer,
                "cannot read %zu bytes back from disk", size);
        spw__checksum_add(&sum, spw_buffer_data(piece), size);
        done += size;
    }
    if (spw__checksum_end(&sum) != slice->checksum)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "%" PRIu64 " bytes on disk are not those that were "
                              "written",
                              slice->size);
    return SPW_STATUS_OK;
}

spw_status spw_payload_verify(spw_context *context, const spw_payload *payload,
                              spw_error *error)
{
    spw_buffer *piece;
    spw_status status =
        spw_buffer_create(context, PIECE_BYTES, SPW_CHARGE_HELD, &piece, error);
    if (status != SPW_STATUS_OK)
        return status;
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < spw_payload_count(payload) && status == SPW_STATUS_OK; i++)
        if (slices[i].kind == SPW_MEMORY_FILE &&
            (slices[i].flags & SPW_SLICE_HAS_CHECKSUM) != 0)
            status = verify_range(&slices[i], piece, error);
    spw_buffer_unref(piece);
    return status;
}

uint64_t spw_checksum(const void *data, size_t size)
{
    return spw__checksum(data, size);
}
