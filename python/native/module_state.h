/* What the module owns; there is no other state. Types keep the module alive and
 * instances keep their type, so whoever holds an object may use the state. */
#ifndef SPW_NATIVE_MODULE_STATE_H
#define SPW_NATIVE_MODULE_STATE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "spillway/spillway.h"

typedef struct module_state {
    spw_budget *budget;
    spw_context *context; /* borrows budget */
    PyTypeObject *arrow_array_type;
    PyTypeObject *buffer_type;
    PyTypeObject *completions_type;
    PyTypeObject *connection_type;
    PyTypeObject *file_range_type;
    PyTypeObject *listener_type;
    PyTypeObject *meetings_type;
    PyTypeObject *merged_type;
    PyTypeObject *partitions_type;
    PyTypeObject *store_type;
    PyTypeObject *store_entry_type;
    PyObject *error_type;  /* SpillwayError */
    PyObject *name_status; /* "status", interned */
} module_state;

/* The state behind an instance of one of our types, none of which can be subclassed. */
static inline module_state *module_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

#endif
