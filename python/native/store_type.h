/* Python type Store: values of one worker, live, packed or on disk. */
#ifndef SPW_NATIVE_STORE_TYPE_H
#define SPW_NATIVE_STORE_TYPE_H

#include "module_state.h"

/* Returns: a new reference, NULL with an exception set. */
PyTypeObject *store_type_create(PyObject *module);

/* Borrows: the store behind a Store, as long as that lives. */
spw_store *store_behind(PyObject *store);

#endif
