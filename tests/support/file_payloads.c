#include "file_payloads.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory/checksum.h"
#include "payloads.h"
#include "testing.h"

enum { GAP_BYTES = 37 };

int file_open(void)
{
    char name[] = "/tmp/spillway-test-XXXXXX";
    int descriptor = mkstemp(name);
    assert_true(descriptor >= 0);
    assert_int_equal(unlink(name), 0);
    return descriptor;
}

unsigned file_count_descriptors(void)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void write_at(int descriptor, uint64_t offset, const void *data, size_t size)
{
    if (size > 0)
        assert_int_equal(pwrite(descriptor, data, size, (off_t)offset), size);
}

/* Write the frames in question to the file. */
static void fill(int descriptor, const spw_payload *plain, uint64_t in_file)
{
    const spw_slice *slices = spw_payload_slices(plain);
    uint64_t offset = GAP_BYTES;
    for (size_t i = 0; i < spw_payload_count(plain); i++) {
        if ((in_file >> i & 1) == 0)
            continue;
        write_at(descriptor, offset, spw_slice_data(&slices[i]),
                 (size_t)slices[i].size);
        offset += slices[i].size + GAP_BYTES;
    }
}

static void append(spw_payload *payload, const spw_payload *plain, uint64_t in_file,
                   spw_file *file)
{
    uint64_t offset = GAP_BYTES;
    for (size_t i = 0; i < spw_payload_count(plain); i++) {
        spw_slice slice = spw_payload_slices(plain)[i];
        if ((in_file >> i & 1) != 0) {
            slice.kind = SPW_MEMORY_FILE;
            slice.file = spw_file_ref(file);
            slice.offset = offset;
            offset += slice.size + GAP_BYTES;
        } else {
            spw_buffer_ref(slice.buffer);
        }
        assert_ok(spw_payload_append(payload, &slice, NULL));
    }
}

spw_status payload_make_in_file(spw_context *context, const size_t *sizes, size_t count,
                                uint64_t in_file, unsigned seed,
                                spw_payload **ret_payload, spw_error *error)
{
    spw_payload *plain = NULL, *payload = NULL;
    spw_file *file = NULL;
    int descriptor = -1;
    spw_status status = payload_make(context, sizes, count, seed, &plain, error);
    if (status != SPW_STATUS_OK)
        return status;
    descriptor = file_open();
    fill(descriptor, plain, in_file);
    status = spw_file_adopt(context, descriptor, &file, error);
    if (status != SPW_STATUS_OK) {
        close(descriptor);
        goto end;
    }
    status = spw_payload_create(context, count, &payload, error);
    if (status != SPW_STATUS_OK)
        goto end;
    append(payload, plain, in_file, file);
    *ret_payload = payload;
end:
    spw_file_unref(file);
    spw_payload_free(plain);
    return status;
}

/* The checksum of what is in the file. */
static uint64_t checksum_of(const spw_slice *slice)
{
    static char bytes[4 << 20];
    assert_true(slice->size <= sizeof bytes);
    assert_int_equal(pread(spw_file_descriptor(slice->file), bytes, slice->size,
                           (off_t)slice->offset),
                     slice->size);
    return spw__checksum(bytes, slice->size);
}

spw_status payload_make_stored(spw_context *context, const size_t *sizes, size_t count,
                               unsigned seed, spw_payload **ret_payload,
                               spw_error *error)
{
    spw_payload *plain = NULL, *payload = NULL;
    spw_status status =
        payload_make_in_file(context, sizes, count, UINT64_MAX, seed, &plain, error);
    if (status == SPW_STATUS_OK)
        status = spw_payload_create(context, count, &payload, error);
    for (size_t i = 0; i < count && status == SPW_STATUS_OK; i++) {
        spw_slice slice = spw_payload_slices(plain)[i];
        slice.checksum = checksum_of(&slice);
        slice.flags |= SPW_SLICE_HAS_CHECKSUM;
        (void)spw_file_ref(slice.file);
        /* It was made with room for all of them. */
        assert_ok(spw_payload_append(payload, &slice, NULL));
    }
    spw_payload_free(plain);
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    return status;
}

spw_status payload_make_stored_at(spw_context *context, uint64_t offset, size_t size,
                                  unsigned seed, spw_payload **ret_payload,
                                  spw_error *error)
{
    spw_payload *payload;
    spw_status status = payload_make_stored(context, &size, 1, seed, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    /* What is there is moved, and the slice with it. */
    spw_slice slice = spw_payload_slices(payload)[0];
    int descriptor = spw_file_descriptor(slice.file);
    char bytes[4096];
    assert_true(size <= sizeof bytes);
    assert_int_equal(pread(descriptor, bytes, size, (off_t)slice.offset), size);
    write_at(descriptor, offset, bytes, size);
    slice.offset = offset;
    (void)spw_file_ref(slice.file);
    spw_payload_free(payload);
    status = spw_payload_create(context, 1, &payload, error);
    if (status != SPW_STATUS_OK) {
        spw_file_unref(slice.file);
        return status;
    }
    assert_ok(spw_payload_append(payload, &slice, NULL));
    *ret_payload = payload;
    return SPW_STATUS_OK;
}

void payload_cut_file(const spw_payload *payload, size_t frame, uint64_t kept)
{
    const spw_slice *slice = &spw_payload_slices(payload)[frame];
    assert_int_equal(slice->kind, SPW_MEMORY_FILE);
    assert_int_equal(
        ftruncate(spw_file_descriptor(slice->file), (off_t)(slice->offset + kept)), 0);
}
