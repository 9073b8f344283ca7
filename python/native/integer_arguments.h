/* Converters for PyArg_Parse ("O&"): its own formats wrap around silently. */
#ifndef SPW_NATIVE_INTEGER_ARGUMENTS_H
#define SPW_NATIVE_INTEGER_ARGUMENTS_H

#include "module_state.h"

/* A TCP port, 0 to 65535, into a uint16_t. */
int port_argument(PyObject *value, void *ret_port);
/* A count of bytes, 0 to 2^63 - 1, into a uint64_t. */
int bytes_argument(PyObject *value, void *ret_bytes);
/* A time, 0 to 2^32 - 1 milliseconds, into a uint32_t. */
int milliseconds_argument(PyObject *value, void *ret_milliseconds);
/* A number of threads, 0 to SPW_REACTOR_THREADS_MAX, into an unsigned. */
int threads_argument(PyObject *value, void *ret_threads);

#endif
