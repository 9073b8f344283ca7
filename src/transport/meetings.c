/* Where connections meet their peers. Whoever comes says a nonce; it is let in when a
 * connection expects that nonce, now or a little later, for a peer may be quicker than
 * our owner. */
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/poller.h"
#include "transport/connection_state.h"
#include "transport/host_door.h"

/* Who has not said anything that is expected; each is a process of our own user. */
enum { VISITORS_MAX = 256 };

typedef struct visitor {
    struct visitor *next;
    spw__host_receiver *receiver;
} visitor;

struct spw_meetings {
    spw_context *context; /* one reference */
    spw_host_way best;
    bool uses_descriptors;
    spw__host_door *door;
    int poller;                /* watches the door and all visitors */
    visitor *visitors;         /* the latest first */
    spw_connection *expecting; /* by expected.next */
};

static spw_status check(const spw_meetings_options *options, spw_error *error)
{
    if (options == NULL || options->struct_size != sizeof *options)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "meetings options of an unknown size; use "
                              "SPW_MEETINGS_OPTIONS_INIT");
    if (options->parent == NULL || (unsigned)options->best > SPW_HOST_BY_STREAM)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "meetings need a directory, and a way that is known");
    return SPW_STATUS_OK;
}

spw_status spw_meetings_create(spw_context *context,
                               const spw_meetings_options *options,
                               spw_meetings **ret_meetings, spw_error *error)
{
    spw_status status = check(options, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_meetings *meetings =
        spw__allocate(context, sizeof *meetings, _Alignof(spw_meetings));
    if (meetings == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a place to meet");
    *meetings = (spw_meetings){
        .context = spw_context_ref(context),
        .best = options->best != 0 ? options->best : SPW_HOST_BY_ADDRESS,
        .uses_descriptors = options->uses_descriptors,
        .poller = -1,
    };
    status = spw__host_door_create(context, options->parent, &meetings->door, error);
    if (status != SPW_STATUS_OK)
        goto fail;
    int answer = meetings->poller = spw__poller_open();
    if (answer >= 0)
        answer = spw__poller_add_sign(meetings->poller,
                                      spw__host_door_descriptor(meetings->door), 0);
    if (answer < 0) {
        status = spw__error_set(error, SPW_STATUS_IO, -answer,
                                "cannot watch a place to meet (raise this process's "
                                "limit of open files, ulimit -n)");
        goto fail;
    }
    *ret_meetings = meetings;
    return SPW_STATUS_OK;
fail:
    spw_meetings_free(meetings);
    return status;
}

/* Take who is at *link off the list. Returns: its receiver, the caller's. */
static spw__host_receiver *take_out(spw_meetings *meetings, visitor **link)
{
    visitor *gone = *link;
    spw__host_receiver *receiver = gone->receiver;
    *link = gone->next;
    spw__poller_remove(meetings->poller, spw__host_receiver_descriptor(receiver));
    spw__release(meetings->context, gone, sizeof *gone, _Alignof(visitor));
    return receiver;
}

void spw_meetings_free(spw_meetings *meetings)
{
    if (meetings == NULL)
        return;
    spw_context *context = meetings->context;
    while (meetings->visitors != NULL)
        spw__host_receiver_free(take_out(meetings, &meetings->visitors));
    if (meetings->poller >= 0)
        spw__poller_close(meetings->poller);
    spw__host_door_free(meetings->door);
    spw__release(context, meetings, sizeof *meetings, _Alignof(spw_meetings));
    spw_context_unref(context);
}

int spw_meetings_descriptor(const spw_meetings *meetings)
{
    return meetings->poller;
}

const char *spw_meetings_path(const spw_meetings *meetings)
{
    return spw__host_door_path(meetings->door);
}

bool spw__meetings_use_descriptors(const spw_meetings *meetings)
{
    return meetings->uses_descriptors;
}

static spw_connection *find(const spw_meetings *meetings, const uint8_t *nonce)
{
    spw_connection *connection = meetings->expecting;
    while (connection != NULL && memcmp(spw__connection_expected(connection)->nonce,
                                        nonce, SPW_NONCE_BYTES) != 0)
        connection = spw__connection_expected(connection)->next;
    return connection;
}

/* Errors: AGAIN, and whatever means that nobody will ever be let in here. */
static spw_status hear(const spw_meetings *meetings, spw__host_receiver *receiver)
{
    int descriptor = spw__host_receiver_descriptor(receiver);
    if (spw__host_receiver_nonce(receiver) != NULL)
        return spw__unix_socket_is_hung_up(descriptor) ? SPW_STATUS_PEER_CLOSED
                                                       : SPW_STATUS_AGAIN;
    spw_status status = spw__host_receiver_drive(receiver, NULL);
    /* It has said what it has to say; that it waits is nothing to wake up for. */
    if (status == SPW_STATUS_OK)
        spw__poller_remove(meetings->poller, descriptor);
    return status;
}

/* Let in whom somebody expects, and send away who will never be. Errors: as
 * on_readable. */
static spw_status look_at_visitors(spw_meetings *meetings, spw_error *error)
{
    spw_status refusal = SPW_STATUS_OK;
    visitor **link = &meetings->visitors;
    for (size_t seen = 0; *link != NULL; seen++) {
        spw__host_receiver *receiver = (*link)->receiver;
        spw_status status = hear(meetings, receiver);
        const uint8_t *nonce = spw__host_receiver_nonce(receiver);
        spw_connection *connection = nonce != NULL ? find(meetings, nonce) : NULL;
        if (connection != NULL) {
            spw__meetings_remove(connection);
            (void)take_out(meetings, link);
            spw_error why;
            status = spw__connection_admit(connection, receiver, meetings->best, &why);
            if (status != SPW_STATUS_OK) {
                refusal = status;
                if (error != NULL)
                    *error = why;
            }
        } else if (seen >= VISITORS_MAX ||
                   (status != SPW_STATUS_OK && status != SPW_STATUS_AGAIN)) {
            spw__host_receiver_free(take_out(meetings, link));
        } else {
            link = &(*link)->next;
        }
    }
    return refusal;
}

/* Returns: false when there is nobody more, or no means to let them in now. */
static bool let_in(spw_meetings *meetings)
{
    int descriptor;
    if (spw__host_door_accept(meetings->door, &descriptor, NULL) != SPW_STATUS_OK)
        return false;
    visitor *newcomer =
        spw__allocate(meetings->context, sizeof *newcomer, _Alignof(visitor));
    spw__host_receiver *receiver = NULL;
    if (newcomer == NULL ||
        spw__host_receiver_create(meetings->context, descriptor, &receiver, NULL) !=
            SPW_STATUS_OK) {
        /* The peer sees that, and uses the stream. */
        spw__unix_socket_close(descriptor);
        spw__release(meetings->context, newcomer, sizeof *newcomer, _Alignof(visitor));
        return true;
    }
    *newcomer = (visitor){.next = meetings->visitors, .receiver = receiver};
    meetings->visitors = newcomer;
    if (spw__poller_add_sign(meetings->poller, descriptor, 1) < 0)
        spw__host_receiver_free(take_out(meetings, &meetings->visitors));
    return true;
}

spw_status spw_meetings_on_readable(spw_meetings *meetings, spw_error *error)
{
    while (let_in(meetings))
        ;
    return look_at_visitors(meetings, error);
}

void spw__meetings_add(spw_meetings *meetings, spw_connection *connection)
{
    spw__expected *expected = spw__connection_expected(connection);
    expected->meetings = meetings;
    expected->previous = NULL;
    expected->next = meetings->expecting;
    if (expected->next != NULL)
        spw__connection_expected(expected->next)->previous = connection;
    meetings->expecting = connection;
    /* Its peer may have been quicker; why it comes by a lesser way is told to nobody
     * then, but counted. */
    (void)!look_at_visitors(meetings, NULL);
}

void spw__meetings_remove(spw_connection *connection)
{
    spw__expected *expected = spw__connection_expected(connection);
    spw_meetings *meetings = expected->meetings;
    if (meetings == NULL)
        return;
    if (expected->previous != NULL)
        spw__connection_expected(expected->previous)->next = expected->next;
    else
        meetings->expecting = expected->next;
    if (expected->next != NULL)
        spw__connection_expected(expected->next)->previous = expected->previous;
    expected->meetings = NULL;
}
