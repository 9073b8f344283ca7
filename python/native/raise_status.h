/* The one place where a status becomes an exception. */
#ifndef SPW_NATIVE_RAISE_STATUS_H
#define SPW_NATIVE_RAISE_STATUS_H

#include "module_state.h"

/* Make SpillwayError. Returns: a new reference, NULL with an exception set. */
PyObject *spillway_error_create(void);

/* Set the exception for error: MemoryError for NO_MEMORY, ValueError for
 * INVALID_ARGUMENT, SpillwayError for the rest.
 * Returns: NULL, so that a failure is one line. */
PyObject *raise_status(module_state *state, const spw_error *error);

#endif
