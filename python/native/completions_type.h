/* Completions: spw_reactor and spw_completions of one event loop. */
#ifndef SPW_NATIVE_COMPLETIONS_TYPE_H
#define SPW_NATIVE_COMPLETIONS_TYPE_H

#include "module_state.h"

PyTypeObject *completions_type_create(PyObject *module);

/* Borrows: object (NULL allowed), a Completions. */
spw_completions *completions_of(PyObject *object);

#endif
