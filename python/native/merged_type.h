/* Merged: the memory of several frames that lie side by side, exported as one. */
#ifndef SPW_NATIVE_MERGED_TYPE_H
#define SPW_NATIVE_MERGED_TYPE_H

#include "frame_exports.h"

PyTypeObject *merged_type_create(PyObject *module);

/* A memoryview over size bytes from data on, which the exports cover, each in the
 * memory of one root. Takes: exports, on success only. Returns: NULL with an exception
 * set. */
PyObject *merged_view(module_state *state, frame_exports *exports, void *data,
                      size_t size, bool is_writeable);

/* Borrows: whose memory a Merged has, as long as it lives. Returns: NULL, without an
 * exception, for any other object. */
PyObject *merged_root(module_state *state, PyObject *object);

#endif
