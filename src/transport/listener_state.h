/* The inside of a listener, shared by its files: listener.c (where it listens, one
 * connection at a time on its owner's thread) and listener_away.c (accepting on a
 * thread of a reactor). */
#ifndef SPW_TRANSPORT_LISTENER_STATE_H
#define SPW_TRANSPORT_LISTENER_STATE_H

#include <stdatomic.h>

#include "reactor/task.h"
#include "spillway/listener.h"
#include "transport/connection_state.h"

/* Connections in the order in which they came. */
typedef struct untaken_list {
    spw_connection *first, *last;
    unsigned count;
} untaken_list;

/* What a listener needs to accept on a thread. Invariant: the sign is raised while
 * there are connections on either list, and while a fault waits to be told. */
typedef struct away_listener {
    /* Fixed once it serves. */
    int sign; /* -1: it does not serve, and nothing of this is used */
    spw_connection_options options;
    char loopback_congestion[SPW__CONGESTION_NAME_BYTES];
    spw_buffer *greeting, *greeting_same_host; /* NULL: nothing is said */
    spw__watch watch;                          /* only reads */
    /* Of the owner. */
    bool is_away;                    /* a thread accepts, or would */
    atomic_uint_least64_t hold_from; /* read by the thread */
    untaken_list arrived;            /* taken from untaken, to be handed out */
    /* Of the thread, while it is away. */
    untaken_list untaken;
    spw_error fault; /* why it stopped; status OK: it did not */
} away_listener;

struct spw_listener {
    spw_context *context; /* one reference */
    int descriptor;
    int owner; /* see spw__socket_shutdown */
    spw__socket_address local;
    char host[SPW__ADDRESS_HOST_BYTES];
    uint16_t port;
    away_listener away;
};

/* Accept one connection here, with options that were read. Errors: as
 * spw_listener_accept. */
spw_status spw__listener_accept_here(spw_listener *listener,
                                     const spw_connection_options *options,
                                     spw_connection **ret_connection, spw_error *error);

/* listener_away.c. The next of those that a thread accepted. Errors: as
 * spw_listener_accept. */
spw_status spw__listener_take(spw_listener *listener, spw_connection **ret_connection,
                              spw_error *error);
/* Have accepting back, and free what nobody has taken. */
void spw__listener_stop_serving(spw_listener *listener);

#endif
