/* Bodies that go by reference: when they do, and how the owner hears what the peer has
 * taken. The link to the peer is a third direction, announcing, which is away as long
 * as something is announced. */
#include <string.h>

#include "context/error.h"
#include "context/figures.h"
#include "transport/connection_host_state.h"

/* Have a thread deal with the side channel as long as the peer has something to say.
 * Returns: false when there is none for that. */
static bool go_announce(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    if (connection->announcing.is_away)
        return true; /* and what would be asked for below is a thread's */
    unsigned wants = spw__host_sender_interest(host->sender);
    bool is_over = spw__host_sender_way(host->sender) != SPW__HOST_MEETING &&
                   spw__host_sender_announced_bytes(host->sender) == 0;
    return wants == 0 || is_over ||
           spw__connection_go_by(connection, &connection->announcing,
                                 &host->sender_watch, &host->sender_watch.reading,
                                 spw__host_sender_descriptor(host->sender), wants);
}

/* The same once something may be announced, which would stay so for ever if nobody
 * heard what the peer says. */
void spw__connection_keep_announcing(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    spw_error why;
    if (connection->phase != CONNECTION_OPEN || host == NULL || host->sender == NULL ||
        go_announce(connection) || spw__host_sender_announced_bytes(host->sender) == 0)
        return;
    (void)spw__error_set(&why, SPW_STATUS_IO, 0, "no thread can hear what %s has taken",
                         connection->peer_host);
    spw__connection_end(connection, &why);
}

spw__step_answer spw__connection_announce_step(spw__task *task)
{
    spw_connection *connection = task->subject;
    spw__host_sender *sender = connection->host->sender;
    spw_error why;
    uint64_t before = spw__host_sender_announced_bytes(sender);
    bool had_given_up = spw__host_sender_has_given_up(sender);
    spw_status status = spw__host_sender_drive(sender, &why);
    if (!had_given_up && spw__host_sender_has_given_up(sender))
        spw__meetings_tell(connection->host->meetings, spw__host_sender_reason(sender));
    if (status != SPW_STATUS_OK) {
        connection->announcing.fault = why;
        return SPW__STEP_DONE;
    }
    /* What was taken is let go of at home, where release callbacks may run. */
    uint64_t after = spw__host_sender_announced_bytes(sender);
    bool is_over = after == 0 && spw__host_sender_way(sender) != SPW__HOST_MEETING;
    if (after < before || is_over)
        return SPW__STEP_DONE;
    return (spw__step_answer)spw__host_sender_interest(sender);
}

/* Go to where the peer waits. What keeps us from it is no fault of the connection. */
static void go_and_meet(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    spw__host_sender_options options = {.path = host->peer_path,
                                        .uses_descriptors = host->uses_descriptors};
    memcpy(options.nonce, host->peer_nonce, sizeof options.nonce);
    spw_error why;
    spw_status status =
        spw__host_sender_create(connection->context, &options, &host->sender, &why);
    if (status == SPW_STATUS_OK && !go_announce(connection)) {
        spw__host_sender_free(host->sender);
        host->sender = NULL;
        status = spw__error_set(&why, SPW_STATUS_UNSUPPORTED, 0,
                                "no thread can hear what the peer says");
    }
    host->is_refused = status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN;
    if (!host->is_refused)
        return;
    /* The same reason for every peer of which it is true. */
    if (why.os_errno != 0)
        (void)spw__error_set(&why, status, why.os_errno,
                             "the peer's place to meet cannot be reached");
    spw__meetings_tell(host->meetings, &why);
}

/* Whether a thread is to be asked for the sender. */
static bool has_large(const spw_payload *payload)
{
    spw__message_references references = {.from_bytes = SPW__HOST_FROM_BYTES};
    return spw__host_announcement_count(payload, &references) > 0;
}

spw_status spw__connection_lay_out(spw_connection *connection, spw_payload *payload,
                                   spw__message_writer **ret_writer,
                                   spw__host_announcement **ret_announcement,
                                   spw_error *error)
{
    spw__connection_host *host = connection->host;
    *ret_announcement = NULL;
    if (host != NULL && !host->is_refused && has_large(payload) &&
        connection->phase == CONNECTION_OPEN) {
        spw__connection_call_home(connection, &connection->announcing);
        if (connection->phase == CONNECTION_ENDED)
            return spw__connection_tell_end(connection, error);
        if (host->sender == NULL)
            go_and_meet(connection);
        else if (spw__host_sender_wants(host->sender, payload))
            return spw__host_sender_write(host->sender, payload, ret_writer,
                                          ret_announcement, error);
        else
            (void)go_announce(connection); /* else the next large message does */
    }
    return spw__message_writer_create(connection->context, payload, ret_writer, error);
}

void spw__connection_announced(spw_connection *connection,
                               spw__host_announcement *announcement)
{
    spw__count(connection->context, SPW__FIGURE_BYTES_SENT, announcement->bytes);
    spw__count(connection->context, SPW__FIGURE_HOST_BYTES_SENT, announcement->bytes);
    spw__host_sender_announce(connection->host->sender, announcement);
    spw__connection_keep_announcing(connection);
}

uint64_t spw__connection_announced_bytes(const spw_connection *connection)
{
    const spw__connection_host *host = connection->host;
    return host != NULL && host->sender != NULL
               ? spw__host_sender_announced_bytes(host->sender)
               : 0;
}
