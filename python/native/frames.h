/* Messages between Python and C: a list of frames and a payload. */
#ifndef SPW_NATIVE_FRAMES_H
#define SPW_NATIVE_FRAMES_H

#include "module_state.h"

/* What a frame becomes that is the library's own. */
typedef enum frames_way {
    FRAMES_READ,       /* memory: a FileRange is read, here and now */
    FRAMES_BY_FILE,    /* a FileRange is a range of its file */
    FRAMES_AS_RECEIVED /* that too, and a view of a Buffer is that buffer */
} frames_way;

/* Wrap the objects of a list, without copying those that are contiguous. The payload
 * keeps them referenced and exported; it must be freed on a thread of Python's, with
 * the GIL held or given up.
 * Returns: a payload of the caller's, NULL with an exception set. */
spw_payload *payload_from_frames(module_state *state, PyObject *frames, frames_way way);

/* The frames of a received payload, which stays the caller's: those on disk are
 * FileRange.
 * Returns: a new list, NULL with an exception set. */
PyObject *frames_from_payload(module_state *state, const spw_payload *payload);

/* The frames of a payload that a store has: those on disk are FileRange, of which
 * nothing is read. Returns: a new list, NULL with an exception set. */
PyObject *frames_from_stored(module_state *state, const spw_payload *payload);

#endif
