/* FileRange. Invariant: memory is NULL, or a view of the bytes that were written, which
 * does not change any more. Not tracked by the garbage collector: that view refers to a
 * Buffer and nothing else. */
#include "file_range_type.h"

#include "buffer_type.h"
#include "integer_arguments.h"
#include "raise_status.h"

typedef struct file_range_object {
    PyObject_HEAD spw_slice slice; /* with one reference to its file */
    PyObject *memory;              /* once somebody asked for it */
} file_range_object;

PyObject *file_range_wrap(module_state *state, const spw_slice *slice)
{
    file_range_object *self = PyObject_New(file_range_object, state->file_range_type);
    if (self == NULL)
        return NULL;
    self->slice = *slice;
    (void)spw_file_ref(slice->file);
    self->memory = NULL;
    return (PyObject *)self;
}

static void file_range_dealloc(PyObject *object)
{
    file_range_object *self = (file_range_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    spw_file_unref(self->slice.file);
    Py_XDECREF(self->memory);
    PyObject_Free(object);
    Py_DECREF(type);
}

static bool is_compressed(const file_range_object *self)
{
    return self->slice.codec != SPW_CODEC_NONE;
}

bool file_range_slice(module_state *state, PyObject *frame, spw_slice *ret_slice)
{
    if (!Py_IS_TYPE(frame, state->file_range_type))
        return false;
    file_range_object *self = (file_range_object *)frame;
    if (self->memory != NULL || is_compressed(self))
        return false;
    *ret_slice = self->slice;
    (void)spw_file_ref(self->slice.file);
    return true;
}

/* ----- reading ----- */

/* A payload of this range alone. Needs no GIL. */
static spw_status payload_of(spw_context *context, const file_range_object *self,
                             spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    spw_status status = spw_payload_create(context, 1, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    (void)spw_file_ref(self->slice.file);
    status = spw_payload_append(payload, &self->slice, error);
    if (status != SPW_STATUS_OK) {
        spw_file_unref(self->slice.file);
        spw_payload_free(payload);
        return status;
    }
    *ret_payload = payload;
    return SPW_STATUS_OK;
}

/* Its bytes, verified. Needs no GIL. Returns: one reference. */
static spw_status read_range(spw_context *context, const file_range_object *self,
                             spw_buffer **ret_buffer, spw_error *error)
{
    spw_payload *on_disk = NULL, *read = NULL;
    spw_status status = payload_of(context, self, &on_disk, error);
    if (status == SPW_STATUS_OK)
        status = spw_payload_read_back(context, on_disk, &read, error);
    if (status == SPW_STATUS_OK)
        *ret_buffer = spw_buffer_ref(spw_payload_slices(read)[0].buffer);
    spw_payload_free(read);
    spw_payload_free(on_disk);
    return status;
}

static bool is_writeable(const file_range_object *self)
{
    return (self->slice.flags & SPW_SLICE_WRITEABLE) != 0;
}

/* Returns: a new reference, NULL with an exception set. */
static PyObject *view_of(module_state *state, const file_range_object *self,
                         spw_buffer *buffer)
{
    PyObject *view = buffer_view(state, buffer);
    if (view == NULL || is_writeable(self))
        return view;
    PyObject *readonly = PyObject_CallMethod(view, "toreadonly", NULL);
    Py_DECREF(view);
    return readonly;
}

/* Have memory. false with an exception set. */
static bool load(file_range_object *self)
{
    module_state *state = module_state_of((PyObject *)self);
    spw_buffer *buffer;
    spw_status status;
    spw_error error;
    if (self->memory != NULL)
        return true;
    Py_BEGIN_ALLOW_THREADS;
    status = read_range(state->context, self, &buffer, &error);
    Py_END_ALLOW_THREADS;
    if (status != SPW_STATUS_OK) {
        raise_status(state, &error);
        return false;
    }
    /* Another thread may have read it meanwhile, and somebody may look at that. */
    PyObject *view = self->memory == NULL ? view_of(state, self, buffer) : NULL;
    spw_buffer_unref(buffer);
    if (self->memory == NULL)
        self->memory = view;
    else
        Py_XDECREF(view);
    return self->memory != NULL;
}

static int file_range_get(PyObject *object, Py_buffer *view, int flags)
{
    file_range_object *self = (file_range_object *)object;
    view->obj = NULL;
    return load(self) ? PyObject_GetBuffer(self->memory, view, flags) : -1;
}

static PyObject *file_range_verify(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    module_state *state = module_state_of(object);
    spw_payload *payload = NULL;
    spw_status status;
    spw_error error;
    Py_BEGIN_ALLOW_THREADS;
    status = payload_of(state->context, (file_range_object *)object, &payload, &error);
    if (status == SPW_STATUS_OK)
        status = spw_payload_verify(state->context, payload, &error);
    Py_END_ALLOW_THREADS;
    spw_payload_free(payload);
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    Py_RETURN_NONE;
}

/* The bytes that are on disk, which are consumed when they are decompressed. */
static PyObject *file_range_as_stored(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    file_range_object *self = (file_range_object *)object;
    if (!is_compressed(self))
        return Py_NewRef(object);
    spw_slice stored = self->slice;
    stored.codec = SPW_CODEC_NONE;
    stored.plain_size = stored.size;
    stored.flags &= ~(uint32_t)SPW_SLICE_WRITEABLE;
    stored.flags |= SPW_SLICE_TRANSIENT;
    return file_range_wrap(module_state_of(object), &stored);
}

/* As bytes, or a bytearray, so that it can go anywhere. */
static PyObject *file_range_reduce(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    PyObject *bytes = PyBytes_FromObject(object);
    if (bytes == NULL)
        return NULL;
    PyTypeObject *type =
        is_writeable((file_range_object *)object) ? &PyByteArray_Type : &PyBytes_Type;
    return Py_BuildValue("(O(N))", type, bytes);
}

/* ----- ranges of a file that another process has ----- */

/* place is an offset and a size in a file of file_size bytes. */
static PyObject *range_of(module_state *state, spw_file *file, uint64_t file_size,
                          PyObject *place)
{
    uint64_t offset, size;
    if (!PyTuple_Check(place)) {
        PyErr_Format(PyExc_TypeError, "a range is an offset and a size, not %R", place);
        return NULL;
    }
    if (!PyArg_ParseTuple(place, "O&O&", bytes_argument, &offset, bytes_argument,
                          &size))
        return NULL;
    if (size == 0 || size > file_size || offset > file_size - size) {
        PyErr_Format(PyExc_ValueError, "%R is no range of a file of %llu bytes", place,
                     (unsigned long long)file_size);
        return NULL;
    }
    spw_slice slice = {.kind = SPW_MEMORY_FILE,
                       .flags = SPW_SLICE_WRITEABLE,
                       .file = file,
                       .offset = offset,
                       .size = size,
                       .plain_size = size};
    return file_range_wrap(state, &slice);
}

/* Takes: ranges. */
static PyObject *append_all(module_state *state, spw_file *file, uint64_t file_size,
                            PyObject *places, PyObject *ranges)
{
    PyObject *next, *place = PyObject_GetIter(places);
    while (place != NULL && (next = PyIter_Next(place)) != NULL) {
        PyObject *range = range_of(state, file, file_size, next);
        Py_DECREF(next);
        if (range == NULL || PyList_Append(ranges, range) < 0) {
            Py_XDECREF(range);
            break;
        }
        Py_DECREF(range);
    }
    Py_XDECREF(place);
    if (PyErr_Occurred())
        Py_CLEAR(ranges);
    return ranges;
}

PyObject *native_take_ranges(PyObject *module, PyObject *args)
{
    module_state *state = PyModule_GetState(module);
    spw_file_claim claim;
    long long process;
    unsigned long long device, inode;
    PyObject *places;
    spw_file *file;
    uint64_t file_size;
    spw_error error;
    if (!PyArg_ParseTuple(args, "LiKKO", &process, &claim.descriptor, &device, &inode,
                          &places))
        return NULL;
    claim.process = process;
    claim.device = device;
    claim.inode = inode;
    if (spw_file_take(state->context, &claim, &file, &file_size, &error) !=
        SPW_STATUS_OK)
        return raise_status(state, &error);
    PyObject *ranges = PyList_New(0);
    if (ranges != NULL)
        ranges = append_all(state, file, file_size, places, ranges);
    spw_file_unref(file);
    return ranges;
}

/* ----- what it tells ----- */

static PyObject *file_range_get_place(PyObject *object, void *ignored)
{
    (void)ignored;
    const spw_slice *slice = &((file_range_object *)object)->slice;
    return Py_BuildValue("(iKK)", spw_file_descriptor(slice->file),
                         (unsigned long long)slice->offset,
                         (unsigned long long)slice->size);
}

static PyObject *file_range_get_nbytes(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLongLong(((file_range_object *)object)->slice.plain_size);
}

static PyObject *file_range_get_writeable(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(is_writeable((file_range_object *)object));
}

static PyObject *file_range_get_codec(PyObject *object, void *ignored)
{
    (void)ignored;
    file_range_object *self = (file_range_object *)object;
    if (!is_compressed(self))
        Py_RETURN_NONE;
    return PyUnicode_FromString(spw_codec_name((spw_codec_id)self->slice.codec));
}

static PyObject *file_range_get_checksum(PyObject *object, void *ignored)
{
    (void)ignored;
    file_range_object *self = (file_range_object *)object;
    if (is_compressed(self) || (self->slice.flags & SPW_SLICE_HAS_CHECKSUM) == 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(self->slice.checksum);
}

PyTypeObject *file_range_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"as_stored", file_range_as_stored, METH_NOARGS,
         "Its bytes as they are on disk, compressed by codec."},
        {"__reduce__", file_range_reduce, METH_NOARGS, "As bytes or a bytearray."},
        {"verify", file_range_verify, METH_NOARGS,
         "Read through it, and raise if it is not what was written."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef attributes[] = {
        {"checksum", file_range_get_checksum, NULL,
         "XXH3 of its bytes, None if it is compressed or has none.", NULL},
        {"codec", file_range_get_codec, NULL,
         "By what it is compressed on disk, None if it is not.", NULL},
        {"nbytes", file_range_get_nbytes, NULL, "How large it is in memory.", NULL},
        {"place", file_range_get_place, NULL,
         "Its file's descriptor, and where in it how many bytes are.", NULL},
        {"writeable", file_range_get_writeable, NULL, "As the frame was.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "A frame on disk. Supports the buffer protocol: its bytes, which "
                    "are then read, verified and kept."},
        {Py_tp_dealloc, file_range_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {Py_bf_getbuffer, file_range_get},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.FileRange",
        .basicsize = sizeof(file_range_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                 Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
