#include "payloads.h"

#include <stdlib.h>
#include <string.h>

#include "framing/message_writer.h"
#include "testing.h"

unsigned char payload_byte(unsigned seed, size_t frame, size_t place)
{
    return (unsigned char)(seed * 131 + frame * 31 + place * 7 + (place >> 8) * 13 +
                           (place >> 16) * 5);
}

static spw_status append_frame(spw_context *context, spw_payload *payload, size_t size,
                               unsigned seed, spw_error *error)
{
    spw_slice slice = {.flags = SPW_SLICE_WRITEABLE, .size = size, .plain_size = size};
    spw_status status =
        spw_buffer_create(context, size, SPW_CHARGE_HELD, &slice.buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    unsigned char *data = spw_buffer_data(slice.buffer);
    size_t frame = spw_payload_count(payload);
    for (size_t i = 0; i < size; i++)
        data[i] = payload_byte(seed, frame, i);
    status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(slice.buffer);
    return status;
}

spw_status payload_make(spw_context *context, const size_t *sizes, size_t count,
                        unsigned seed, spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    spw_status status = spw_payload_create(context, count, &payload, error);
    for (size_t i = 0; status == SPW_STATUS_OK && i < count; i++) {
        status = append_frame(context, payload, sizes[i], seed, error);
        if (status != SPW_STATUS_OK)
            spw_payload_free(payload);
    }
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    return status;
}

void payload_assert(const spw_payload *payload, const size_t *sizes, size_t count,
                    unsigned seed)
{
    assert_int_equal(spw_payload_count(payload), count);
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t frame = 0; frame < count; frame++) {
        assert_int_equal(slices[frame].size, sizes[frame]);
        const unsigned char *data = spw_slice_data(&slices[frame]);
        for (size_t i = 0; i < sizes[frame]; i++)
            if (data[i] != payload_byte(seed, frame, i))
                fail_msg("frame %zu differs at byte %zu", frame, i);
    }
}

char *payload_wire(spw_context *context, const size_t *sizes, size_t count,
                   unsigned seed, size_t *ret_size)
{
    enum { PIECES = 64 };
    spw_payload *payload;
    spw__message_writer *writer;
    assert_ok(payload_make(context, sizes, count, seed, &payload, NULL));
    assert_ok(spw__message_writer_create(context, payload, &writer, NULL));
    size_t size = (size_t)spw__message_writer_total(writer), filled = 0;
    char *wire = malloc(size);
    assert_non_null(wire);
    while (spw__message_writer_unsent(writer) > 0) {
        struct iovec pieces[PIECES];
        size_t n = spw__message_writer_pieces(writer, pieces, PIECES, size);
        size_t start = filled;
        for (size_t i = 0; i < n; i++) {
            memcpy(wire + filled, pieces[i].iov_base, pieces[i].iov_len);
            filled += pieces[i].iov_len;
        }
        spw__message_writer_advance(writer, filled - start);
    }
    spw__message_writer_free(writer);
    *ret_size = size;
    return wire;
}

static void count_release(void *released)
{
    (*(unsigned *)released)++;
}

spw_status payload_wrap(spw_context *context, void *data, size_t size,
                        unsigned *released, spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    spw_slice slice = {.size = size, .plain_size = size};
    spw_status status = spw_payload_create(context, 1, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_buffer_wrap(context, data, size, true, count_release, released,
                             &slice.buffer, error);
    if (status == SPW_STATUS_OK) /* room for one slice is there: it cannot fail */
        status = spw_payload_append(payload, &slice, error);
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    else
        spw_payload_free(payload);
    return status;
}
