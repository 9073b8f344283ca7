/* Connection: spw_connection with the GIL in mind. */
#ifndef SPW_NATIVE_CONNECTION_TYPE_H
#define SPW_NATIVE_CONNECTION_TYPE_H

#include "module_state.h"

PyTypeObject *connection_type_create(PyObject *module);

/* Takes: connection, also when it fails. Borrows: completions, a Completions that the
 * connection was given, or NULL.
 * Returns: a new Connection, NULL with an exception set. */
PyObject *connection_wrap(module_state *state, spw_connection *connection,
                          PyObject *completions);

#endif
