/* Python type StoreEntry: a value of a Store. */
#ifndef SPW_NATIVE_STORE_ENTRY_TYPE_H
#define SPW_NATIVE_STORE_ENTRY_TYPE_H

#include "module_state.h"
#include "spillway/store.h"

/* Returns: a new reference, NULL with an exception set. */
PyTypeObject *store_entry_type_create(PyObject *module);
/* Make one. store: the Store, which it keeps; value: what it has as an object, or NULL.
 * Takes: the reference of spw_store_put, also on failure. Returns: NULL with an
 * exception set. */
PyObject *entry_wrap(PyObject *store, spw_entry *entry, PyObject *value);

#endif
