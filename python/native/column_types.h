/* Types of columns, as Python says them. */
#ifndef SPW_NATIVE_COLUMN_TYPES_H
#define SPW_NATIVE_COLUMN_TYPES_H

#include "module_state.h"

typedef struct column_types {
    spw_column_type *types; /* PyMem */
    size_t count;
} column_types;

/* Add the types that a type of Arrow's becomes, which is in a capsule.
 * Returns: false with an exception set; types is as it was then. */
bool column_types_add_arrow(module_state *state, PyObject *capsule,
                            column_types *types);
/* Add those of a sequence: (kind, item_size) for memory, or a capsule.
 * Returns: false with an exception set; types may have some of them then. */
bool column_types_add_all(module_state *state, PyObject *given, column_types *types);
void column_types_clear(column_types *types);

/* Returns: for how many of them a shard has a count. */
size_t column_types_counted(const column_types *types);

#endif
