/* Bodies that come by reference: which thread brings them, and says what it has taken.
 * The link from the peer belongs to receiving, which goes away by its descriptor while
 * a body comes that way. */
#include "context/error.h"
#include "context/figures.h"
#include "transport/connection_host_state.h"

/* One call brings so much: a few milliseconds, as long as the owner waits for a
 * direction that it calls home. */
static const size_t FETCH_BYTES = (size_t)16 << 20;
/* Of one message on the owner's thread: 0.2 to 0.4 ms. */
static const uint64_t INLINE_BYTES = (uint64_t)2 << 20;

static bool has_to_say(const spw__connection_host *host)
{
    return (spw__host_receiver_interest(host->receiver) & SPW__HOST_WRITE) != 0;
}

spw__step_answer spw__connection_aside_step(spw__task *task)
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
    if (spw__connection_is_stalled(connection) ||
        (is_by_stream && spw__connection_is_held(connection)))
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
