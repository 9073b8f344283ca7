/* The same-host side of a connection: how it begins, and how it ends. In between,
 * connection_announce.c and connection_fetch.c. */
#include "transport/connection_host.h"

#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "transport/connection_host_state.h"

static spw_status check_meeting(spw_connection *connection, const char *peer_path,
                                spw_error *error)
{
    if (connection->phase == CONNECTION_ENDED)
        return spw__connection_tell_end(connection, error);
    if (connection->completions == NULL || connection->host != NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a connection meets its peer once, and only if it has "
                              "completions");
    if (peer_path == NULL || strlen(peer_path) >= SPW__UNIX_PATH_BYTES)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "the peer's path is none of a socket");
    return SPW_STATUS_OK;
}

spw_status spw_connection_meet(spw_connection *connection, spw_meetings *meetings,
                               const uint8_t own_nonce[SPW_NONCE_BYTES],
                               const char *peer_path,
                               const uint8_t peer_nonce[SPW_NONCE_BYTES],
                               spw_error *error)
{
    spw_status status = check_meeting(connection, peer_path, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__connection_host *host = spw__allocate(connection->context, sizeof *host,
                                               _Alignof(spw__connection_host));
    if (host == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory to meet the peer");
    *host = (spw__connection_host){
        .meetings = meetings,
        .uses_descriptors = spw__meetings_use_descriptors(meetings),
    };
    memcpy(host->peer_path, peer_path, strlen(peer_path) + 1);
    memcpy(host->peer_nonce, peer_nonce, SPW_NONCE_BYTES);
    memcpy(host->expected.nonce, own_nonce, SPW_NONCE_BYTES);
    host->sender_watch.reading =
        (spw__task){.step = spw__connection_announce_step, .subject = connection};
    host->receiver_watch.reading =
        (spw__task){.step = spw__connection_receive_step, .subject = connection};
    host->receiver_watch.writing =
        (spw__task){.step = spw__connection_aside_step, .subject = connection};
    /* No reference comes before the peer has met us, so a thread that receives by the
     * stream need not be disturbed. */
    connection->host = host;
    spw__message_reader_allow_references(connection->reader);
    spw__meetings_add(meetings, connection);
    return SPW_STATUS_OK;
}

spw__expected *spw__connection_expected(spw_connection *connection)
{
    return &connection->host->expected;
}

void spw__connection_end_host(spw_connection *connection)
{
    spw__connection_call_home(connection, &connection->announcing);
    if (connection->host == NULL)
        return;
    spw__connection_stop_saying(connection);
    spw__meetings_remove(connection);
    /* Before anything that was announced is let go of. */
    if (connection->host->sender != NULL)
        spw__host_sender_shutdown(connection->host->sender);
}

void spw__connection_reap_host(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    if (host == NULL || host->sender == NULL || connection->announcing.is_away)
        return;
    spw__host_announcement_free(spw__host_sender_take_done(host->sender));
    spw__connection_keep_announcing(connection);
}

void spw__connection_forget_host(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    if (host == NULL)
        return;
    spw__watch_forget(&host->sender_watch);
    spw__watch_forget(&host->receiver_watch);
    spw__host_receiver_free(host->receiver);
    host->receiver = NULL;
    if (host->sender != NULL)
        spw__host_sender_let_go(host->sender);
}

void spw__connection_free_host(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    if (host == NULL)
        return;
    connection->host = NULL;
    spw__host_sender_free(host->sender);
    spw__release(connection->context, host, sizeof *host,
                 _Alignof(spw__connection_host));
}

void spw__connection_abandon_sender(spw_connection *connection)
{
    connection->host->sender = NULL;
}

void spw__connection_abandon_receiver(spw_connection *connection)
{
    if (connection->host != NULL)
        connection->host->receiver = NULL;
}
