/* The pool and the budget from Python. */
#include "pool_functions.h"

#include "buffer_type.h"
#include "integer_arguments.h"
#include "raise_status.h"

PyObject *native_allocate(PyObject *module, PyObject *value)
{
    module_state *state = PyModule_GetState(module);
    uint64_t size;
    spw_buffer *buffer;
    spw_error error;
    spw_status status;
    if (!bytes_argument(value, &size))
        return NULL;
    /* Memory may have to be asked of the system for it. */
    Py_BEGIN_ALLOW_THREADS;
    status = spw_buffer_create(state->context, (size_t)size, SPW_CHARGE_HELD, &buffer,
                               &error);
    Py_END_ALLOW_THREADS;
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    PyObject *view = buffer_view(state, buffer);
    spw_buffer_unref(buffer);
    return view;
}

PyObject *native_trim(PyObject *module, PyObject *args)
{
    module_state *state = PyModule_GetState(module);
    uint64_t keep_bytes, next_due_ms;
    uint32_t older_than_ms;
    if (!PyArg_ParseTuple(args, "O&O&:trim", bytes_argument, &keep_bytes,
                          milliseconds_argument, &older_than_ms))
        return NULL;
    /* Gigabytes may go, and other threads have better to do than wait for that. */
    Py_BEGIN_ALLOW_THREADS;
    spw_context_trim(state->context, keep_bytes, older_than_ms, &next_due_ms);
    Py_END_ALLOW_THREADS;
    if (next_due_ms == SPW_TRIM_NEVER)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(next_due_ms);
}

PyObject *native_limit_in_flight(PyObject *module, PyObject *value)
{
    module_state *state = PyModule_GetState(module);
    uint64_t bytes;
    if (!bytes_argument(value, &bytes))
        return NULL;
    spw_budget_limit_in_flight(state->budget, bytes);
    Py_RETURN_NONE;
}

PyObject *native_limit_resident(PyObject *module, PyObject *args)
{
    module_state *state = PyModule_GetState(module);
    uint64_t bytes, cached_bytes;
    if (!PyArg_ParseTuple(args, "O&O&:limit_resident", bytes_argument, &bytes,
                          bytes_argument, &cached_bytes))
        return NULL;
    spw_context_limit_resident(state->context, bytes, cached_bytes);
    Py_RETURN_NONE;
}
