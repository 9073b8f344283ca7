/* Invariant: a place that passes has room for the rows that its group is said to have,
 * so that the library may write them without the GIL. That the group has these rows is
 * who reads' to see; the bytes of binary columns are counted by the library. */
#include "column_places.h"

static bool refuse(size_t group, size_t number, const char *what)
{
    PyErr_Format(PyExc_ValueError, "column %zu of group %zu %s", number, group, what);
    return false;
}

static bool has_room(const Py_buffer *view, const spw_column_type *type, uint64_t rows)
{
    uint64_t room = (uint64_t)view->len;
    switch (type->kind) {
    case SPW_COLUMN_FIXED:
        return rows <= room / type->item_size;
    case SPW_COLUMN_BITS:
        return rows <= room * 8;
    case SPW_COLUMN_BINARY:
        return rows < room / type->item_size;
    default:
        return true;
    }
}

/* The next of the views, exported; NULL with an exception set, or without one for None.
 */
static Py_buffer *export_next(column_places *places, PyObject *object)
{
    if (object == Py_None)
        return NULL;
    Py_buffer *view = &places->views[places->view_count];
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0)
        return NULL;
    places->view_count++;
    return view;
}

static bool open_one(column_places *places, PyObject *tuple,
                     const spw_column_type *type, uint64_t rows, size_t group,
                     size_t number, spw_column_place *ret_place)
{
    PyObject *values, *data, *validity;
    unsigned offset_size;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "places are tuples");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "OOOI:place", &values, &data, &validity, &offset_size))
        return false;
    spw_column_type wide = *type;
    if (type->kind == SPW_COLUMN_BINARY && offset_size != 0)
        wide.item_size = offset_size;
    Py_buffer *of_values = export_next(places, values);
    Py_buffer *of_data = PyErr_Occurred() ? NULL : export_next(places, data);
    Py_buffer *of_validity = PyErr_Occurred() ? NULL : export_next(places, validity);
    if (PyErr_Occurred())
        return false;
    if (type->kind != SPW_COLUMN_BLOB &&
        (of_values == NULL ? rows > 0 : !has_room(of_values, &wide, rows)))
        return refuse(group, number, "has less room than its rows take");
    if (type->has_validity &&
        (of_validity == NULL ? rows > 0 : rows > (uint64_t)of_validity->len * 8))
        return refuse(group, number, "has less room for its bitmap than rows");
    *ret_place = (spw_column_place){
        .values = of_values != NULL ? of_values->buf : NULL,
        .data = of_data != NULL ? of_data->buf : NULL,
        .data_size = of_data != NULL ? (uint64_t)of_data->len : 0,
        .validity = type->has_validity && of_validity != NULL ? of_validity->buf : NULL,
        .offset_size = type->kind == SPW_COLUMN_BINARY ? offset_size : 0,
    };
    return true;
}

/* How many places there are in all groups; -1 with an exception set. */
static Py_ssize_t count_places(PyObject *list)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        PyObject *group = PyList_GetItem(list, i);
        if (!PyTuple_Check(group) || PyTuple_Size(group) != 3 ||
            !PyList_Check(PyTuple_GetItem(group, 2))) {
            PyErr_SetString(PyExc_TypeError, "groups are tuples with a list of places");
            return -1;
        }
        total += PyList_Size(PyTuple_GetItem(group, 2));
    }
    return total;
}

static bool open_group(column_places *places, PyObject *tuple,
                       const column_type_sets *sets, size_t group, size_t *place)
{
    unsigned types;
    unsigned long long rows;
    PyObject *list;
    if (!PyArg_ParseTuple(tuple, "IKO:group", &types, &rows, &list))
        return false;
    if (types >= sets->count || (size_t)PyList_Size(list) != sets->counts[types]) {
        PyErr_Format(PyExc_ValueError, "group %zu has other columns than its types",
                     group);
        return false;
    }
    places->groups[group] = &places->places[*place];
    places->group_types[group] = types;
    places->group_rows[group] = rows;
    for (size_t i = 0; i < sets->counts[types]; i++, (*place)++)
        if (!open_one(places, PyList_GetItem(list, (Py_ssize_t)i),
                      &sets->types[types][i], rows, group, i, &places->places[*place]))
            return false;
    return true;
}

bool column_places_open(PyObject *list, const column_type_sets *sets,
                        column_places *ret_places)
{
    Py_ssize_t total = count_places(list);
    if (total < 0)
        return false;
    column_places places = {.group_count = (size_t)PyList_Size(list)};
    places.groups = PyMem_Calloc(places.group_count + 1, sizeof *places.groups);
    places.group_types = PyMem_Calloc(places.group_count + 1, sizeof(uint32_t));
    places.group_rows = PyMem_Calloc(places.group_count + 1, sizeof(uint64_t));
    places.places = PyMem_Calloc((size_t)total + 1, sizeof *places.places);
    places.views = PyMem_Calloc((size_t)total * 3 + 1, sizeof *places.views);
    bool is_open = places.groups != NULL && places.group_types != NULL &&
                   places.group_rows != NULL && places.places != NULL &&
                   places.views != NULL;
    if (!is_open)
        PyErr_NoMemory();
    size_t place = 0;
    for (size_t i = 0; i < places.group_count && is_open; i++)
        is_open =
            open_group(&places, PyList_GetItem(list, (Py_ssize_t)i), sets, i, &place);
    if (is_open)
        *ret_places = places;
    else
        column_places_clear(&places);
    return is_open;
}

void column_places_clear(column_places *places)
{
    for (size_t i = 0; i < places->view_count; i++)
        PyBuffer_Release(&places->views[i]);
    PyMem_Free(places->views);
    PyMem_Free(places->places);
    PyMem_Free(places->group_rows);
    PyMem_Free(places->group_types);
    PyMem_Free(places->groups);
}
