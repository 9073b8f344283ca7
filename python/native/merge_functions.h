/* Merging frames, and where in its owner's memory a view begins. */
#ifndef SPW_NATIVE_MERGE_FUNCTIONS_H
#define SPW_NATIVE_MERGE_FUNCTIONS_H

#include "module_state.h"

/* The module's functions merge, join and buffer_offset. */
PyObject *native_merge(PyObject *module, PyObject *frames);
PyObject *native_join(PyObject *module, PyObject *frames);
PyObject *native_buffer_offset(PyObject *module, PyObject *view);

#endif
