/* Announcements. Invariant: bytes is the sum of the bodies' sizes. */
#include "transport/host_announcement.h"

#include "context/allocate.h"
#include "context/error.h"

static size_t bytes_of(size_t count)
{
    return sizeof(spw__host_announcement) + count * sizeof(spw__host_body);
}

size_t spw__host_announcement_count(const spw_payload *payload,
                                    const spw__message_references *references)
{
    const spw_slice *slices = spw_payload_slices(payload);
    size_t count = 0;
    for (size_t i = 0; i < spw_payload_count(payload); i++)
        count += spw__message_references_has(references, &slices[i]);
    return count;
}

spw_status spw__host_announcement_create(spw_context *context,
                                         const spw_payload *payload,
                                         const spw__message_references *references,
                                         spw__host_announcement **ret_announcement,
                                         spw_error *error)
{
    size_t count = spw__host_announcement_count(payload, references);
    spw__host_announcement *announcement =
        spw__allocate(context, bytes_of(count), _Alignof(spw__host_announcement));
    if (announcement == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory to announce %zu bodies", count);
    *announcement = (spw__host_announcement){.context = spw_context_ref(context)};
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < spw_payload_count(payload); i++) {
        if (!spw__message_references_has(references, &slices[i]))
            continue;
        announcement->bodies[announcement->count++] =
            (spw__host_body){.buffer = spw_buffer_ref(slices[i].buffer),
                             .data = spw_slice_data(&slices[i]),
                             .size = slices[i].size};
        announcement->bytes += slices[i].size;
    }
    spw_status status = spw_budget_charge(
        spw_context_budget(context), SPW_CHARGE_QUEUED, announcement->bytes, error);
    if (status != SPW_STATUS_OK) {
        spw__host_announcement_free(announcement);
        return status;
    }
    announcement->is_charged = true;
    *ret_announcement = announcement;
    return SPW_STATUS_OK;
}

void spw__host_announcement_uncharge(spw__host_announcement *announcement)
{
    if (announcement->is_charged)
        spw_budget_release(spw_context_budget(announcement->context), SPW_CHARGE_QUEUED,
                           announcement->bytes);
    announcement->is_charged = false;
}

void spw__host_announcement_free(spw__host_announcement *announcement)
{
    while (announcement != NULL) {
        spw__host_announcement *next = announcement->next;
        spw_context *context = announcement->context;
        spw__host_announcement_uncharge(announcement);
        for (size_t i = 0; i < announcement->count; i++)
            spw_buffer_unref(announcement->bodies[i].buffer);
        spw__release(context, announcement, bytes_of(announcement->count),
                     _Alignof(spw__host_announcement));
        spw_context_unref(context);
        announcement = next;
    }
}
