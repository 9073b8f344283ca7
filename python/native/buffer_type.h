/* Buffer: the library's memory behind Python's buffer protocol. */
#ifndef SPW_NATIVE_BUFFER_TYPE_H
#define SPW_NATIVE_BUFFER_TYPE_H

#include "module_state.h"

PyTypeObject *buffer_type_create(PyObject *module);

/* A memoryview over the whole of a new Buffer.
 * Takes: one more reference to buffer. Returns: NULL with an exception set. */
PyObject *buffer_view(module_state *state, spw_buffer *buffer);

/* Borrows: the memory behind a Buffer, as long as that lives. Returns: NULL, without an
 * exception, for any other object. */
spw_buffer *buffer_behind(module_state *state, PyObject *object);

#endif
