/* Parts of one buffer become one slice again: without a copy where they still lie side
 * by side, as those of a received message do, and with one copy, if that is asked for,
 * where they do not. What only touches by chance is never taken for one buffer. */
#include <stdio.h>
#include <string.h>

#include "example_peer.h"

enum { PART_BYTES = 4096, PART_COUNT = 4 };

static spw_status fail(spw_error *error, const char *what)
{
    *error = (spw_error){.status = SPW_STATUS_CORRUPT};
    snprintf(error->message, sizeof error->message, "%s", what);
    return SPW_STATUS_CORRUPT;
}

/* A payload of all parts of a buffer, of which from and to have changed places. */
static spw_status make_parts(peer *self, spw_buffer *buffer, size_t from, size_t to,
                             spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    spw_status status = spw_payload_create(self->context, PART_COUNT, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; status == SPW_STATUS_OK && i < PART_COUNT; i++) {
        size_t part = i == from ? to : i == to ? from : i;
        spw_slice slice = {.buffer = spw_buffer_ref(buffer),
                           .offset = part * PART_BYTES,
                           .size = PART_BYTES,
                           .plain_size = PART_BYTES};
        status = spw_payload_append(payload, &slice, error);
        if (status != SPW_STATUS_OK)
            spw_buffer_unref(slice.buffer);
    }
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    else
        spw_payload_free(payload);
    return status;
}

static spw_status merge_neighbours(peer *self, spw_buffer *buffer, spw_error *error)
{
    spw_payload *payload;
    spw_slice merged;
    spw_status status = make_parts(self, buffer, 0, 0, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_payload_merge(payload, SPW_MERGE_NEVER, &merged, error);
    spw_payload_free(payload); /* what was merged has a reference of its own */
    if (status != SPW_STATUS_OK)
        return status;
    if (spw_slice_data(&merged) != spw_buffer_data(buffer))
        status = fail(error, "neighbours were copied");
    else
        printf("%d neighbours: one slice of %llu bytes, where they were\n", PART_COUNT,
               (unsigned long long)merged.size);
    spw_buffer_unref(merged.buffer);
    return status;
}

static spw_status merge_others(peer *self, spw_buffer *buffer, spw_error *error)
{
    spw_payload *payload;
    spw_slice merged;
    spw_error why;
    spw_status status = make_parts(self, buffer, 1, 2, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_payload_merge(payload, SPW_MERGE_NEVER, &merged, &why);
    if (status == SPW_STATUS_OK) {
        spw_buffer_unref(merged.buffer);
        status = fail(error, "parts that are no neighbours were merged");
        goto end;
    }
    printf("Parts that are no neighbours: %s\n", why.message);
    status = spw_payload_merge(payload, SPW_MERGE_IF_NEEDED, &merged, error);
    if (status != SPW_STATUS_OK)
        goto end;
    const char *first = spw_buffer_data(buffer), *second = spw_slice_data(&merged);
    if (memcmp(second + PART_BYTES, first + 2 * PART_BYTES, PART_BYTES) != 0)
        status = fail(error, "the copy is of something else");
    else
        printf("With a copy: one slice of %llu bytes, elsewhere\n",
               (unsigned long long)merged.size);
    spw_buffer_unref(merged.buffer);
end:
    spw_payload_free(payload);
    return status;
}

int main(void)
{
    peer self = {0};
    spw_error error;
    spw_buffer *buffer = NULL;
    spw_status status = peer_open(&self, &error);
    if (status == SPW_STATUS_OK)
        status = spw_buffer_create(self.context, PART_COUNT * PART_BYTES,
                                   SPW_CHARGE_HELD, &buffer, &error);
    if (status == SPW_STATUS_OK) {
        char *data = spw_buffer_data(buffer);
        for (size_t i = 0; i < PART_COUNT * PART_BYTES; i++)
            data[i] = (char)(i / PART_BYTES);
        status = merge_neighbours(&self, buffer, &error);
    }
    if (status == SPW_STATUS_OK)
        status = merge_others(&self, buffer, &error);
    if (status != SPW_STATUS_OK)
        fprintf(stderr, "%s (%s)\n", error.message, spw_status_name(status));
    spw_buffer_unref(buffer);
    peer_close(&self);
    return status == SPW_STATUS_OK ? 0 : 1;
}
