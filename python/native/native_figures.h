/* figures(): the context's and the budget's counters as a dict. */
#ifndef SPW_NATIVE_NATIVE_FIGURES_H
#define SPW_NATIVE_NATIVE_FIGURES_H

#include "module_state.h"

/* The module's function figures(). */
PyObject *native_figures(PyObject *module, PyObject *ignored);

#endif
