/* Where connections meet their peers. Whoever comes says a nonce; it is let in when a
 * connection expects that nonce, now or a little later, for a peer may be quicker than
 * our owner.
 *
 * One descriptor stands for the door, all visitors and what there is to be told, and is
 * readable only while there is something to do: who waits says nothing, and where
 * nobody can be let in, the door is not watched until that may have changed. */
#include <pthread.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/figures.h"
#include "context/log.h"
#include "context/options.h"
#include "platform/poller.h"
#include "platform/unix_socket.h"
#include "transport/connection_state.h"
#include "transport/host_door.h"

/* Who has not said anything that is expected; each is a process of our own user. */
enum { VISITORS_MAX = 256 };
/* Reasons that wait to be told: many connections have the same one. */
enum { NEWS_MAX = 8 };

typedef struct visitor {
    struct visitor *next;
    spw__host_receiver *receiver;
} visitor;

struct spw_meetings {
    spw_context *context; /* one reference */
    spw_host_way best;
    bool uses_descriptors;
    pid_t owner; /* a forked child's poller is the parent's as well */
    spw__host_door *door;
    int poller;        /* watches the door, all visitors and the sign */
    int sign;          /* raised while there are news */
    visitor *visitors; /* the latest first */
    /* For connections end where they are used last, and threads have news. */
    pthread_mutex_t lock;
    /* All below: guarded by lock. */
    bool is_deaf;              /* the door is not watched */
    spw_connection *expecting; /* by expected.next */
    spw_error news[NEWS_MAX];
    size_t news_count;
};

static spw_status read_options(const spw_meetings_options *given,
                               spw_meetings_options *ret_options, spw_error *error)
{
    spw_status status =
        spw__options_read(given, "MEETINGS", ret_options, sizeof *ret_options, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (ret_options->parent == NULL || (unsigned)ret_options->best > SPW_HOST_BY_STREAM)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "meetings need a directory, and a way that is known");
    return SPW_STATUS_OK;
}

/* Returns: a value >= 0, or a negative errno. */
static int open_poller(spw_meetings *meetings)
{
    int answer = meetings->poller = spw__poller_open();
    if (answer >= 0)
        answer = meetings->sign = spw__sign_open();
    if (answer >= 0)
        answer = spw__poller_add_sign(meetings->poller, meetings->sign, 0);
    if (answer >= 0)
        answer = spw__poller_add_sign(meetings->poller,
                                      spw__host_door_descriptor(meetings->door), 0);
    return answer;
}

spw_status spw_meetings_create(spw_context *context, const spw_meetings_options *given,
                               spw_meetings **ret_meetings, spw_error *error)
{
    spw_meetings_options options = {0};
    spw_status status = read_options(given, &options, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_meetings *meetings =
        spw__allocate(context, sizeof *meetings, _Alignof(spw_meetings));
    if (meetings == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a place to meet");
    *meetings = (spw_meetings){
        .context = spw_context_ref(context),
        .best = options.best != 0 ? options.best : SPW_HOST_BY_ADDRESS,
        .uses_descriptors = options.uses_descriptors,
        .owner = spw__unix_socket_owner(),
        .poller = -1,
        .sign = -1,
    };
    (void)pthread_mutex_init(&meetings->lock, NULL); /* a plain one cannot fail */
    status = spw__host_door_create(context, options.parent, &meetings->door, error);
    if (status != SPW_STATUS_OK)
        goto fail;
    int answer = open_poller(meetings);
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

static bool is_ours(const spw_meetings *meetings)
{
    return meetings->owner == spw__unix_socket_owner();
}

/* In a forked child it may be held by a thread that is not there. */
static void lock(spw_meetings *meetings)
{
    if (is_ours(meetings))
        (void)pthread_mutex_lock(&meetings->lock); /* cannot fail: it is plain */
}

static void unlock(spw_meetings *meetings)
{
    if (is_ours(meetings))
        (void)pthread_mutex_unlock(&meetings->lock);
}

/* Take who is at *link off the list. Returns: its receiver, the caller's. */
static spw__host_receiver *take_out(spw_meetings *meetings, visitor **link)
{
    visitor *gone = *link;
    spw__host_receiver *receiver = gone->receiver;
    *link = gone->next;
    if (is_ours(meetings))
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
    if (meetings->sign >= 0)
        spw__poller_close(meetings->sign);
    spw__host_door_free(meetings->door);
    if (is_ours(meetings))
        (void)pthread_mutex_destroy(&meetings->lock);
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

/* ---- news ---- */

static bool is_told(const spw_meetings *meetings, const spw_error *why)
{
    for (size_t i = 0; i < meetings->news_count; i++)
        if (strcmp(meetings->news[i].message, why->message) == 0)
            return true;
    return false;
}

void spw__meetings_tell(spw_meetings *meetings, const spw_error *why)
{
    spw__count(meetings->context, SPW__FIGURE_HOST_REFUSALS, 1);
    spw__log(meetings->context, SPW_LOG_INFO,
             "large bodies go between processes of this host by a lesser way: %s",
             why->message);
    lock(meetings);
    if (meetings->news_count < NEWS_MAX && !is_told(meetings, why)) {
        meetings->news[meetings->news_count++] = *why;
        spw__sign_raise(meetings->sign);
    }
    unlock(meetings);
}

/* Errors: the latest news. */
static spw_status take_news(spw_meetings *meetings, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    lock(meetings);
    if (meetings->news_count > 0) {
        const spw_error *why = &meetings->news[--meetings->news_count];
        status = why->status;
        if (error != NULL)
            *error = *why;
        if (meetings->news_count == 0)
            spw__sign_clear(meetings->sign);
    }
    unlock(meetings);
    return status;
}

/* ---- visitors ---- */

static spw_connection *find(spw_meetings *meetings, const uint8_t *nonce)
{
    lock(meetings);
    spw_connection *connection = meetings->expecting;
    while (connection != NULL && memcmp(spw__connection_expected(connection)->nonce,
                                        nonce, SPW_NONCE_BYTES) != 0)
        connection = spw__connection_expected(connection)->next;
    unlock(meetings);
    return connection;
}

/* Let in whom somebody expects, and send away who will never be. */
static void look_at_visitors(spw_meetings *meetings)
{
    visitor **link = &meetings->visitors;
    for (size_t seen = 0; *link != NULL; seen++) {
        spw__host_receiver *receiver = (*link)->receiver;
        spw_status status = spw__host_receiver_drive(receiver, NULL);
        bool is_here = status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN;
        const uint8_t *nonce = spw__host_receiver_nonce(receiver);
        spw_connection *connection =
            is_here && nonce != NULL ? find(meetings, nonce) : NULL;
        if (connection != NULL) {
            spw__meetings_remove(connection);
            spw__connection_admit(connection, take_out(meetings, link), meetings->best);
        } else if (seen >= VISITORS_MAX || !is_here) {
            spw__host_receiver_free(take_out(meetings, link));
        } else {
            link = &(*link)->next;
        }
    }
}

/* Nobody can be let in now. Whoever waits at the door goes on by the stream. */
static void go_deaf(spw_meetings *meetings, const spw_error *why)
{
    lock(meetings);
    spw__poller_remove(meetings->poller, spw__host_door_descriptor(meetings->door));
    meetings->is_deaf = true;
    unlock(meetings);
    spw__meetings_tell(meetings, why);
}

/* A connection has come or gone: what was missing may be there. With the lock held. */
static void listen_again(spw_meetings *meetings)
{
    if (meetings->is_deaf && is_ours(meetings))
        meetings->is_deaf =
            spw__poller_add_sign(meetings->poller,
                                 spw__host_door_descriptor(meetings->door), 0) < 0;
}

static spw_status add_visitor(spw_meetings *meetings, int descriptor, spw_error *error)
{
    visitor *newcomer =
        spw__allocate(meetings->context, sizeof *newcomer, _Alignof(visitor));
    if (newcomer == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a peer that came");
    spw__host_receiver *receiver;
    spw_status status =
        spw__host_receiver_create(meetings->context, descriptor, &receiver, error);
    if (status != SPW_STATUS_OK) {
        spw__release(meetings->context, newcomer, sizeof *newcomer, _Alignof(visitor));
        return status;
    }
    *newcomer = (visitor){.next = meetings->visitors, .receiver = receiver};
    meetings->visitors = newcomer;
    return SPW_STATUS_OK;
}

/* Returns: false when there is nobody more, or no means to let them in now. */
static bool let_in(spw_meetings *meetings)
{
    int descriptor;
    spw_error why;
    spw_status status = spw__host_door_accept(meetings->door, &descriptor, &why);
    if (status == SPW_STATUS_AGAIN)
        return false;
    if (status != SPW_STATUS_OK) {
        go_deaf(meetings, &why);
        return false;
    }
    /* Whom we send away sees that, and uses the stream. */
    status = add_visitor(meetings, descriptor, &why);
    if (status != SPW_STATUS_OK) {
        spw__unix_socket_close(descriptor);
        spw__meetings_tell(meetings, &why);
        return true;
    }
    int answer = spw__poller_add_sign(meetings->poller, descriptor, 1);
    if (answer < 0) {
        (void)spw__error_set(&why, SPW_STATUS_IO, -answer,
                             "a peer that came cannot be watched");
        spw__host_receiver_free(take_out(meetings, &meetings->visitors));
        spw__meetings_tell(meetings, &why);
    }
    return true;
}

spw_status spw_meetings_on_readable(spw_meetings *meetings, spw_error *error)
{
    while (let_in(meetings))
        ;
    look_at_visitors(meetings);
    return take_news(meetings, error);
}

void spw__meetings_add(spw_meetings *meetings, spw_connection *connection)
{
    spw__expected *expected = spw__connection_expected(connection);
    lock(meetings);
    expected->meetings = meetings;
    expected->previous = NULL;
    expected->next = meetings->expecting;
    if (expected->next != NULL)
        spw__connection_expected(expected->next)->previous = connection;
    meetings->expecting = connection;
    listen_again(meetings);
    unlock(meetings);
    look_at_visitors(meetings); /* its peer may have been quicker */
}

void spw__meetings_remove(spw_connection *connection)
{
    spw__expected *expected = spw__connection_expected(connection);
    spw_meetings *meetings = expected->meetings;
    if (meetings == NULL)
        return;
    lock(meetings);
    if (expected->previous != NULL)
        spw__connection_expected(expected->previous)->next = expected->next;
    else
        meetings->expecting = expected->next;
    if (expected->next != NULL)
        spw__connection_expected(expected->next)->previous = expected->previous;
    expected->meetings = NULL;
    listen_again(meetings);
    unlock(meetings);
}
