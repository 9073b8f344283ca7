/* StoreEntry. What may wait for a disk or run a callback of the store's is called
 * without the GIL; what only looks keeps it.
 *
 * A value that left memory while somebody still uses it is not read again: each time an
 * entry hands its value out it notes a weak reference, and gives it back by that. By
 * the same it is known how much has left for disk and is in memory all the same.
 */
#include "store_entry_type.h"

#include "frames.h"
#include "raise_status.h"
#include "stored_values.h"

typedef struct entry_object {
    PyObject_HEAD PyObject *store; /* one reference: its entries keep it */
    spw_entry *entry;              /* one reference, and another until it is removed */
    bool is_removed;
    PyObject *weak; /* of the value handed out last, or NULL */
} entry_object;

/* ----- values ----- */

/* Note a value, if it is of a kind that can be. */
static void note(entry_object *self, PyObject *value)
{
    PyObject *weak = PyWeakref_NewRef(value, NULL);
    if (weak == NULL)
        PyErr_Clear(); /* most small values cannot be, and need not */
    PyObject *before = self->weak;
    self->weak = weak;
    Py_XDECREF(before);
}

/* The value that was handed out and that somebody still has. Returns: a new reference,
 * or NULL, without an exception. */
static PyObject *noted(entry_object *self)
{
    if (self->weak == NULL)
        return NULL;
    PyObject *value = PyWeakref_GetObject(self->weak); /* borrowed */
    return value == NULL || value == Py_None ? NULL : Py_NewRef(value);
}

static spw_entry *entry_of(PyObject *object)
{
    return ((entry_object *)object)->entry;
}

/* The value of an entry, pinned, if nobody has to be waited for. Returns: a new
 * reference, or NULL, without an exception. */
static PyObject *pin_at_hand(entry_object *self)
{
    PyObject *value = spw_entry_try_acquire(self->entry);
    if (value != NULL)
        return value;
    PyObject *known = noted(self);
    if (known == NULL)
        return NULL;
    spw_entry_revive(self->entry, known); /* takes it */
    return spw_entry_try_acquire(self->entry);
}

/* The value of an entry, pinned: a new reference. NULL with an exception set. */
static PyObject *pin(PyObject *object)
{
    entry_object *self = (entry_object *)object;
    void *value = pin_at_hand(self);
    if (value == NULL) {
        spw_error error;
        spw_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = spw_entry_acquire(self->entry, &value, &error);
        Py_END_ALLOW_THREADS;
        if (status != SPW_STATUS_OK)
            return stored_values_raise(module_state_of(object), &error);
    }
    note(self, value);
    return value;
}

static PyObject *entry_acquire(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    return pin(object);
}

static PyObject *entry_try_acquire(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    PyObject *value = pin_at_hand((entry_object *)object);
    if (value == NULL)
        Py_RETURN_NONE;
    note((entry_object *)object, value);
    return value;
}

static PyObject *entry_unpin(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_entry_unpin(entry_of(object));
    Py_RETURN_NONE;
}

static PyObject *entry_get(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    PyObject *value = pin(object);
    if (value != NULL)
        spw_entry_unpin(entry_of(object));
    return value;
}

static PyObject *entry_spill(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    spw_error error;
    spw_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = spw_entry_spill(entry_of(object), &error);
    Py_END_ALLOW_THREADS;
    if (status != SPW_STATUS_OK)
        return stored_values_raise(module_state_of(object), &error);
    Py_RETURN_NONE;
}

static PyObject *entry_read_ahead(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    return PyBool_FromLong(spw_entry_read_ahead(entry_of(object)));
}

static PyObject *entry_frames(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    module_state *state = module_state_of(object);
    spw_payload *payload;
    spw_error error;
    spw_status status = spw_entry_payload(entry_of(object), &payload, &error);
    if (status == SPW_STATUS_UNSUPPORTED)
        Py_RETURN_NONE;
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    PyObject *frames = frames_from_stored(state, payload);
    spw_payload_free(payload);
    return frames;
}

static PyObject *entry_remove(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    entry_object *self = (entry_object *)object;
    if (!self->is_removed) {
        self->is_removed = true;
        spw_store_remove(self->entry);
    }
    Py_RETURN_NONE;
}

static PyObject *entry_get_forms(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLong(spw_entry_forms(entry_of(object)));
}

static PyObject *entry_get_weight(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLongLong(spw_entry_weight(entry_of(object)));
}

static PyObject *entry_get_spilled_in_use(PyObject *object, void *ignored)
{
    (void)ignored;
    const entry_object *self = (entry_object *)object;
    bool is_it = false;
    if (self->weak != NULL && PyWeakref_GetObject(self->weak) != Py_None) {
        unsigned forms = spw_entry_forms(self->entry);
        is_it = (forms & SPW_ENTRY_LIVE) == 0 && (forms & SPW_ENTRY_ON_DISK) != 0;
    }
    return PyBool_FromLong(is_it);
}

static void entry_dealloc(PyObject *object)
{
    entry_object *self = (entry_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!self->is_removed)
        spw_store_remove(self->entry);
    spw_entry_unref(self->entry);
    Py_XDECREF(self->weak);
    Py_DECREF(self->store);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyObject *entry_wrap(PyObject *store, spw_entry *entry, PyObject *value)
{
    entry_object *self =
        PyObject_New(entry_object, module_state_of(store)->store_entry_type);
    if (self == NULL) {
        spw_store_remove(entry);
        return NULL;
    }
    self->store = Py_NewRef(store);
    self->entry = spw_entry_ref(entry);
    self->is_removed = false;
    self->weak = NULL;
    if (value != NULL)
        note(self, value);
    return (PyObject *)self;
}

/* ----- the type ----- */

PyTypeObject *store_entry_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"acquire", entry_acquire, METH_NOARGS,
         "The value, which stays in memory until unpin; read from disk and unpacked if "
         "need be, once for all who ask."},
        {"frames", entry_frames, METH_NOARGS,
         "What pack made of the value, in memory or as FileRange, of which nothing is "
         "read; None if it is live only."},
        {"get", entry_get, METH_NOARGS, "acquire and unpin."},
        {"read_ahead", entry_read_ahead, METH_NOARGS,
         "Begin to read its bytes from disk, since it will be asked for soon; whether "
         "it begins."},
        {"remove", entry_remove, METH_NOARGS,
         "Take the value out of its store, without reading it."},
        {"spill", entry_spill, METH_NOARGS,
         "Write the value to disk, and wait for that; raises what pack raises."},
        {"try_acquire", entry_try_acquire, METH_NOARGS,
         "As acquire, but None where it would wait for a disk or for unpacking."},
        {"unpin", entry_unpin, METH_NOARGS, "End what acquire began."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef attributes[] = {
        {"forms", entry_get_forms, NULL,
         "What there is of it: 1 live, 2 packed, 4 on disk, 8 lost.", NULL},
        {"is_spilled_in_use", entry_get_spilled_in_use, NULL,
         "Whether it has left for disk, and somebody still has the value. Never of one "
         "that cannot be weakly referenced.",
         NULL},
        {"weight", entry_get_weight, NULL, "In bytes, as put was told.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "A value of a Store. One that was never removed is when nobody "
                    "refers to it any more."},
        {Py_tp_dealloc, entry_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.StoreEntry",
        .basicsize = sizeof(entry_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                 Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
