/* ArrowArray: an array of Arrow's that rows of a partition are read into. */
#ifndef SPW_NATIVE_ARROW_ARRAY_TYPE_H
#define SPW_NATIVE_ARROW_ARRAY_TYPE_H

#include "column_types.h"

PyTypeObject *arrow_array_type_create(PyObject *module);

typedef struct arrow_array_places {
    const column_types *types;
    const spw_column_place *places; /* one for each type */
    uint64_t rows;                  /* that they have room for */
} arrow_array_places;

/* Borrows: what is returned, until the object goes or somebody takes its array.
 * Returns: false, without an exception, for an object of another type, or an array that
 * somebody took. */
bool arrow_array_behind(module_state *state, PyObject *object,
                        arrow_array_places *ret_places);

/* arrow_counts(schema): how many counts an array of that type is made with. */
PyObject *native_arrow_counts(PyObject *module, PyObject *schema);

#endif
