/* Fuzz target: what a disk may make of a value. A payload, whose slices follow from the
 * input, is put into a store, compressed or not, and written; then the input writes
 * over bytes of its file and cuts it. What comes back is either what was put in, or an
 * error: never anything else, and nothing stays charged or open. The input is: how
 * (codec, and the number of slices), a size in two bytes for each slice, and then
 * changes: an offset in three bytes and a byte to be put there; the last bytes, if
 * fewer, say where to cut. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/byte_reader.h"
#include "spillway/spillway.h"

enum { SLICES_MAX = 8 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static uint8_t byte_at(size_t slice, size_t place)
{
    return (uint8_t)(slice * 101 + place / 3);
}

static char directory[] = "/tmp/spw-fuzz-XXXXXX";
static bool is_made;

static void remove_directory(void)
{
    rmdir(directory);
}

/* ----- objects: there are none, but for a sign that unpacking went well ----- */

static char object;

static spw_status pack(void *self, void *given, spw_payload **ret_payload,
                       spw_error *error)
{
    (void)self, (void)given, (void)ret_payload, (void)error;
    abort(); /* it is put in packed */
}

static spw_status unpack(void *self, const spw_payload *payload, void **ret_object,
                         spw_error *error)
{
    const uint64_t *sizes = self;
    (void)error;
    require(spw_payload_count(payload) == sizes[0]);
    for (size_t i = 0; i < sizes[0]; i++) {
        const spw_slice *slice = &spw_payload_slices(payload)[i];
        require(slice->kind == SPW_MEMORY_HOST && slice->size == sizes[i + 1]);
        const uint8_t *bytes = spw_slice_data(slice);
        for (size_t j = 0; j < slice->size; j++)
            require(bytes[j] == byte_at(i, j));
    }
    *ret_object = &object;
    return SPW_STATUS_OK;
}

static void nothing(void *self, void *given)
{
    (void)self, (void)given;
}

static spw_payload *make_payload(spw_context *context, const uint64_t *sizes)
{
    spw_payload *payload;
    require(spw_payload_create(context, sizes[0], &payload, NULL) == SPW_STATUS_OK);
    for (size_t i = 0; i < sizes[0]; i++) {
        spw_slice slice = {.size = sizes[i + 1], .plain_size = sizes[i + 1]};
        require(spw_buffer_create(context, slice.size, SPW_CHARGE_HELD, &slice.buffer,
                                  NULL) == SPW_STATUS_OK);
        uint8_t *bytes = spw_buffer_data(slice.buffer);
        for (size_t j = 0; j < slice.size; j++)
            bytes[j] = byte_at(i, j);
        require(spw_payload_append(payload, &slice, NULL) == SPW_STATUS_OK);
    }
    return payload;
}

/* Do to the file what the input says. */
static void spoil(spw_entry *entry, spw__byte_reader *input)
{
    spw_payload *payload;
    require(spw_entry_payload(entry, &payload, NULL) == SPW_STATUS_OK);
    const spw_slice *slices = spw_payload_slices(payload);
    int file = spw_file_descriptor(slices[0].file);
    uint64_t offset, value;
    while (spw__byte_reader_le(input, 3, &offset) &&
           spw__byte_reader_le(input, 1, &value)) {
        uint8_t byte = (uint8_t)value;
        require(pwrite(file, &byte, 1, (off_t)(slices[0].offset + offset)) == 1);
    }
    if (input->next < input->end)
        require(ftruncate(file, (off_t)(slices[0].offset + *input->next)) == 0);
    spw_payload_free(payload);
}

static void run(spw_context *context, spw_store *store, const uint64_t *sizes,
                spw__byte_reader *input)
{
    spw_entry *entry;
    void *unpacked;
    require(spw_store_put_packed(store, "fuzz", 4, make_payload(context, sizes), 1,
                                 &entry, NULL) == SPW_STATUS_OK);
    require(spw_entry_spill(entry, NULL) == SPW_STATUS_OK);
    spoil(entry, input);
    spw_status status = spw_entry_acquire(entry, &unpacked, NULL);
    require(status == SPW_STATUS_OK || status == SPW_STATUS_CORRUPT);
    if (status == SPW_STATUS_OK)
        spw_entry_unpin(entry);
    else
        require(spw_entry_forms(entry) == SPW_ENTRY_LOST);
    spw_store_remove(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const spw_codec_id CODECS[] = {SPW_CODEC_NONE, SPW_CODEC_LZ4,
                                          SPW_CODEC_ZSTD};
    uint64_t sizes[SLICES_MAX + 1];
    if (size == 0)
        return 0;
    if (!is_made) {
        require(mkdtemp(directory) != NULL);
        atexit(remove_directory);
        is_made = true;
    }
    spw__byte_reader input = spw__byte_reader_over(data + 1, size - 1);
    sizes[0] = 1 + data[0] / 4 % SLICES_MAX;
    for (size_t i = 1; i <= sizes[0]; i++)
        if (!spw__byte_reader_le(&input, 2, &sizes[i]))
            sizes[i] = 0;
    spw_budget *budget;
    spw_context *context;
    spw_store *store;
    require(spw_budget_create(0, &budget, NULL) == SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    require(spw_context_create(&options, &context, NULL) == SPW_STATUS_OK);
    spw_store_directory in = {.path = directory};
    spw_store_options how = SPW_STORE_OPTIONS_INIT;
    how.ops = (spw_object_ops){
        .pack = pack, .unpack = unpack, .ref = nothing, .unref = nothing};
    how.self = sizes;
    how.directories = &in;
    how.directory_count = 1;
    how.threads = 1;
    how.codec = (uint32_t)CODECS[data[0] % 4 % 3];
    require(spw_store_create(context, &how, &store, NULL) == SPW_STATUS_OK);
    run(context, store, sizes, &input);
    spw_store_free(store);
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    for (int i = 0; i < SPW_CHARGE_POOLED; i++)
        require(figures.used_bytes[i] == 0);
    require(figures.used_bytes[SPW_CHARGE_SPILLING] == 0);
    spw_context_unref(context);
    spw_budget_free(budget);
    return 0;
}
