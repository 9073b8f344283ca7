/* Directories with limits, as stores and partitions are given them. */
#ifndef SPW_NATIVE_DIRECTORY_LIST_H
#define SPW_NATIVE_DIRECTORY_LIST_H

#include "module_state.h"

typedef struct directory_list {
    PyObject **paths; /* bytes, as the file system has them */
    uint64_t *limits;
    Py_ssize_t count;
} directory_list;

/* From a sequence of pairs of a path and a limit in bytes.
 * Returns: false with an exception set, and then nothing to clear. */
bool directory_list_open(PyObject *given, directory_list *ret_list);
void directory_list_clear(directory_list *list);

/* Borrows: the text, until the list is cleared. */
const char *directory_list_path(const directory_list *list, Py_ssize_t i);

#endif
