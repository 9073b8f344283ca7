/* Python type Store: values of one worker, live, packed or on disk (spillway/store.h),
 * and StoreEntry, one of them. */
#ifndef SPW_NATIVE_STORE_TYPE_H
#define SPW_NATIVE_STORE_TYPE_H

#include "module_state.h"

/* Returns: a new reference, NULL with an exception set. */
PyTypeObject *store_type_create(PyObject *module);
PyTypeObject *store_entry_type_create(PyObject *module);

#endif
