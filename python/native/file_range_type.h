/* Python type FileRange: a frame of a stored value that is on disk. It is sent from
 * there without being read; to everybody else it is memory, which it reads when that is
 * asked for. */
#ifndef SPW_NATIVE_FILE_RANGE_TYPE_H
#define SPW_NATIVE_FILE_RANGE_TYPE_H

#include "module_state.h"

/* Returns: a new reference, NULL with an exception set. */
PyTypeObject *file_range_type_create(PyObject *module);

/* Borrows: slice, of SPW_MEMORY_FILE and with bytes in it; its file gets a reference
 * more. Returns: a new reference, NULL with an exception set. */
PyObject *file_range_wrap(module_state *state, const spw_slice *slice);

/* How it is sent from its file. Returns: in ret_slice a slice with a reference of the
 * caller's; false for any other object, without an exception, and for a FileRange that
 * has been read, or is on disk in other bytes than are to be sent. */
bool file_range_slice(module_state *state, PyObject *frame, spw_slice *ret_slice);

/* take_ranges(process, descriptor, device, inode, places, /) of the module. */
PyObject *native_take_ranges(PyObject *module, PyObject *args);

#endif
