/* Merged keeps the exports of the frames whose memory it exports itself, and with them
 * the frames and the memory: nobody can resize or close it.
 * Tracked by the garbage collector, since a frame may refer to what was made of it.
 * Invariant: as long as anything is exported, the frames' exports are there. */
#include "merged_type.h"

typedef struct merged_object {
    PyObject_HEAD frame_exports frames; /* empty once cleared */
    void *data;
    Py_ssize_t size;
    Py_ssize_t exported; /* how many exports of ours there are */
    bool is_writeable;
} merged_object;

static int merged_traverse(PyObject *self, visitproc visit, void *arg)
{
    const frame_exports *frames = &((merged_object *)self)->frames;
    for (size_t i = 0; i < frames->count; i++)
        Py_VISIT(frames->items[i].view.obj);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int merged_clear(PyObject *self)
{
    merged_object *merged = (merged_object *)self;
    /* Whoever still has an export is garbage too, and lets go of it when it is cleared
     * itself, and then of us. */
    if (merged->exported == 0)
        frame_exports_release(&merged->frames);
    return 0;
}

static void merged_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    frame_exports_release(&((merged_object *)self)->frames);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int merged_get(PyObject *self, Py_buffer *view, int flags)
{
    merged_object *merged = (merged_object *)self;
    if (merged->frames.items == NULL) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the frames were collected as garbage");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, merged->data, merged->size, !merged->is_writeable,
                          flags) < 0)
        return -1;
    merged->exported++;
    return 0;
}

static void merged_release(PyObject *self, Py_buffer *view)
{
    (void)view;
    ((merged_object *)self)->exported--;
}

PyTypeObject *merged_type_create(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc,
         "Frames that lie side by side, as one piece of memory. Supports the "
         "buffer protocol: bytes, one dimension."},
        {Py_tp_dealloc, merged_dealloc},
        {Py_tp_traverse, merged_traverse},
        {Py_tp_clear, merged_clear},
        {Py_bf_getbuffer, merged_get},
        {Py_bf_releasebuffer, merged_release},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Merged",
        .basicsize = sizeof(merged_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                 Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyObject *merged_view(module_state *state, frame_exports *exports, void *data,
                      size_t size, bool is_writeable)
{
    merged_object *self = PyObject_GC_New(merged_object, state->merged_type);
    if (self == NULL)
        return NULL;
    self->frames = *exports;
    self->data = data;
    self->size = (Py_ssize_t)size;
    self->exported = 0;
    self->is_writeable = is_writeable;
    PyObject *view = PyMemoryView_FromObject((PyObject *)self);
    if (view == NULL)
        self->frames = (frame_exports){0}; /* still the caller's */
    else
        *exports = (frame_exports){0};
    PyObject_GC_Track(self);
    Py_DECREF(self);
    return view;
}

PyObject *merged_root(module_state *state, PyObject *object)
{
    if (!Py_IS_TYPE(object, state->merged_type))
        return NULL;
    const frame_exports *frames = &((merged_object *)object)->frames;
    for (size_t i = 0; i < frames->count; i++) {
        if (frames->items[i].root != NULL)
            return frames->items[i].root;
    }
    return NULL;
}
