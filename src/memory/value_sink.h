/* Where the values of a message go: decided one by one, when a value's header has come
 * and none of its bodies. A store fills this table; who reads messages calls it, and
 * neither knows the other.
 *
 * Threading contract: one thread at a time calls its operations. None blocks on a disk:
 * what has to wait answers AGAIN, and wake is called when it is worth asking again. */
#ifndef SPW_MEMORY_VALUE_SINK_H
#define SPW_MEMORY_VALUE_SINK_H

#include <stdbool.h>

#include "memory/place.h"
#include "spillway/sink.h"

/* Where the frames of a value go. Both NULL: to memory, as without a sink. */
typedef struct spw__value_room {
    /* To memory, in which it has room: to be held by what the frames are put into. One
     * reference of the caller's. */
    spw__place *place;
    /* To disk: the frames are ranges of this file, through which the window is written.
     * One reference of the caller's. */
    spw_file *file;
    /* One a frame, but for the file. Borrowed, as long as the caller has the file. */
    const spw_slice *slices;
} spw__value_room;

typedef struct spw__value_sink_ops {
    /* Whether the values of a message are for the sink, of which this is the first
     * frame: if not, it is asked for none of them. NULL: those of any message are. */
    bool (*is_for)(spw_value_sink *sink, const spw_slice *first);
    /* A value is to come, of which there is the header, with count frames of these
     * sizes. Borrows: header, sizes, during the call. Errors: AGAIN, to be asked the
     * same again; NO_MEMORY, LIMIT_EXCEEDED. */
    spw_status (*begin)(spw_value_sink *sink, const spw_slice *header,
                        const uint64_t *sizes, uint64_t count,
                        spw__value_room *ret_room, spw_error *error);
    /* Where the next bytes of a value go that goes to disk, all of its frames one after
     * another. Returns: memory, of at least SPW__WINDOW_LEAST or all that the frame
     * lacks; none of it is beyond the frame. Errors: AGAIN; why the value cannot be
     * written, and then the message is lost. */
    spw_status (*window)(spw_value_sink *sink, void **ret_data, size_t *ret_size,
                         spw_error *error);
    /* size bytes (<= what window gave) are there. */
    void (*wrote)(spw_value_sink *sink, size_t size);
    /* All of the value has been: is it on disk? Then its slices have checksums.
     * Errors: as window. */
    spw_status (*finish)(spw_value_sink *sink, spw_error *error);
    /* The message is whole, or given up, and with it a value that is not finished.
     * From the return on wake is not called any more. Takes: sink. */
    void (*free)(spw_value_sink *sink);
} spw__value_sink_ops;

/* The most that one packet of a peer on this host has. */
enum { SPW__WINDOW_LEAST = 64 * 1024 };

/* Stands at the beginning of what its maker has of it. */
struct spw_value_sink {
    const spw__value_sink_ops *ops;
    /* Set by who is given the sink, before anything else. Called on any thread, with a
     * lock of the sink's held: it only passes it on. */
    void (*wake)(void *user);
    void *user;
};

#endif
