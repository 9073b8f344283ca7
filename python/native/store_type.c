/* Store. Whatever may wait for a disk or run a callback of the store's
 * is called without the GIL; what only looks keeps it.
 *
 * Not tracked by the garbage collector, which cannot see the values that a store has; a
 * value that refers back to its store lives until it is removed, or the store closed.
 */
#include "store_type.h"

#include "directory_list.h"
#include "frames.h"
#include "integer_arguments.h"
#include "raise_status.h"
#include "store_entry_type.h"
#include "stored_values.h"

typedef struct store_object {
    PyObject_HEAD spw_store *store; /* NULL until it is made */
    stored_values values;           /* its self */
} store_object;

spw_store *store_behind(PyObject *object)
{
    return ((store_object *)object)->store;
}

/* Items that borrow their paths. Returns: NULL with an exception set. */
static spw_store_directory *store_directories(const directory_list *list)
{
    spw_store_directory *items = PyMem_Calloc((size_t)list->count + 1, sizeof *items);
    for (Py_ssize_t i = 0; i < list->count && items != NULL; i++)
        items[i] = (spw_store_directory){.path = directory_list_path(list, i),
                                         .limit_bytes = list->limits[i]};
    if (items == NULL)
        PyErr_NoMemory();
    return items;
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"pack",  "unpack",     "directories", "target", "in_flight",
                            "small", "read_ahead", "threads",     "codec",  NULL};
    module_state *state = PyType_GetModuleState(type);
    PyObject *pack, *unpack, *directories;
    const char *codec = "";
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    directory_list list;
    spw_error error;
    unsigned threads = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "OOO|$O&O&O&O&O&s:Store", names, &pack, &unpack,
            &directories, bytes_argument, &options.target_bytes, bytes_argument,
            &options.in_flight_bytes, bytes_argument, &options.small_bytes,
            bytes_argument, &options.read_ahead_bytes, threads_argument, &threads,
            &codec))
        return NULL;
    if (!directory_list_open(directories, &list))
        return NULL;
    spw_store_directory *items = store_directories(&list);
    store_object *self = items != NULL ? PyObject_New(store_object, type) : NULL;
    if (self == NULL) {
        PyMem_Free(items);
        directory_list_clear(&list);
        return NULL;
    }
    self->store = NULL;
    self->values = (stored_values){
        .state = state, .pack = Py_NewRef(pack), .unpack = Py_NewRef(unpack)};
    options.ops = stored_value_ops;
    options.self = &self->values;
    options.directories = items;
    options.directory_count = (size_t)list.count;
    options.threads = threads;
    options.codec = (uint32_t)spw_codec_by_name(codec);
    spw_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = spw_store_create(state->context, &options, &self->store, &error);
    Py_END_ALLOW_THREADS;
    PyMem_Free(items);
    directory_list_clear(&list);
    if (status == SPW_STATUS_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return raise_status(state, &error);
}

static void store_dealloc(PyObject *object)
{
    store_object *self = (store_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    spw_store_free(self->store);
    Py_DECREF(self->values.pack);
    Py_DECREF(self->values.unpack);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* What put and put_spilled are given; the value is borrowed. */
typedef struct put_arguments {
    const char *key;
    Py_ssize_t key_size;
    PyObject *value;
    uint64_t weight;
} put_arguments;

/* false with an exception set. */
static bool put_parse(PyObject *args, put_arguments *ret_arguments)
{
    return PyArg_ParseTuple(args, "s#OO&", &ret_arguments->key,
                            &ret_arguments->key_size, &ret_arguments->value,
                            bytes_argument, &ret_arguments->weight) != 0;
}

/* The entry, if the store has taken the value's reference, which else is given back. */
static PyObject *put_answer(PyObject *object, PyObject *value, spw_entry *entry,
                            spw_status status, const spw_error *error)
{
    if (status == SPW_STATUS_OK)
        return entry_wrap(object, entry, value);
    Py_DECREF(value);
    return stored_values_raise(module_state_of(object), error);
}

/* With the GIL: it neither blocks nor calls back, and is for the event loop. */
static PyObject *store_put(PyObject *object, PyObject *args)
{
    put_arguments given;
    spw_entry *entry = NULL;
    spw_error error;
    if (!put_parse(args, &given))
        return NULL;
    Py_INCREF(given.value);
    spw_status status =
        spw_store_put(store_behind(object), given.key, (size_t)given.key_size,
                      given.value, given.weight, &entry, &error);
    return put_answer(object, given.value, entry, status, &error);
}

static PyObject *store_put_spilled(PyObject *object, PyObject *args)
{
    put_arguments given;
    spw_entry *entry = NULL;
    spw_error error;
    spw_status status;
    if (!put_parse(args, &given))
        return NULL;
    Py_INCREF(given.value);
    Py_BEGIN_ALLOW_THREADS;
    status =
        spw_store_put_spilled(store_behind(object), given.key, (size_t)given.key_size,
                              given.value, given.weight, &entry, &error);
    Py_END_ALLOW_THREADS;
    return put_answer(object, given.value, entry, status, &error);
}

/* Returns: what put_packed answers; NO_MEMORY with an exception set where the frames
 * cannot be had. */
static spw_status put_frames(PyObject *object, const char *key, Py_ssize_t key_size,
                             PyObject *frames, frames_way way, uint64_t weight,
                             spw_entry **ret_entry, spw_error *error)
{
    spw_payload *payload = payload_from_frames(module_state_of(object), frames, way);
    if (payload == NULL)
        return SPW_STATUS_NO_MEMORY;
    spw_status status = spw_store_put_packed(
        store_behind(object), key, (size_t)key_size, payload, weight, ret_entry, error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

static PyObject *store_put_packed(PyObject *object, PyObject *args)
{
    const char *key;
    Py_ssize_t key_size;
    PyObject *frames;
    uint64_t weight;
    spw_entry *entry;
    spw_error error;
    if (!PyArg_ParseTuple(args, "s#OO&:put_packed", &key, &key_size, &frames,
                          bytes_argument, &weight))
        return NULL;
    spw_status status = put_frames(object, key, key_size, frames, FRAMES_AS_RECEIVED,
                                   weight, &entry, &error);
    /* What another store received, or this one before it was closed, is read. */
    if (status == SPW_STATUS_INVALID_ARGUMENT || status == SPW_STATUS_CLOSED)
        status = put_frames(object, key, key_size, frames, FRAMES_READ, weight, &entry,
                            &error);
    if (status != SPW_STATUS_OK)
        return stored_values_raise(module_state_of(object), &error);
    return entry_wrap(object, entry, NULL);
}

static PyObject *store_evict(PyObject *object, PyObject *excess)
{
    uint64_t bytes;
    if (!bytes_argument(excess, &bytes))
        return NULL;
    return PyLong_FromLongLong(spw_store_evict(store_behind(object), bytes));
}

static PyObject *store_is_behind(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    return PyBool_FromLong(spw_store_is_behind(store_behind(object)));
}

static PyObject *store_reads_ahead(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    return PyBool_FromLong(spw_store_reads_ahead(store_behind(object)));
}

/* A failure as an exception object. With the GIL; none is set afterwards. What pack
 * raised is the one of what could not be packed only: else it is of a value that was
 * removed meanwhile, of which nobody is told. */
static PyObject *take_exception(module_state *state, const spw_error *error)
{
    PyObject *type, *value, *traceback;
    if (error->status != SPW_STATUS_UNSUPPORTED)
        PyErr_Clear();
    if (!PyErr_Occurred())
        (void)raise_status(state, error);
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        (void)PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *store_work(PyObject *object, PyObject *args)
{
    int timeout_ms;
    spw_store_event event;
    if (!PyArg_ParseTuple(args, "i:work", &timeout_ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    spw_store_work(store_behind(object), timeout_ms, &event);
    Py_END_ALLOW_THREADS;
    if (event.kind != SPW_STORE_FAILED) {
        PyErr_Clear(); /* of a value that was removed while it was packed */
        return Py_BuildValue("(IOO)", event.kind, Py_None, Py_None);
    }
    size_t key_size;
    const char *key = spw_entry_key(event.entry, &key_size);
    PyObject *exception = take_exception(module_state_of(object), &event.error);
    PyObject *answer =
        Py_BuildValue("(Is#N)", event.kind, key, (Py_ssize_t)key_size, exception);
    spw_entry_unref(event.entry);
    return answer;
}

static PyObject *store_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_store_close(store_behind(object));
    Py_RETURN_NONE;
}

static PyObject *tier(const spw_store_tier *one)
{
    return Py_BuildValue("{sKsKsK}", "count", (unsigned long long)one->count, "weight",
                         (unsigned long long)one->weight, "bytes",
                         (unsigned long long)one->bytes);
}

/* Add a number to a dict. */
static int add_number(PyObject *dict, const char *name, uint64_t number)
{
    PyObject *value = PyLong_FromUnsignedLongLong(number);
    int answer = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return answer;
}

static PyObject *store_figures(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_store_figures f;
    spw_store_read_figures(store_behind(object), &f);
    PyObject *all =
        Py_BuildValue("{sNsNsNsN}", "live", tier(&f.live), "packed", tier(&f.packed),
                      "on_disk", tier(&f.on_disk), "clean", tier(&f.clean));
    const struct {
        const char *name;
        uint64_t number;
    } numbers[] = {
        {"disk_bytes", f.disk_bytes},
        {"files", f.files},
        {"leaving_bytes", f.leaving_bytes},
        {"packs", f.packs},
        {"unpacks", f.unpacks},
        {"writes", f.writes},
        {"reads", f.reads},
        {"drops", f.drops},
        {"written_bytes", f.written_bytes},
        {"read_bytes", f.read_bytes},
        {"moved_bytes", f.moved_bytes},
        {"pack_ns", f.pack_ns},
        {"unpack_ns", f.unpack_ns},
        {"write_ns", f.write_ns},
        {"read_ns", f.read_ns},
        {"compress_ns", f.compress_ns},
        {"decompress_ns", f.decompress_ns},
        {"failures", f.failures},
        {"losses", f.losses},
        {"ahead_bytes", f.ahead_bytes},
        {"ahead_used_bytes", f.ahead_used_bytes},
        {"ahead_dropped_bytes", f.ahead_dropped_bytes},
        {"arriving_bytes", f.arriving_bytes},
        {"received", f.received},
        {"received_bytes", f.received_bytes},
        {"adopted", f.adopted},
        {"adopted_bytes", f.adopted_bytes},
    };
    for (size_t i = 0; all != NULL && i < sizeof numbers / sizeof numbers[0]; i++)
        if (add_number(all, numbers[i].name, numbers[i].number) < 0)
            Py_CLEAR(all);
    return all;
}

/* ----- the type ----- */

PyTypeObject *store_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"close", store_close, METH_NOARGS,
         "Write nothing more, and have work answer that it is closed."},
        {"evict", store_evict, METH_O,
         "evict(excess, /)\n--\n\n"
         "Start that the value used longest ago leaves memory. The weight in bytes "
         "that "
         "is leaving, or -1."},
        {"figures", store_figures, METH_NOARGS, "What it has and did."},
        {"is_behind", store_is_behind, METH_NOARGS,
         "Whether who makes new values should wait for those that are leaving."},
        {"put", store_put, METH_VARARGS,
         "put(key, value, weight, /)\n--\n\nPut a value in. A StoreEntry."},
        {"put_packed", store_put_packed, METH_VARARGS,
         "put_packed(key, frames, weight, /)\n--\n\n"
         "Put a value in as pack would return it. A StoreEntry."},
        {"put_spilled", store_put_spilled, METH_VARARGS,
         "put_spilled(key, value, weight, /)\n--\n\n"
         "Put a value straight to disk, and wait for that. A StoreEntry."},
        {"reads_ahead", store_reads_ahead, METH_NOARGS,
         "Whether a value could be read ahead, as far as the store is concerned."},
        {"work", store_work, METH_VARARGS,
         "work(timeout_ms, /)\n--\n\n"
         "Pack what is to leave and let go of what has left, until something happened: "
         "(kind, key, exception)."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc,
         "Store(pack, unpack, directories, *, target=0, in_flight=0, small=0, "
         "read_ahead=0, threads=0, codec=\"\")\n--\n\n"
         "Values that leave memory when it is short, for directories: pairs of a path "
         "and a limit in bytes, 0 for none."},
        {Py_tp_new, store_new},
        {Py_tp_dealloc, store_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Store",
        .basicsize = sizeof(store_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
