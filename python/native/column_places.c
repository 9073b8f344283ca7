/* Invariant: a place that passes has room for the rows that its group is said to have,
 * so that the library may write them without the GIL. That the group has these rows is
 * who reads' to see; the bytes of binary columns are counted by the library. */
#include "column_places.h"

#include "arrow_array_type.h"

static bool refuse(size_t group, size_t number, const char *what)
{
    PyErr_Format(PyExc_ValueError, "column %zu of group %zu %s", number, group, what);
    return false;
}

/* Columns of one group, of which those before next have their places. */
typedef struct group_places {
    const column_types *types;
    uint64_t rows;
    size_t number, next;
    spw_column_place *places;
} group_places;

static bool open_memory(column_places *all, PyObject *memory, group_places *group)
{
    const spw_column_type *type = &group->types->types[group->next];
    bool is_blob = type->kind == SPW_COLUMN_BLOB;
    if ((!is_blob && type->kind != SPW_COLUMN_FIXED) || type->has_validity)
        return refuse(group->number, group->next, "goes into an array of Arrow's");
    Py_buffer *view = &all->views[all->view_count];
    if (PyObject_GetBuffer(memory, view, PyBUF_WRITABLE) < 0)
        return false;
    all->view_count++;
    uint64_t room = (uint64_t)view->len;
    if (!is_blob && group->rows > room / type->item_size)
        return refuse(group->number, group->next, "has less room than its rows take");
    group->places[group->next++] =
        is_blob ? (spw_column_place){.data = view->buf, .data_size = room}
                : (spw_column_place){.values = view->buf};
    return true;
}

/* Whether shards of one type can be joined into places of the other. */
static bool is_same(const spw_column_type *one, const spw_column_type *other)
{
    bool has_offsets = one->kind == SPW_COLUMN_BINARY || one->kind == SPW_COLUMN_LIST;
    return one->kind == other->kind && one->has_validity == other->has_validity &&
           one->inner_columns == other->inner_columns &&
           (has_offsets || one->item_size == other->item_size);
}

static bool open_array(const arrow_array_places *array, group_places *group)
{
    size_t left = group->types->count - group->next;
    bool fits = array->types->count <= left && array->rows == group->rows;
    for (size_t i = 0; i < array->types->count && fits; i++) {
        fits = is_same(&group->types->types[group->next + i], &array->types->types[i]);
        group->places[group->next + i] = array->places[i];
    }
    group->next += array->types->count;
    return fits || refuse(group->number, group->next, "goes into another array");
}

/* The parts of a group's tuple. Returns: false with an exception set. */
static bool parse_group(PyObject *tuple, const column_type_sets *sets,
                        unsigned *ret_types, uint64_t *ret_rows, PyObject **ret_items)
{
    unsigned long long rows;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "groups are tuples");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "IKO!:group", ret_types, &rows, &PyTuple_Type,
                          ret_items))
        return false;
    *ret_rows = rows;
    if (*ret_types < sets->count)
        return true;
    PyErr_Format(PyExc_ValueError, "types %u, of which nobody said what they are",
                 *ret_types);
    return false;
}

/* Memory for all groups. Returns: false with an exception set. */
static bool make_room(column_places *places, const column_type_sets *sets)
{
    size_t columns = 0, items = 0;
    for (size_t i = 0; i < places->group_count; i++) {
        unsigned types;
        uint64_t rows;
        PyObject *given;
        if (!parse_group(PyTuple_GetItem(places->given, (Py_ssize_t)i), sets, &types,
                         &rows, &given))
            return false;
        columns += sets->sets[types].count;
        items += (size_t)PyTuple_Size(given);
    }
    places->groups = PyMem_Calloc(places->group_count + 1, sizeof *places->groups);
    places->group_types = PyMem_Calloc(places->group_count + 1, sizeof(uint32_t));
    places->group_rows = PyMem_Calloc(places->group_count + 1, sizeof(uint64_t));
    places->places = PyMem_Calloc(columns + 1, sizeof *places->places);
    places->views = PyMem_Calloc(items + 1, sizeof *places->views);
    if (places->groups != NULL && places->group_types != NULL &&
        places->group_rows != NULL && places->places != NULL && places->views != NULL)
        return true;
    PyErr_NoMemory();
    return false;
}

static bool open_group(module_state *state, column_places *all,
                       const column_type_sets *sets, size_t number,
                       spw_column_place *places)
{
    unsigned types;
    PyObject *items;
    group_places group = {.number = number, .places = places};
    if (!parse_group(PyTuple_GetItem(all->given, (Py_ssize_t)number), sets, &types,
                     &group.rows, &items))
        return false;
    group.types = &sets->sets[types];
    all->groups[number] = places;
    all->group_types[number] = types;
    all->group_rows[number] = group.rows;
    for (Py_ssize_t i = 0; i < PyTuple_Size(items); i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        arrow_array_places array;
        bool is_array = arrow_array_behind(state, item, &array);
        if (!is_array && group.next == group.types->count)
            return refuse(number, group.next, "is none of its types'");
        if (!(is_array ? open_array(&array, &group) : open_memory(all, item, &group)))
            return false;
    }
    return group.next == group.types->count ||
           refuse(number, group.next, "has no memory");
}

bool column_places_open(module_state *state, PyObject *given,
                        const column_type_sets *sets, column_places *ret_places)
{
    column_places places = {.given = PySequence_Tuple(given)};
    if (places.given == NULL)
        return false;
    places.group_count = (size_t)PyTuple_Size(places.given);
    bool is_open = make_room(&places, sets);
    spw_column_place *next = places.places;
    for (size_t i = 0; i < places.group_count && is_open; i++) {
        is_open = open_group(state, &places, sets, i, next);
        if (is_open)
            next += sets->sets[places.group_types[i]].count;
    }
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
    Py_XDECREF(places->given);
}
