/* Statuses become exceptions here and nowhere else. What Python has a class of its own
 * for is raised as that; everything else keeps errno, strerror and status. */
#include "raise_status.h"

#include <string.h>

PyObject *spillway_error_create(void)
{
    return PyErr_NewExceptionWithDoc(
        "spillway._native.SpillwayError",
        "What a C call answered: errno (0 when the operating system had no part), "
        "strerror, and status, the name of the status such as \"PEER_CLOSED\".",
        PyExc_OSError, NULL);
}

static PyObject *make_spillway_error(module_state *state, const spw_error *error,
                                     PyObject *message)
{
    PyObject *name = PyUnicode_FromString(spw_status_name(error->status));
    if (name == NULL)
        return NULL;
    /* The subclass stays as it is: only OSError itself turns into the class that
     * belongs to an errno. */
    PyObject *exception =
        PyObject_CallFunction(state->error_type, "iO", error->os_errno, message);
    if (exception != NULL && PyObject_SetAttr(exception, state->name_status, name) < 0)
        Py_CLEAR(exception);
    Py_DECREF(name);
    return exception;
}

PyObject *raise_status(module_state *state, const spw_error *error)
{
    /* A message may have been cut in the middle of a character. */
    PyObject *message = PyUnicode_DecodeUTF8(
        error->message, (Py_ssize_t)strlen(error->message), "replace");
    if (message == NULL)
        return NULL;
    if (error->status == SPW_STATUS_NO_MEMORY) {
        PyErr_SetObject(PyExc_MemoryError, message);
    } else if (error->status == SPW_STATUS_INVALID_ARGUMENT) {
        PyErr_SetObject(PyExc_ValueError, message);
    } else {
        PyObject *exception = make_spillway_error(state, error, message);
        if (exception != NULL)
            PyErr_SetObject(state->error_type, exception);
        Py_XDECREF(exception);
    }
    Py_DECREF(message);
    return NULL;
}
