/* Splitting a table's rows by partition, from Python. */
#ifndef SPW_NATIVE_SPLIT_FUNCTION_H
#define SPW_NATIVE_SPLIT_FUNCTION_H

#include "module_state.h"

/* As _native.pyi has it. Returns: a new reference, NULL with an exception set. */
PyObject *native_split(PyObject *module, PyObject *args);

#endif
