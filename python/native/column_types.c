/* Python knows of two kinds of columns, items and blobs, that lie in memory; all others
 * are parts of Arrow's arrays, whose types say what they are. */
#include "column_types.h"

#include "arrow_capsules.h"
#include "raise_status.h"

/* Returns: where more of them go; NULL with an exception set. */
static spw_column_type *grow(column_types *types, size_t more)
{
    size_t bytes = (types->count + more + 1) * sizeof *types->types;
    spw_column_type *grown = PyMem_Realloc(types->types, bytes);
    if (grown == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    types->types = grown;
    return &grown[types->count];
}

bool column_types_add_arrow(module_state *state, PyObject *capsule, column_types *types)
{
    size_t count;
    spw_error error;
    const struct ArrowSchema *schema = arrow_schema_in(capsule);
    if (schema == NULL)
        return false;
    spw_status status = spw_arrow_types(schema, NULL, 0, &count, &error);
    if (status == SPW_STATUS_OK) {
        spw_column_type *next = grow(types, count);
        if (next == NULL)
            return false;
        status = spw_arrow_types(schema, next, count, &count, &error);
    }
    if (status != SPW_STATUS_OK) {
        raise_status(state, &error);
        return false;
    }
    types->count += count;
    return true;
}

static bool add_one(module_state *state, PyObject *item, column_types *types)
{
    int kind;
    unsigned item_size;
    if (!PyTuple_Check(item))
        return column_types_add_arrow(state, item, types);
    if (!PyArg_ParseTuple(item, "iI:type", &kind, &item_size))
        return false;
    spw_column_type *next = grow(types, 1);
    if (next == NULL)
        return false;
    *next = (spw_column_type){.kind = (spw_column_kind)kind, .item_size = item_size};
    types->count++;
    return true;
}

bool column_types_add_all(module_state *state, PyObject *given, column_types *types)
{
    PyObject *items = PySequence_List(given);
    bool is_added = items != NULL && grow(types, 0) != NULL;
    for (Py_ssize_t i = 0; is_added && i < PyList_Size(items); i++)
        is_added = add_one(state, PyList_GetItem(items, i), types);
    Py_XDECREF(items);
    return is_added;
}

void column_types_clear(column_types *types)
{
    PyMem_Free(types->types);
    *types = (column_types){0};
}

size_t column_types_counted(const column_types *types)
{
    size_t count = 0;
    for (size_t i = 0; i < types->count; i++) {
        spw_column_kind kind = types->types[i].kind;
        count += kind == SPW_COLUMN_BINARY || kind == SPW_COLUMN_BLOB ||
                 kind == SPW_COLUMN_LIST;
    }
    return count;
}
