/* Columns of a table that Python has, as the library splits them: their memory is kept
 * for as long as that takes. */
#ifndef SPW_NATIVE_EXPORTED_COLUMNS_H
#define SPW_NATIVE_EXPORTED_COLUMNS_H

#include "module_state.h"

/* What keeps the memory of some columns: of one whose memory is exported by Python, or
 * of all those of an array of Arrow's. */
typedef struct column_owner {
    Py_buffer values, data; /* a view whose obj is NULL is none */
    PyObject *capsules;     /* an array's; NULL: it is none */
    bool is_range;          /* values are first, first + step and so on, of 8 bytes */
    int64_t first, step;
    spw_buffer *written; /* these values; NULL until they are filled */
    size_t column;       /* the first of its columns */
} column_owner;

typedef struct exported_columns {
    spw_column *columns;
    size_t count;
    column_owner *owners;
    size_t owner_count;
} exported_columns;

/* From a sequence, as _native.pyi has it: (kind, item_size, values, data) for what is
 * in memory, None for what a column has not, and a range for values that follow from
 * it; (schema, array) for what is Arrow's. See that memory is as large as row_count
 * rows need, for a blob as partition_count offsets do, and that arrays have as many
 * rows. Returns: false with an exception set, and then nothing to clear. */
bool exported_columns_open(module_state *state, PyObject *given, uint64_t row_count,
                           uint32_t partition_count, exported_columns *ret_columns);
void exported_columns_clear(exported_columns *columns);
/* Write out what ranges stand for. Before the columns are read; needs no GIL.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED. */
spw_status exported_columns_fill(spw_context *context, uint64_t row_count,
                                 exported_columns *columns, spw_error *error);

#endif
