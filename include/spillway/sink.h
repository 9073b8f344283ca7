/* The sink decides, before a body is read, where it goes. Framing and transport call
 * it; whoever owns memory provides it. */
#ifndef SPILLWAY_SINK_H
#define SPILLWAY_SINK_H

#include "spillway/payload.h"

/* Thread: a connection calls its sink from where it receives at the time, its owner's
 * thread or one of the reactor's. One sink may serve several connections at once, so
 * that calls may come from several threads at once. */
typedef struct spw_sink_ops {
    /* A place of size bytes (> 0), which holds whatever was there before. Returns: a
     * slice whose buffer reference is the caller's, to be ended by exactly one commit
     * or abort. Errors: NO_MEMORY, LIMIT_EXCEEDED. */
    spw_status (*reserve)(void *self, uint64_t size, spw_slice *ret_slice,
                          spw_error *error);
    /* Every byte of the place has been written anew, those between and behind frames
     * too; only now does it become visible. Borrows: slice. */
    void (*commit)(void *self, const spw_slice *slice);
    /* The message failed; the place is given up. Borrows: slice, whose reference the
     * caller drops afterwards. */
    void (*abort)(void *self, const spw_slice *slice);
} spw_sink_ops;

typedef struct spw_sink {
    const spw_sink_ops *ops;
    void *self;
} spw_sink;

/* The sink that takes every body to a heap buffer of its own: charged IN_FLIGHT when
 * reserved and HELD once committed.
 * Borrows: context, for as long as the sink is used. Returns: a sink, which needs no
 * ending. Thread: any. */
SPW_EXPORT spw_sink spw_sink_heap(spw_context *context);

/* Where the values of one message go: see spw_connection_receive_values. */
typedef struct spw_value_sink spw_value_sink;

/* Takes: a sink that no connection was given (NULL allowed). Thread: any. */
SPW_EXPORT void spw_value_sink_free(spw_value_sink *sink);

#endif
