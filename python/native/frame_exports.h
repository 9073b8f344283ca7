/* The exports of a list of frames, and whose memory each one is in. */
#ifndef SPW_NATIVE_FRAME_EXPORTS_H
#define SPW_NATIVE_FRAME_EXPORTS_H

#include "module_state.h"

typedef struct frame_export {
    Py_buffer view; /* of a frame without bytes only readonly; nothing of it is kept */
    PyObject *root; /* whose memory it is, borrowed from view; NULL without bytes */
    bool is_contiguous; /* in C order */
} frame_export;

typedef struct frame_exports {
    frame_export *items;
    size_t count;
    size_t bytes; /* of all of them */
} frame_exports;

/* Export each of some frames. Python code of the exporters may run.
 * Borrows: frames, a tuple. Returns: false with an exception set; otherwise exports to
 * be ended by frame_exports_release. */
bool frame_exports_acquire(module_state *state, PyObject *frames,
                           frame_exports *ret_exports);
void frame_exports_release(frame_exports *exports);

/* Whose memory an exporter has: the object at the end of the chain of memoryviews and
 * merged frames that begins with it. It is a memoryview if that does not say whose
 * memory it has.
 * Borrows: the result from exporter, of which something must be exported as long.
 * Returns: NULL with an exception set. */
PyObject *exporter_root(module_state *state, PyObject *exporter);

#endif
