/* The bodies of one message that go by reference, kept as they are until the receiver
 * has them. See host_link.h. */
#ifndef SPW_TRANSPORT_HOST_ANNOUNCEMENT_H
#define SPW_TRANSPORT_HOST_ANNOUNCEMENT_H

#include "framing/message_writer.h"

typedef struct spw__host_body {
    spw_buffer *buffer; /* one reference */
    const char *data;
    uint64_t size;
} spw__host_body;

/* A list of them is linked through next. */
typedef struct spw__host_announcement {
    spw_context *context; /* one reference */
    struct spw__host_announcement *next;
    uint64_t number; /* of the first body, counted over the link */
    uint64_t bytes;
    bool is_charged; /* bytes are QUEUED in the budget */
    size_t count;
    spw__host_body bodies[];
} spw__host_announcement;

/* How many frames of payload references has. */
size_t spw__host_announcement_count(const spw_payload *payload,
                                    const spw__message_references *references);
/* Take note of them, with a reference to each buffer. Borrows: payload.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED. */
spw_status spw__host_announcement_create(spw_context *context,
                                         const spw_payload *payload,
                                         const spw__message_references *references,
                                         spw__host_announcement **ret_announcement,
                                         spw_error *error);
/* Give the charge back, if there is one. Thread: any. */
void spw__host_announcement_uncharge(spw__host_announcement *announcement);
/* Takes: announcement (NULL allowed) with all that follow it. Release callbacks run.
 * Thread: any. */
void spw__host_announcement_free(spw__host_announcement *announcement);

#endif
