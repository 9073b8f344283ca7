/* What a store does with Python objects: it packs and unpacks them by two callables, on
 * whatever thread of Python's asks it for work or for a value, with or without the GIL
 * held there. */
#ifndef SPW_NATIVE_STORED_VALUES_H
#define SPW_NATIVE_STORED_VALUES_H

#include "module_state.h"

typedef struct stored_values {
    module_state *state; /* borrowed */
    PyObject *pack;      /* value -> list of frames */
    PyObject *unpack;    /* list of frames -> value */
} stored_values;

/* self is a stored_values. An exception of pack or unpack stays set on the thread, for
 * who called the store there. */
extern const spw_object_ops stored_value_ops;

/* What a call of the store answered, as an exception: that of pack or unpack if there
 * is one. Returns: NULL. */
PyObject *stored_values_raise(module_state *state, const spw_error *error);

#endif
