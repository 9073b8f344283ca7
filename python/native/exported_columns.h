/* Columns of a table that Python has, as the library splits them: their memory is
 * exported for as long as that takes. */
#ifndef SPW_NATIVE_EXPORTED_COLUMNS_H
#define SPW_NATIVE_EXPORTED_COLUMNS_H

#include "module_state.h"

/* Of one column: values, data and validity. A view whose obj is NULL is none. */
typedef struct column_views {
    Py_buffer parts[3];
    bool is_range; /* values are first, first + step and so on, of 8 bytes */
    int64_t first, step;
    spw_buffer *written; /* these values; NULL until they are filled */
} column_views;

typedef struct exported_columns {
    spw_column *columns;
    column_views *views; /* what they point into */
    size_t count;
} exported_columns;

/* From a list of tuples (kind, item_size, values, offset, values_bit_offset, data,
 * has_validity, validity, validity_bit_offset), as _native.pyi has them; None for what
 * a column has not, and a range for values that follow from it. See that the memory is
 * as large as row_count rows need, and for a blob as partition_count offsets do.
 * Returns: false with an exception set, and then nothing to clear. */
bool exported_columns_open(PyObject *list, uint64_t row_count, uint32_t partition_count,
                           exported_columns *ret_columns);
void exported_columns_clear(exported_columns *columns);
/* Write out what ranges stand for. Before the columns are read; needs no GIL.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED. */
spw_status exported_columns_fill(spw_context *context, uint64_t row_count,
                                 exported_columns *columns, spw_error *error);

#endif
