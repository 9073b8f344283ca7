/* decompress(): frames that a stock peer compressed, back to one buffer. */
#ifndef SPW_NATIVE_DECOMPRESS_H
#define SPW_NATIVE_DECOMPRESS_H

#include "module_state.h"

/* The module's function decompress(codec, frames). */
PyObject *native_decompress(PyObject *module, PyObject *args, PyObject *keywords);

#endif
