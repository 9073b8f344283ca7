/* Partitions. What may wait for a disk or copies rows is called without the GIL. A call
 * holds a reference to its object, so that none is under way when the object goes.
 *
 * Not tracked by the garbage collector: it refers to no Python object but, through the
 * buffers of pieces, to what exports their memory, which knows nothing of it.
 */
#include "partitions_type.h"

#include "column_places.h"
#include "directory_list.h"
#include "frames.h"
#include "integer_arguments.h"
#include "raise_status.h"

typedef struct partitions_object {
    PyObject_HEAD spw_partitions *partitions; /* NULL until it is made */
    column_types *types;                      /* by number, of type_sets */
    uint32_t type_sets;
    uint32_t partition_count;
} partitions_object;

static PyObject *fail(PyObject *self, const spw_error *error)
{
    return raise_status(module_state_of(self), error);
}

static spw_status create(module_state *state, const directory_list *list,
                         spw_partitions_options *options, partitions_object *self,
                         spw_error *error)
{
    spw_partitions_directory *items =
        PyMem_Calloc((size_t)list->count + 1, sizeof *items);
    if (items == NULL) {
        *error = (spw_error){.status = SPW_STATUS_NO_MEMORY};
        return SPW_STATUS_NO_MEMORY;
    }
    for (Py_ssize_t i = 0; i < list->count; i++)
        items[i] = (spw_partitions_directory){.path = directory_list_path(list, i),
                                              .limit_bytes = list->limits[i]};
    options->directories = items;
    options->directory_count = (size_t)list->count;
    spw_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = spw_partitions_create(state->context, options, &self->partitions, error);
    Py_END_ALLOW_THREADS;
    PyMem_Free(items);
    return status;
}

static PyObject *partitions_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"count", "directories", "memory", "ahead", NULL};
    module_state *state = PyType_GetModuleState(type);
    PyObject *directories, *memory = Py_None;
    unsigned count;
    int ahead = 0;
    directory_list list;
    spw_partitions_options options = SPW_PARTITIONS_OPTIONS_INIT;
    options.memory_limit_bytes = SPW_PARTITIONS_IN_MEMORY;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "IO|$Op:Partitions", names, &count,
                                     &directories, &memory, &ahead))
        return NULL;
    if (memory != Py_None && !bytes_argument(memory, &options.memory_limit_bytes))
        return NULL;
    if (!directory_list_open(directories, &list))
        return NULL;
    options.partition_count = count;
    options.reads_ahead = (uint32_t)ahead;
    partitions_object *self = PyObject_New(partitions_object, type);
    if (self == NULL) {
        directory_list_clear(&list);
        return NULL;
    }
    self->partitions = NULL;
    self->types = NULL;
    self->type_sets = 0;
    self->partition_count = count;
    spw_error error;
    spw_status status = create(state, &list, &options, self, &error);
    directory_list_clear(&list);
    if (status == SPW_STATUS_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return raise_status(state, &error);
}

static void partitions_dealloc(PyObject *object)
{
    partitions_object *self = (partitions_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    /* Gigabytes may go, and nobody else knows of them any more. */
    Py_BEGIN_ALLOW_THREADS;
    spw_partitions_free(self->partitions);
    Py_END_ALLOW_THREADS;
    for (uint32_t i = 0; i < self->type_sets; i++)
        column_types_clear(&self->types[i]);
    PyMem_Free(self->types);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Room for one more set. */
static bool grow_types(partitions_object *self)
{
    size_t bytes = ((size_t)self->type_sets + 1) * sizeof *self->types;
    column_types *grown = PyMem_Realloc(self->types, bytes);
    if (grown == NULL) {
        PyErr_NoMemory();
        return false;
    }
    self->types = grown;
    return true;
}

static PyObject *partitions_add_types(PyObject *object, PyObject *given)
{
    partitions_object *self = (partitions_object *)object;
    column_types types = {0};
    uint32_t number;
    spw_error error;
    /* What is called of Arrow's may let other threads come in between. */
    if (!column_types_add_all(module_state_of(object), given, &types) ||
        !grow_types(self)) {
        column_types_clear(&types);
        return NULL;
    }
    if (spw_partitions_add_types(self->partitions, types.types, types.count, &number,
                                 &error) != SPW_STATUS_OK) {
        column_types_clear(&types);
        return fail(object, &error);
    }
    self->types[number] = types;
    self->type_sets = number + 1;
    return PyLong_FromUnsignedLong(number);
}

static PyObject *put(PyObject *object, spw_piece *piece, PyObject *shards)
{
    module_state *state = module_state_of(object);
    PyObject *frames = PyList_New(1);
    if (frames == NULL)
        return NULL;
    PyList_SetItem(frames, 0, Py_NewRef(shards));
    spw_payload *payload = payload_from_frames(state, frames, FRAMES_AS_RECEIVED);
    Py_DECREF(frames);
    if (payload == NULL)
        return NULL;
    const spw_slice *slice = spw_payload_slices(payload);
    piece->buffer = slice->buffer;
    piece->offset = slice->offset;
    piece->size = slice->size;
    unsigned answer;
    spw_error error;
    spw_status status = spw_partitions_put(((partitions_object *)object)->partitions,
                                           piece, &answer, &error);
    spw_payload_free(payload);
    if (status != SPW_STATUS_OK)
        return fail(object, &error);
    return Py_BuildValue("(OO)", answer & SPW_PUT_WAS_THERE ? Py_False : Py_True,
                         answer & SPW_PUT_WRITE_IS_DUE ? Py_True : Py_False);
}

static PyObject *partitions_put(PyObject *object, PyObject *args)
{
    partitions_object *self = (partitions_object *)object;
    Py_ssize_t rows_size, counts_size;
    const char *rows, *counts;
    PyObject *shards;
    unsigned types, input;
    if (!PyArg_ParseTuple(args, "IIOy#y#:put", &types, &input, &shards, &rows,
                          &rows_size, &counts, &counts_size))
        return NULL;
    size_t partitions = self->partition_count;
    if (types >= self->type_sets || (size_t)rows_size != partitions * 4 ||
        (size_t)counts_size !=
            partitions * column_types_counted(&self->types[types]) * 8) {
        PyErr_SetString(PyExc_ValueError,
                        "there are other types or numbers of shards than that");
        return NULL;
    }
    if ((uintptr_t)rows % 4 != 0 || (uintptr_t)counts % 8 != 0) {
        PyErr_SetString(PyExc_ValueError, "tables of shards begin on no boundary");
        return NULL;
    }
    spw_piece piece = {
        .types = types,
        .input = input,
        .partition_count = self->partition_count,
        .rows = (const void *)rows,
        .counts = counts_size > 0 ? (const void *)counts : NULL,
    };
    return put(object, &piece, shards);
}

static PyObject *partitions_write(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    uint64_t bytes;
    spw_error error;
    spw_status status;
    Py_BEGIN_ALLOW_THREADS;
    status =
        spw_partitions_write(((partitions_object *)object)->partitions, &bytes, &error);
    Py_END_ALLOW_THREADS;
    if (status != SPW_STATUS_OK)
        return fail(object, &error);
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *partitions_limit(PyObject *object, PyObject *value)
{
    uint64_t bytes;
    if (!bytes_argument(value, &bytes))
        return NULL;
    spw_partitions_limit(((partitions_object *)object)->partitions, bytes);
    Py_RETURN_NONE;
}

static PyObject *partitions_expect(PyObject *object, PyObject *value)
{
    unsigned long partition = PyLong_AsUnsignedLong(value);
    if (partition == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    spw_partitions_expect(((partitions_object *)object)->partitions,
                          partition < UINT32_MAX ? (uint32_t)partition : UINT32_MAX);
    Py_RETURN_NONE;
}

static PyObject *partitions_finish(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_partitions_finish(((partitions_object *)object)->partitions);
    Py_RETURN_NONE;
}

static PyObject *partitions_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_partitions_close(((partitions_object *)object)->partitions);
    Py_RETURN_NONE;
}

/* (types, rows, (count, ...)) */
static PyObject *group_tuple(const partitions_object *self,
                             const spw_partition_group *group)
{
    size_t count = column_types_counted(&self->types[group->types]);
    PyObject *counts = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && counts != NULL; i++)
        PyTuple_SetItem(counts, (Py_ssize_t)i,
                        PyLong_FromUnsignedLongLong(group->counts[i]));
    if (counts == NULL)
        return NULL;
    return Py_BuildValue("(IKN)", group->types, (unsigned long long)group->rows,
                         counts);
}

static PyObject *partitions_measure(PyObject *object, PyObject *args)
{
    partitions_object *self = (partitions_object *)object;
    unsigned partition;
    spw_partition_groups *groups;
    spw_error error;
    spw_status status;
    if (!PyArg_ParseTuple(args, "I:measure", &partition))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = spw_partitions_measure(self->partitions, partition, &groups, &error);
    Py_END_ALLOW_THREADS;
    if (status != SPW_STATUS_OK)
        return fail(object, &error);
    size_t count;
    const spw_partition_group *all = spw_partition_groups_all(groups, &count);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && list != NULL; i++) {
        PyObject *tuple = group_tuple(self, &all[i]);
        if (tuple == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, tuple);
    }
    spw_partition_groups_free(groups);
    return list;
}

/* Places have room for what measure said; see that it is still so. Needs no GIL. */
static spw_status read_into(const partitions_object *self, uint32_t partition,
                            const column_places *places, spw_error *error)
{
    spw_partition_groups *groups;
    spw_status status =
        spw_partitions_measure(self->partitions, partition, &groups, error);
    if (status != SPW_STATUS_OK)
        return status;
    size_t count;
    const spw_partition_group *all = spw_partition_groups_all(groups, &count);
    bool is_same = count == places->group_count;
    for (size_t i = 0; i < count && is_same; i++)
        is_same = all[i].types == places->group_types[i] &&
                  all[i].rows == places->group_rows[i];
    spw_partition_groups_free(groups);
    if (!is_same) {
        *error = (spw_error){.status = SPW_STATUS_INVALID_ARGUMENT,
                             .message = "places are for other rows than there are"};
        return SPW_STATUS_INVALID_ARGUMENT;
    }
    return spw_partitions_read(self->partitions, partition, places->groups, count,
                               error);
}

static PyObject *partitions_read(PyObject *object, PyObject *args)
{
    partitions_object *self = (partitions_object *)object;
    unsigned partition;
    PyObject *given;
    column_places places;
    if (!PyArg_ParseTuple(args, "IO:read", &partition, &given))
        return NULL;
    column_type_sets sets = {self->types, self->type_sets};
    if (!column_places_open(module_state_of(object), given, &sets, &places))
        return NULL;
    spw_error error;
    spw_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = read_into(self, partition, &places, &error);
    Py_END_ALLOW_THREADS;
    column_places_clear(&places);
    if (status != SPW_STATUS_OK)
        return fail(object, &error);
    Py_RETURN_NONE;
}

static PyObject *partitions_figures(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_partitions_figures now;
    spw_partitions_read_figures(((partitions_object *)object)->partitions, &now);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "memory_bytes",
        (unsigned long long)now.memory_bytes, "held_bytes",
        (unsigned long long)now.held_bytes, "disk_bytes",
        (unsigned long long)now.disk_bytes, "partitions",
        (unsigned long long)now.partitions, "put_bytes",
        (unsigned long long)now.put_bytes, "written_bytes",
        (unsigned long long)now.written_bytes, "read_bytes",
        (unsigned long long)now.read_bytes, "writes", (unsigned long long)now.writes,
        "rows", (unsigned long long)now.rows, "write_ns",
        (unsigned long long)now.write_ns, "read_ns", (unsigned long long)now.read_ns);
}

PyTypeObject *partitions_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"add_types", partitions_add_types, METH_O, NULL},
        {"put", partitions_put, METH_VARARGS, NULL},
        {"write", partitions_write, METH_NOARGS, NULL},
        {"limit", partitions_limit, METH_O, NULL},
        {"expect", partitions_expect, METH_O, NULL},
        {"finish", partitions_finish, METH_NOARGS, NULL},
        {"measure", partitions_measure, METH_VARARGS, NULL},
        {"read", partitions_read, METH_VARARGS, NULL},
        {"figures", partitions_figures, METH_NOARGS, NULL},
        {"close", partitions_close, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "What a worker holds of the partitions of a shuffle."},
        {Py_tp_new, partitions_new},
        {Py_tp_dealloc, partitions_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Partitions",
        .basicsize = sizeof(partitions_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
