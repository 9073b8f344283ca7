/* ArrowArray. Whoever imports an array moves it out of its struct, whose release
 * callback is NULL from then on: then the places are no longer ours to write.
 *
 * Not tracked by the garbage collector: it refers to no Python object but, through
 * dictionaries, to those that own their memory, which know nothing of it.
 */
#include "arrow_array_type.h"

#include "arrow_capsules.h"
#include "integer_arguments.h"
#include "raise_status.h"

typedef struct arrow_array_object {
    PyObject_HEAD struct ArrowArray array; /* release is NULL until it is made, too */
    PyObject *type;                        /* as Python has it */
    column_types types;
    spw_column_place *places;
    uint64_t rows;
} arrow_array_object;

static void arrow_array_dealloc(PyObject *object)
{
    arrow_array_object *self = (arrow_array_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->array.release != NULL)
        self->array.release(&self->array);
    column_types_clear(&self->types);
    PyMem_Free(self->places);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* The counts of an array of that type. Returns: PyMem, NULL with an exception set. */
static uint64_t *parse_counts(PyObject *given, const column_types *types)
{
    size_t expected = column_types_counted(types);
    PyObject *items = PySequence_List(given);
    if (items == NULL)
        return NULL;
    uint64_t *counts = NULL;
    if ((size_t)PyList_Size(items) != expected)
        PyErr_Format(PyExc_ValueError, "%zd counts for columns that have %zu",
                     PyList_Size(items), expected);
    else if ((counts = PyMem_Calloc(expected + 1, sizeof *counts)) == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; counts != NULL && i < expected; i++)
        if (!bytes_argument(PyList_GetItem(items, (Py_ssize_t)i), &counts[i])) {
            PyMem_Free(counts);
            counts = NULL;
        }
    Py_DECREF(items);
    return counts;
}

static bool create(module_state *state, const struct ArrowSchema *schema,
                   const uint64_t *counts, arrow_array_object *self)
{
    self->places = PyMem_Calloc(self->types.count + 1, sizeof *self->places);
    if (self->places == NULL) {
        PyErr_NoMemory();
        return false;
    }
    spw_error error;
    spw_status status;
    /* Memory may have to be asked of the system for it. */
    Py_BEGIN_ALLOW_THREADS;
    status =
        spw_arrow_array_create(state->context, schema, self->rows, counts, self->places,
                               self->types.count, &self->array, &error);
    Py_END_ALLOW_THREADS;
    if (status != SPW_STATUS_OK)
        raise_status(state, &error);
    for (size_t i = 0; i < self->types.count && status == SPW_STATUS_OK; i++) {
        const spw_column_type *type = &self->types.types[i];
        if (type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_LIST)
            self->places[i].offset_size = type->item_size;
    }
    return status == SPW_STATUS_OK;
}

/* Move the next of the dictionaries into each place that is for one, in the order of
 * the tree. */
static bool put_dictionaries(struct ArrowArray *array, PyObject *iterator)
{
    if (array->dictionary != NULL) {
        struct ArrowArray *dictionary;
        PyObject *item = PyIter_Next(iterator);
        if (item == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "fewer dictionaries than columns "
                                                  "that have one");
            return false;
        }
        PyObject *capsules = arrow_array_of(item, &dictionary);
        Py_DECREF(item);
        if (capsules == NULL)
            return false;
        *array->dictionary = *dictionary;
        dictionary->release = NULL;
        Py_DECREF(capsules);
    }
    for (int64_t i = 0; i < array->n_children; i++)
        if (!put_dictionaries(array->children[i], iterator))
            return false;
    return true;
}

static bool fill(module_state *state, PyObject *capsule, PyObject *counts,
                 PyObject *dictionaries, arrow_array_object *self)
{
    if (!column_types_add_arrow(state, capsule, &self->types))
        return false;
    uint64_t *numbers = parse_counts(counts, &self->types);
    if (numbers == NULL)
        return false;
    bool is_made = create(state, arrow_schema_in(capsule), numbers, self);
    PyMem_Free(numbers);
    if (!is_made)
        return false;
    PyObject *iterator = PyObject_GetIter(dictionaries);
    is_made = iterator != NULL && put_dictionaries(&self->array, iterator);
    Py_XDECREF(iterator);
    return is_made;
}

static PyObject *arrow_array_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *schema, *counts, *dictionaries;
    uint64_t rows;
    static char *names[] = {"", "", "", "", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO&OO:ArrowArray", names, &schema,
                                     bytes_argument, &rows, &counts, &dictionaries))
        return NULL;
    arrow_array_object *self = PyObject_New(arrow_array_object, type);
    if (self != NULL) {
        self->array = (struct ArrowArray){0};
        self->types = (column_types){0};
        self->places = NULL;
        self->rows = rows;
        if (!fill(PyType_GetModuleState(type), schema, counts, dictionaries, self))
            Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *get_address(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromVoidPtr(&((arrow_array_object *)object)->array);
}

bool arrow_array_behind(module_state *state, PyObject *object,
                        arrow_array_places *ret_places)
{
    if (!Py_IS_TYPE(object, state->arrow_array_type))
        return false;
    const arrow_array_object *self = (arrow_array_object *)object;
    *ret_places = (arrow_array_places){&self->types, self->places, self->rows};
    return self->array.release != NULL;
}

PyObject *native_arrow_counts(PyObject *module, PyObject *schema)
{
    column_types types = {0};
    PyObject *number = NULL;
    if (column_types_add_arrow(PyModule_GetState(module), schema, &types))
        number = PyLong_FromSize_t(column_types_counted(&types));
    column_types_clear(&types);
    return number;
}

PyTypeObject *arrow_array_type_create(PyObject *module)
{
    static PyGetSetDef properties[] = {
        {"address", get_address, NULL, "Of its struct ArrowArray.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "An array of Arrow's that rows of a partition are read into."},
        {Py_tp_new, arrow_array_new},
        {Py_tp_dealloc, arrow_array_dealloc},
        {Py_tp_getset, properties},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.ArrowArray",
        .basicsize = sizeof(arrow_array_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
