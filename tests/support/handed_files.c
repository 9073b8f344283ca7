#include "handed_files.h"

#include <fcntl.h>
#include <unistd.h>

#include "testing.h"

spw_status handed_file(spw_context *context, const spw_file *file, spw_file **ret_file,
                       spw_error *error)
{
    int descriptor = fcntl(spw_file_descriptor(file), F_DUPFD_CLOEXEC, 0);
    assert_true(descriptor >= 0);
    spw_status status = spw_file_adopt(context, descriptor, ret_file, error);
    if (status != SPW_STATUS_OK)
        assert_int_equal(close(descriptor), 0);
    return status;
}

static spw_status append_header(spw_context *context, spw_payload *payload,
                                const spw_slice *stored, spw_error *error)
{
    spw_slice header = {.kind = SPW_MEMORY_HOST,
                        .flags = SPW_SLICE_TRANSIENT,
                        .size = stored->size,
                        .plain_size = stored->size};
    spw_status status = spw_buffer_create(context, (size_t)stored->size,
                                          SPW_CHARGE_HELD, &header.buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    assert_int_equal(pread(spw_file_descriptor(stored->file),
                           spw_buffer_data(header.buffer), (size_t)stored->size,
                           (off_t)stored->offset),
                     stored->size);
    status = spw_payload_append(payload, &header, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(header.buffer);
    return status;
}

spw_status handed_payload(spw_context *context, const spw_payload *stored,
                          bool with_checksums, spw_payload **ret_payload,
                          spw_error *error)
{
    size_t count = spw_payload_count(stored);
    const spw_slice *slices = spw_payload_slices(stored);
    spw_payload *payload;
    spw_file *file = NULL;
    spw_status status = spw_payload_create(context, count, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = append_header(context, payload, &slices[0], error);
    if (status == SPW_STATUS_OK)
        status = handed_file(context, slices[0].file, &file, error);
    for (size_t i = 1; i < count && status == SPW_STATUS_OK; i++) {
        spw_slice slice = slices[i];
        assert_int_equal(slice.kind, SPW_MEMORY_FILE);
        assert_ptr_equal(slice.file, slices[0].file);
        if (!with_checksums)
            slice.flags &= ~(uint32_t)SPW_SLICE_HAS_CHECKSUM;
        slice.file = spw_file_ref(file);
        assert_ok(spw_payload_append(payload, &slice, error)); /* it has the room */
    }
    spw_file_unref(file);
    if (status != SPW_STATUS_OK) {
        spw_payload_free(payload);
        return status;
    }
    *ret_payload = payload;
    return SPW_STATUS_OK;
}
