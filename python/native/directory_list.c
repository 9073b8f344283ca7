/* Paths are kept as objects, since what is passed on points into them. */
#include "directory_list.h"

#include "integer_arguments.h"

static bool add(directory_list *list, PyObject *pair)
{
    PyObject *path = NULL;
    uint64_t limit;
    if (!PyTuple_Check(pair)) {
        PyErr_SetString(PyExc_TypeError, "directories are pairs of a path and a limit");
        return false;
    }
    if (!PyArg_ParseTuple(pair, "O&O&", PyUnicode_FSConverter, &path, bytes_argument,
                          &limit))
        return false;
    list->paths[list->count] = path;
    list->limits[list->count++] = limit;
    return true;
}

bool directory_list_open(PyObject *given, directory_list *ret_list)
{
    PyObject *pairs = PySequence_List(given);
    if (pairs == NULL)
        return false;
    Py_ssize_t count = PyList_Size(pairs);
    directory_list list = {
        .paths = PyMem_Calloc((size_t)count + 1, sizeof *list.paths),
        .limits = PyMem_Calloc((size_t)count + 1, sizeof *list.limits),
    };
    bool is_made = list.paths != NULL && list.limits != NULL;
    if (!is_made)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && is_made; i++)
        is_made = add(&list, PyList_GetItem(pairs, i));
    Py_DECREF(pairs);
    if (is_made)
        *ret_list = list;
    else
        directory_list_clear(&list);
    return is_made;
}

void directory_list_clear(directory_list *list)
{
    for (Py_ssize_t i = 0; i < list->count; i++)
        Py_DECREF(list->paths[i]);
    PyMem_Free(list->paths);
    PyMem_Free(list->limits);
}

const char *directory_list_path(const directory_list *list, Py_ssize_t i)
{
    return PyBytes_AsString(list->paths[i]);
}
