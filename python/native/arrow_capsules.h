/* Capsules by which objects of Python's give Arrow's types and arrays: the structs of
 * its C Data Interface, which are gone with the capsules that own them. */
#ifndef SPW_NATIVE_ARROW_CAPSULES_H
#define SPW_NATIVE_ARROW_CAPSULES_H

#include "module_state.h"

/* What an object's __arrow_c_schema__ gave.
 * Borrows: the schema, as long as the capsule lives. Returns: NULL with an exception
 * set. */
const struct ArrowSchema *arrow_schema_in(PyObject *capsule);

/* Have an object give its array, by __arrow_c_array__.
 * Returns: what keeps it, a new reference, NULL with an exception set; in ret_array the
 * array. */
PyObject *arrow_array_of(PyObject *object, struct ArrowArray **ret_array);

#endif
