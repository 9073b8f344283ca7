/* Buffer owns one reference to an spw_buffer and exports its memory.
 * Not tracked by the garbage collector: it refers to no Python object but its type. */
#include "buffer_type.h"

typedef struct buffer_object {
    PyObject_HEAD spw_buffer *buffer; /* one reference; never NULL */
} buffer_object;

static void buffer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    spw_buffer_unref(((buffer_object *)self)->buffer);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int buffer_get(PyObject *self, Py_buffer *view, int flags)
{
    spw_buffer *buffer = ((buffer_object *)self)->buffer;
    return PyBuffer_FillInfo(view, self, spw_buffer_data(buffer),
                             (Py_ssize_t)spw_buffer_size(buffer),
                             !spw_buffer_is_writeable(buffer), flags);
}

PyTypeObject *buffer_type_create(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc, "One piece of memory of the library's, on a 64-byte boundary. "
                    "Supports the buffer protocol: writeable bytes, one dimension."},
        {Py_tp_dealloc, buffer_dealloc},
        {Py_bf_getbuffer, buffer_get},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Buffer",
        .basicsize = sizeof(buffer_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                 Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyObject *buffer_view(module_state *state, spw_buffer *buffer)
{
    buffer_object *self = PyObject_New(buffer_object, state->buffer_type);
    if (self == NULL)
        return NULL;
    self->buffer = spw_buffer_ref(buffer);
    PyObject *view = PyMemoryView_FromObject((PyObject *)self);
    Py_DECREF(self);
    return view;
}

spw_buffer *buffer_behind(module_state *state, PyObject *object)
{
    if (!Py_IS_TYPE(object, state->buffer_type))
        return NULL;
    return ((buffer_object *)object)->buffer;
}
