/* Places of Python's for the columns of a partition that is read. */
#ifndef SPW_NATIVE_COLUMN_PLACES_H
#define SPW_NATIVE_COLUMN_PLACES_H

#include "module_state.h"

/* Types of columns, by the numbers that groups name them by. */
typedef struct column_type_sets {
    const spw_column_type *const *types;
    const size_t *counts; /* how many types each has */
    uint32_t count;
} column_type_sets;

typedef struct column_places {
    spw_column_place **groups; /* into places */
    uint32_t *group_types;
    uint64_t *group_rows;
    size_t group_count;
    spw_column_place *places;
    Py_buffer *views;
    size_t view_count;
} column_places;

/* From a list of a group each, (types, rows, [(values, data, validity), ...]):
 * writeable buffers, None for what a column has not. See that each has room for the
 * rows. Returns: false with an exception set, and then nothing to clear. */
bool column_places_open(PyObject *list, const column_type_sets *sets,
                        column_places *ret_places);
void column_places_clear(column_places *places);

#endif
