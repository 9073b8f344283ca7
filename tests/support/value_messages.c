#include "value_messages.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "payloads.h"
#include "spillway/stored_ranges.h"
#include "store/store_state.h"
#include "wire_bytes.h"

enum { HEAD_BYTES = 50 };

/* Takes: nothing; size bytes of data are copied. */
static spw_status append(spw_context *context, spw_payload *payload, const void *data,
                         size_t size, spw_error *error)
{
    spw_slice slice = {.flags = SPW_SLICE_WRITEABLE, .size = size, .plain_size = size};
    spw_status status =
        spw_buffer_create(context, size, SPW_CHARGE_HELD, &slice.buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (size > 0)
        memcpy(spw_buffer_data(slice.buffer), data, size);
    status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(slice.buffer);
    return status;
}

/* The n-th frame of a message that is no header. */
static void fill(unsigned char *data, size_t size, unsigned seed, size_t n)
{
    for (size_t i = 0; i < size; i++)
        data[i] = payload_byte(seed, n, i);
}

static spw_status append_made(spw_context *context, spw_payload *payload, size_t size,
                              unsigned seed, size_t n, spw_error *error)
{
    unsigned char *data = malloc(size + 1);
    assert_non_null(data);
    fill(data, size, seed, n);
    spw_status status = append(context, payload, data, size, error);
    free(data);
    return status;
}

static void put_header(wire_bytes *wire, const value_message *message)
{
    size_t shards[64];
    assert_true(message->frames <= COUNT_OF(shards));
    for (size_t i = 0; i < message->frames; i++)
        shards[i] = 1;
    wire_put_sub_header(wire, &(wire_value){.shards = shards,
                                            .buffers = message->frames,
                                            .sub_frames = message->frames});
}

static spw_status append_value(spw_context *context, const value_message *message,
                               size_t value, spw_payload *payload, spw_error *error)
{
    wire_bytes header = {0};
    put_header(&header, message);
    spw_status status = append(context, payload, header.bytes, header.size, error);
    wire_clear(&header);
    for (size_t i = 0; i < message->frames && status == SPW_STATUS_OK; i++)
        status = append_made(context, payload, message->sizes[i], message->seed,
                             value * message->frames + i, error);
    return status;
}

spw_status value_message_make(spw_context *context, const value_message *message,
                              spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    spw_status status = spw_payload_create(context, 0, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = append_made(context, payload, HEAD_BYTES, message->seed, SIZE_MAX, error);
    for (size_t i = 0; i < message->values && status == SPW_STATUS_OK; i++)
        status = append_value(context, message, i, payload, error);
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    else
        spw_payload_free(payload);
    return status;
}

spw_status value_message_value(spw_context *context, const spw_payload *payload,
                               const value_message *message, size_t value,
                               spw_payload **ret_payload, spw_error *error)
{
    size_t first = 1 + value * (1 + message->frames);
    spw_payload *one;
    assert_int_equal(spw_payload_count(payload),
                     1 + message->values * (1 + message->frames));
    spw_status status = spw_payload_create(context, 1 + message->frames, &one, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = first; i <= first + message->frames; i++) {
        spw_slice slice = spw_payload_slices(payload)[i];
        if (slice.kind == SPW_MEMORY_FILE)
            (void)spw_file_ref(slice.file);
        else
            (void)spw_buffer_ref(slice.buffer);
        assert_ok(spw_payload_append(one, &slice, NULL));
    }
    *ret_payload = one;
    return SPW_STATUS_OK;
}

static void check_memory(const spw_payload *read, const value_message *message,
                         size_t value)
{
    const spw_slice *slices = spw_payload_slices(read);
    wire_bytes header = {0};
    put_header(&header, message);
    assert_int_equal(spw_payload_count(read), 1 + message->frames);
    assert_int_equal(slices[0].size, header.size);
    assert_memory_equal(spw_slice_data(&slices[0]), header.bytes, header.size);
    wire_clear(&header);
    for (size_t i = 0; i < message->frames; i++) {
        size_t size = message->sizes[i];
        assert_int_equal(slices[1 + i].size, size);
        unsigned char *expected = malloc(size + 1);
        assert_non_null(expected);
        fill(expected, size, message->seed, value * message->frames + i);
        if (size > 0 && memcmp(expected, spw_slice_data(&slices[1 + i]), size) != 0)
            fail_msg("frame %zu of value %zu is not what was sent", i, value);
        free(expected);
    }
}

spw_status value_message_check(spw_context *context, const spw_payload *payload,
                               const value_message *message, size_t value,
                               spw_error *error)
{
    spw_payload *read;
    spw_status status = spw_payload_read_back(context, payload, &read, error);
    if (status != SPW_STATUS_OK)
        return status;
    check_memory(read, message, value);
    spw_payload_free(read);
    return SPW_STATUS_OK;
}

bool value_message_is_on_disk(const spw_payload *value)
{
    size_t on_disk = 0, frames = 0;
    for (size_t i = 1; i < spw_payload_count(value); i++) {
        const spw_slice *slice = &spw_payload_slices(value)[i];
        frames++;
        if (slice->kind != SPW_MEMORY_FILE)
            continue;
        assert_true((slice->flags & SPW_SLICE_HAS_CHECKSUM) != 0);
        on_disk++;
    }
    assert_true(on_disk == 0 || on_disk == frames);
    return on_disk > 0;
}

/* ----- stores ----- */

static spw_status refuse_pack(void *self, void *object, spw_payload **ret_payload,
                              spw_error *error)
{
    (void)self, (void)object, (void)ret_payload, (void)error;
    fail_msg("what has come was packed");
    return SPW_STATUS_UNSUPPORTED;
}

static spw_status refuse_unpack(void *self, const spw_payload *payload,
                                void **ret_object, spw_error *error)
{
    (void)self, (void)payload, (void)ret_object, (void)error;
    fail_msg("what has come was unpacked");
    return SPW_STATUS_UNSUPPORTED;
}

static void refuse_object(void *self, void *object)
{
    (void)self, (void)object;
    fail_msg("there is no object");
}

static spw_status open_store(torture *t, uint64_t target_bytes, uint64_t limit_bytes,
                             size_t count, unsigned threads, value_store *ret_at)
{
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    spw_store_directory directories[COUNT_OF(ret_at->directories)];
    *ret_at = (value_store){
        .directories = {"/tmp/spillway-values-XXXXXX", "/tmp/spillway-values-XXXXXX"}};
    for (size_t i = 0; i < COUNT_OF(directories); i++) {
        assert_non_null(mkdtemp(ret_at->directories[i]));
        directories[i] = (spw_store_directory){ret_at->directories[i], limit_bytes};
    }
    options.ops =
        (spw_object_ops){refuse_pack, refuse_unpack, refuse_object, refuse_object};
    options.directories = directories;
    options.directory_count = count;
    options.target_bytes = target_bytes;
    return spw__store_create(t->context, &options, threads, &ret_at->store, &t->error);
}

spw_status value_store_open(torture *t, uint64_t target_bytes, uint64_t limit_bytes,
                            value_store *ret_at)
{
    return open_store(t, target_bytes, limit_bytes, 1, 2, ret_at);
}

spw_status value_store_open_with_two(torture *t, uint64_t target_bytes,
                                     value_store *ret_at)
{
    return open_store(t, target_bytes, 0, 2, 2, ret_at);
}

spw_status value_store_open_stepped(torture *t, uint64_t target_bytes,
                                    value_store *ret_at)
{
    return open_store(t, target_bytes, 0, 1, 0, ret_at);
}

void value_store_close(value_store *at)
{
    if (at->store != NULL)
        spw_store_close(at->store);
    spw_store_free(at->store);
    at->store = NULL;
    for (size_t i = 0; i < COUNT_OF(at->directories); i++)
        assert_int_equal(rmdir(at->directories[i]), 0);
}

spw_store_figures value_store_figures(const value_store *at)
{
    spw_store_figures figures;
    spw_store_read_figures(at->store, &figures);
    return figures;
}

void value_store_wait_for_space(const value_store *at, uint64_t bytes)
{
    while (value_store_figures(at).disk_bytes > bytes)
        (void)sched_yield();
}
