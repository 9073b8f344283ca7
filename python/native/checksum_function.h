/* The checksum of a frame, for who compares it with what a peer said. */
#ifndef SPW_NATIVE_CHECKSUM_FUNCTION_H
#define SPW_NATIVE_CHECKSUM_FUNCTION_H

#include "module_state.h"

/* checksum(frame, /) of the module. */
PyObject *native_checksum(PyObject *module, PyObject *frame);

#endif
