/* Listener: spw_listener for Python. */
#ifndef SPW_NATIVE_LISTENER_TYPE_H
#define SPW_NATIVE_LISTENER_TYPE_H

#include "module_state.h"

PyTypeObject *listener_type_create(PyObject *module);

#endif
