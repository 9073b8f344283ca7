/* Places of Python's for the columns of a partition that is read. */
#ifndef SPW_NATIVE_COLUMN_PLACES_H
#define SPW_NATIVE_COLUMN_PLACES_H

#include "column_types.h"

/* By the numbers that groups name them by. */
typedef struct column_type_sets {
    const column_types *sets;
    uint32_t count;
} column_type_sets;

typedef struct column_places {
    spw_column_place **groups; /* into places */
    uint32_t *group_types;
    uint64_t *group_rows;
    size_t group_count;
    spw_column_place *places;
    Py_buffer *views; /* what they point into, if not into arrays of Arrow's */
    size_t view_count;
    PyObject *given; /* a tuple, which keeps these */
} column_places;

/* From a sequence of a group each, (types, rows, (memory, ...)): writeable buffers, and
 * an ArrowArray for all columns of one. See that each has room for the rows.
 * Returns: false with an exception set, and then nothing to clear. */
bool column_places_open(module_state *state, PyObject *given,
                        const column_type_sets *sets, column_places *ret_places);
void column_places_clear(column_places *places);

#endif
