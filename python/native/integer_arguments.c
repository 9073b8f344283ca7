/* Integers that must fit what the C interface takes. */
#include "integer_arguments.h"

#include <stdint.h>

static int bounded(PyObject *value, unsigned long long limit, const char *what,
                   unsigned long long *ret_value)
{
    PyObject *index = PyNumber_Index(value);
    if (index == NULL)
        return 0;
    unsigned long long number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred() != NULL) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return 0;
        PyErr_Clear();
        number = limit + 1;
    }
    if (number > limit) {
        PyErr_Format(PyExc_ValueError, "%s must be from 0 to %llu, not %S", what, limit,
                     value);
        return 0;
    }
    *ret_value = number;
    return 1;
}

int port_argument(PyObject *value, void *ret_port)
{
    unsigned long long number;
    if (!bounded(value, UINT16_MAX, "a port", &number))
        return 0;
    *(uint16_t *)ret_port = (uint16_t)number;
    return 1;
}

int bytes_argument(PyObject *value, void *ret_bytes)
{
    unsigned long long number;
    if (!bounded(value, INT64_MAX, "a count of bytes", &number))
        return 0;
    *(uint64_t *)ret_bytes = number;
    return 1;
}

int milliseconds_argument(PyObject *value, void *ret_milliseconds)
{
    unsigned long long number;
    if (!bounded(value, UINT32_MAX, "a time in milliseconds", &number))
        return 0;
    *(uint32_t *)ret_milliseconds = (uint32_t)number;
    return 1;
}

int threads_argument(PyObject *value, void *ret_threads)
{
    unsigned long long number;
    if (!bounded(value, SPW_REACTOR_THREADS_MAX, "a number of threads", &number))
        return 0;
    *(unsigned *)ret_threads = (unsigned)number;
    return 1;
}
