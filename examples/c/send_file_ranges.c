/* A payload whose frames are ranges of a file: they go from the system's cache to the
 * socket by sendfile, on a thread of the library, and are never in this process's
 * memory. What the peer receives is a message as any other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "example_peer.h"

enum { FILE_BYTES = 32 << 20, BLOCK_BYTES = 1 << 20 };

/* What is sent of it, in this order; the second is only a few bytes. */
static const struct {
    uint64_t offset, size;
} RANGES[] = {{16 << 20, 16 << 20}, {1000, 12}, {0, 4 << 20}};
enum { RANGE_COUNT = sizeof RANGES / sizeof RANGES[0] };

static const char TITLE[] = "three ranges of a file";

static unsigned char byte_at(uint64_t place)
{
    return (unsigned char)(place * 7 + (place >> 10));
}

static spw_status fail(spw_error *error, spw_status status, int os_errno,
                       const char *what)
{
    *error = (spw_error){.status = status, .os_errno = os_errno};
    snprintf(error->message, sizeof error->message, "%s%s%s", what,
             os_errno != 0 ? ": " : "", os_errno != 0 ? strerror(os_errno) : "");
    return status;
}

/* ---- sending ---- */

static int write_all(int descriptor)
{
    static unsigned char block[BLOCK_BYTES];
    for (uint64_t place = 0; place < FILE_BYTES; place += sizeof block) {
        for (size_t i = 0; i < sizeof block; i++)
            block[i] = byte_at(place + i);
        if (write(descriptor, block, sizeof block) != (ssize_t)sizeof block)
            return -1;
    }
    return 0;
}

/* Make the file, which is gone from the disk as soon as nobody has it open. */
static spw_status make_file(peer *self, spw_file **ret_file, spw_error *error)
{
    char name[] = "/tmp/spillway-example-XXXXXX";
    int descriptor = mkstemp(name);
    if (descriptor < 0)
        return fail(error, SPW_STATUS_IO, errno, "cannot make a file in /tmp");
    spw_status status = SPW_STATUS_OK;
    if (unlink(name) < 0 || write_all(descriptor) < 0)
        status = fail(error, SPW_STATUS_IO, errno, "cannot write a file in /tmp");
    if (status == SPW_STATUS_OK)
        status = spw_file_adopt(self->context, descriptor, ret_file, error);
    if (status != SPW_STATUS_OK)
        close(descriptor); /* it was not taken */
    return status;
}

static spw_status make_payload(peer *self, spw_file *file, spw_payload **ret_payload,
                               spw_error *error)
{
    spw_payload *payload;
    spw_status status =
        spw_payload_create(self->context, 1 + RANGE_COUNT, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = append_copy(self, payload, TITLE, sizeof TITLE, error);
    for (size_t i = 0; status == SPW_STATUS_OK && i < RANGE_COUNT; i++) {
        spw_slice slice = {.kind = SPW_MEMORY_FILE,
                           .file = spw_file_ref(file),
                           .offset = RANGES[i].offset,
                           .size = RANGES[i].size,
                           .plain_size = RANGES[i].size};
        status = spw_payload_append(payload, &slice, error);
        if (status != SPW_STATUS_OK)
            spw_file_unref(slice.file);
    }
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    else
        spw_payload_free(payload);
    return status;
}

static spw_status listening(peer *self, int port, spw_error *error)
{
    spw_file *file = NULL;
    spw_payload *payload = NULL, *thanks = NULL;
    spw_budget_figures figures;
    spw_status status = make_file(self, &file, error);
    if (status == SPW_STATUS_OK)
        status = peer_accept(self, port, error);
    if (status == SPW_STATUS_OK)
        status = make_payload(self, file, &payload, error);
    if (status != SPW_STATUS_OK)
        goto end;
    status = peer_send(self, payload, error);
    if (status != SPW_STATUS_OK)
        goto end;
    /* If the file were shorter than a range of it, or could not be read, the connection
     * would end here, and the error would say why. */
    status = peer_receive(self, &thanks, error);
    if (status != SPW_STATUS_OK)
        goto end;
    spw_budget_read(self->budget, &figures);
    printf("Sent 20 MiB of a file, and never had more than %llu bytes of memory\n",
           (unsigned long long)figures.peak_bytes);
end:
    spw_payload_free(thanks);
    spw_file_unref(file);
    return status;
}

/* ---- receiving ---- */

static spw_status check(const spw_payload *payload, spw_error *error)
{
    const spw_slice *frames = spw_payload_slices(payload);
    if (spw_payload_count(payload) != 1 + RANGE_COUNT)
        return fail(error, SPW_STATUS_PROTOCOL, 0, "another message was expected");
    for (size_t i = 0; i < RANGE_COUNT; i++) {
        const unsigned char *data = spw_slice_data(&frames[1 + i]);
        if (frames[1 + i].size != RANGES[i].size)
            return fail(error, SPW_STATUS_PROTOCOL, 0, "a range has another size");
        for (uint64_t place = 0; place < RANGES[i].size; place++)
            if (data[place] != byte_at(RANGES[i].offset + place))
                return fail(error, SPW_STATUS_CORRUPT, 0, "a range arrived as another");
    }
    return SPW_STATUS_OK;
}

static spw_status connecting(peer *self, int port, spw_error *error)
{
    spw_payload *payload = NULL, *thanks;
    spw_status status = peer_connect(self, port, error);
    if (status == SPW_STATUS_OK)
        status = peer_receive(self, &payload, error);
    if (status == SPW_STATUS_OK)
        status = check(payload, error);
    if (status == SPW_STATUS_OK)
        status = spw_payload_create(self->context, 1, &thanks, error);
    if (status != SPW_STATUS_OK)
        goto end;
    status = append_copy(self, thanks, "thanks", 7, error);
    if (status == SPW_STATUS_OK)
        status = peer_send(self, thanks, error);
    else
        spw_payload_free(thanks);
    if (status == SPW_STATUS_OK)
        status = peer_flush(self, error);
    if (status == SPW_STATUS_OK)
        printf("Received %llu MiB, and it is what the file has\n",
               (unsigned long long)(spw_payload_bytes(payload) >> 20));
end:
    spw_payload_free(payload);
    return status;
}

int main(void)
{
    return run_two(listening, connecting);
}
