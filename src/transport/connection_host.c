/* The same-host side of a connection: when bodies go by reference, and which thread
 * deals with the side channels. The one to the peer is a third direction, announcing,
 * which is away as long as something is announced; the one from the peer belongs to
 * receiving, which goes away by its descriptor while a body comes that way. */
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "transport/connection_state.h"

/* One call brings so much: a few milliseconds, as long as the owner waits for a
 * direction that it calls home. */
static const size_t FETCH_BYTES = (size_t)16 << 20;
/* Of one message on the owner's thread: 0.2 to 0.4 ms. */
static const uint64_t INLINE_BYTES = (uint64_t)2 << 20;

typedef struct spw__connection_host {
    /* Of the owner. */
    spw_meetings *meetings; /* borrowed */
    spw__expected expected;
    char peer_path[SPW__UNIX_PATH_BYTES];
    uint8_t peer_nonce[SPW_NONCE_BYTES];
    bool uses_descriptors;
    bool is_refused; /* nobody is there to be met */
    /* Of announcing. */
    spw__host_sender *sender; /* NULL: not met yet */
    spw__watch sender_watch;
    /* Of receiving. */
    _Atomic(spw__host_receiver *)
        receiver; /* NULL: it has not come; set by the owner */
    /* Its reading task is the one by which receiving goes; the other reads half of a
     * large piece meanwhile, or, while receiving is home, says what could not be said
     * when it was due. */
    spw__watch receiver_watch;
    bool is_saying; /* the latter */
    void (*half)(void *argument);
    void *half_argument;
} spw__connection_host;

/* ---- sending ---- */

static spw__step_answer announce_step(spw__task *task);

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

static spw__step_answer announce_step(spw__task *task)
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

/* ---- receiving ---- */

static bool has_to_say(const spw__connection_host *host)
{
    return (spw__host_receiver_interest(host->receiver) & SPW__HOST_WRITE) != 0;
}

static spw__step_answer aside_step(spw__task *task)
{
    spw_connection *connection = task->subject;
    spw__connection_host *host = connection->host;
    if (host->half == NULL) {
        /* If the link has broken, whoever fetches by it next is told. */
        (void)!spw__host_receiver_drive(host->receiver, NULL);
        return has_to_say(host) ? SPW__STEP_WRITE : SPW__STEP_NOBODY;
    }
    host->half(host->half_argument);
    host->half = NULL;
    return SPW__STEP_NOBODY;
}

void spw__connection_say_rest(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    /* A thread that has receiving may fetch, and so say it: no other may meanwhile. */
    if (connection->phase != CONNECTION_OPEN || connection->receiving.is_away ||
        host == NULL || host->receiver == NULL || host->is_saying || !has_to_say(host))
        return;
    /* Where no thread can, it is said when there is more to say. */
    host->is_saying = spw__task_arm(connection->completions, &host->receiver_watch,
                                    spw__host_receiver_descriptor(host->receiver),
                                    &host->receiver_watch.writing, SPW__STEP_WRITE);
}

void spw__connection_stop_saying(spw_connection *connection)
{
    spw__connection_host *host = connection->host;
    if (host == NULL || !host->is_saying)
        return;
    host->is_saying = false;
    if (!spw__task_recall(&host->receiver_watch, &host->receiver_watch.writing))
        spw__connection_abandon_receiver(connection);
}

static bool start_half(void *self, void (*work)(void *argument), void *argument)
{
    spw_connection *connection = self;
    spw__connection_host *host = connection->host;
    host->half = work;
    host->half_argument = argument;
    return spw__task_arm(connection->completions, &host->receiver_watch,
                         spw__host_receiver_descriptor(host->receiver),
                         &host->receiver_watch.writing, SPW__STEP_NOW);
}

/* If no thread has come for it, it is done here. */
static void join_half(void *self)
{
    spw_connection *connection = self;
    spw__connection_host *host = connection->host;
    (void)spw__task_recall(&host->receiver_watch, &host->receiver_watch.writing);
    if (host->half != NULL)
        host->half(host->half_argument);
    host->half = NULL;
}

bool spw__connection_is_remote(const spw_connection *connection)
{
    return connection->reader != NULL &&
           spw__message_reader_is_remote(connection->reader);
}

static spw_status tell_stranger(const spw_connection *connection, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                          "%s sends a body by reference, and has not met us",
                          connection->peer_host);
}

spw_status spw__connection_go_fetch(spw_connection *connection, spw_error *error)
{
    spw__connection_host *host = connection->host;
    spw__connection_stop_saying(connection);
    if (host->receiver == NULL)
        return tell_stranger(connection, error);
    if (spw__connection_go_by(connection, &connection->receiving, &host->receiver_watch,
                              &host->receiver_watch.reading,
                              spw__host_receiver_descriptor(host->receiver),
                              SPW__STEP_NOW))
        return SPW_STATUS_OK;
    return spw__error_set(error, SPW_STATUS_IO, 0,
                          "no thread can bring a body from the memory of %s",
                          connection->peer_host);
}

bool spw__connection_may_fetch(spw_connection *connection)
{
    const spw__connection_host *host = connection->host;
    if (connection->receiving.is_away)
        return true;
    spw__connection_stop_saying(connection);
    return host->receiver != NULL &&
           spw__host_receiver_way(host->receiver) == SPW__HOST_BY_ADDRESS &&
           spw__message_reader_missing(connection->reader) <= INLINE_BYTES;
}

static uint64_t bytes_by(const spw__connection_host *host, spw__host_way way)
{
    return spw__host_receiver_bytes(host->receiver, way);
}

spw_status spw__connection_fetch(spw_connection *connection, spw_error *error)
{
    static const struct {
        spw__host_way way;
        spw__figure figure;
    } WAYS[] = {{SPW__HOST_BY_ADDRESS, SPW__FIGURE_HOST_BYTES_BY_ADDRESS},
                {SPW__HOST_BY_DESCRIPTOR, SPW__FIGURE_HOST_BYTES_BY_DESCRIPTOR},
                {SPW__HOST_BY_STREAM, SPW__FIGURE_HOST_BYTES_BY_STREAM}};
    spw__connection_host *host = connection->host;
    spw__host_helper helper = {start_half, join_half, connection};
    bool is_away = connection->receiving.is_away;
    if (host->receiver == NULL)
        return tell_stranger(connection, error);
    uint64_t before[sizeof WAYS / sizeof WAYS[0]];
    for (size_t i = 0; i < sizeof WAYS / sizeof WAYS[0]; i++)
        before[i] = bytes_by(host, WAYS[i].way);
    spw__host_way way = spw__host_receiver_way(host->receiver);
    spw_status status =
        spw__host_receiver_fetch(host->receiver, connection->reader, FETCH_BYTES,
                                 is_away ? &helper : NULL, error);
    for (size_t i = 0; i < sizeof WAYS / sizeof WAYS[0]; i++) {
        uint64_t brought = bytes_by(host, WAYS[i].way) - before[i];
        spw__count(connection->context, WAYS[i].figure, brought);
        spw__count(connection->context, SPW__FIGURE_BYTES_RECEIVED, brought);
    }
    if (spw__host_receiver_way(host->receiver) != way)
        spw__meetings_tell(host->meetings, spw__host_receiver_reason(host->receiver));
    return status;
}

spw__step_answer spw__connection_receive_next(const spw_connection *connection)
{
    const spw__connection_host *host = connection->host;
    bool is_remote = spw__connection_is_remote(connection);
    bool is_by_stream = connection->receiving.watch == &connection->watch;
    if (is_by_stream && spw__connection_is_held(connection))
        return SPW__STEP_PARK;
    if (is_by_stream)
        return is_remote ? SPW__STEP_DONE : SPW__STEP_READ;
    if (!is_remote)
        return SPW__STEP_DONE;
    unsigned interest = spw__host_receiver_interest(host->receiver);
    bool is_waiting = (interest & SPW__HOST_READ) != 0;
    return is_waiting ? (spw__step_answer)interest : SPW__STEP_NOW;
}

/* What will be needed to fetch is there before the peer hears that it may announce.
 * Errors: why the peer cannot be let in. */
static spw_status let_in(spw_connection *connection, spw__host_receiver *receiver,
                         spw_host_way best, spw_error *error)
{
    spw__connection_host *host = connection->host;
    if (!spw__watch_prepare(connection->completions, &host->receiver_watch,
                            spw__host_receiver_descriptor(receiver)))
        return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                              "no thread can bring bodies from the peer's memory");
    spw_status status = spw__host_receiver_admit(receiver, (spw__host_way)best, error);
    if (status != SPW_STATUS_OK)
        spw__watch_forget(&host->receiver_watch);
    return status;
}

void spw__connection_admit(spw_connection *connection, spw__host_receiver *receiver,
                           spw_host_way best)
{
    spw__connection_host *host = connection->host;
    spw_error why;
    spw_status status = let_in(connection, receiver, best, &why);
    if (status != SPW_STATUS_OK) {
        spw__host_receiver_free(receiver);
        /* Who has gone again is no news. */
        if (status != SPW_STATUS_PEER_CLOSED)
            spw__meetings_tell(host->meetings, &why);
        return;
    }
    host->receiver = receiver;
    spw__count(connection->context, SPW__FIGURE_HOST_MEETINGS, 1);
    if (spw__host_receiver_way(receiver) != (spw__host_way)best)
        spw__meetings_tell(host->meetings, spw__host_receiver_reason(receiver));
    spw__connection_say_rest(connection);
}

/* ---- beginning and end ---- */

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
        (spw__task){.step = announce_step, .subject = connection};
    host->receiver_watch.reading =
        (spw__task){.step = spw__connection_receive_step, .subject = connection};
    host->receiver_watch.writing =
        (spw__task){.step = aside_step, .subject = connection};
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
