/* Python type Partitions: what a worker holds of the partitions of a shuffle. */
#ifndef SPW_NATIVE_PARTITIONS_TYPE_H
#define SPW_NATIVE_PARTITIONS_TYPE_H

#include "module_state.h"

/* Returns: a new reference, NULL with an exception set. */
PyTypeObject *partitions_type_create(PyObject *module);

#endif
