/* trim(), limit_resident() and limit_in_flight(): the pool of the module's context, and
 * its budget. */
#ifndef SPW_NATIVE_POOL_FUNCTIONS_H
#define SPW_NATIVE_POOL_FUNCTIONS_H

#include "module_state.h"

/* The module's function allocate(size). */
PyObject *native_allocate(PyObject *module, PyObject *value);
/* The module's functions trim(keep_bytes, older_than_ms), limit_resident(bytes,
 * cached_bytes) and limit_in_flight(bytes). */
PyObject *native_trim(PyObject *module, PyObject *args);
PyObject *native_limit_resident(PyObject *module, PyObject *args);
PyObject *native_limit_in_flight(PyObject *module, PyObject *value);

#endif
