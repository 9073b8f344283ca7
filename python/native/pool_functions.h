/* trim() and limit_resident(): the pool of the module's context. */
#ifndef SPW_NATIVE_POOL_FUNCTIONS_H
#define SPW_NATIVE_POOL_FUNCTIONS_H

#include "module_state.h"

/* The module's functions trim(keep_bytes, older_than_ms) and limit_resident(bytes). */
PyObject *native_trim(PyObject *module, PyObject *args);
PyObject *native_limit_resident(PyObject *module, PyObject *value);

#endif
