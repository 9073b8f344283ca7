/* Meetings. Every call is short and keeps the GIL. Each connection that meets its peer
 * there keeps them alive. */
#include "meetings_type.h"

#include "raise_status.h"

typedef struct meetings_object {
    PyObject_HEAD spw_meetings *meetings;
} meetings_object;

spw_meetings *meetings_of(PyObject *object)
{
    return ((meetings_object *)object)->meetings;
}

static PyObject *meetings_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"parent", "best", "uses_descriptors", NULL};
    module_state *state = PyType_GetModuleState(type);
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    int best = 0, uses_descriptors = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|ip:Meetings", names,
                                     &options.parent, &best, &uses_descriptors))
        return NULL;
    options.best = (spw_host_way)best;
    options.uses_descriptors = uses_descriptors != 0;
    spw_meetings *meetings;
    spw_error error;
    if (spw_meetings_create(state->context, &options, &meetings, &error) !=
        SPW_STATUS_OK)
        return raise_status(state, &error);
    meetings_object *self = PyObject_New(meetings_object, type);
    if (self == NULL) {
        spw_meetings_free(meetings);
        return NULL;
    }
    self->meetings = meetings;
    return (PyObject *)self;
}

static void meetings_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    spw_meetings_free(meetings_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *meetings_fileno(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return PyLong_FromLong(spw_meetings_descriptor(meetings_of(self)));
}

static PyObject *meetings_path(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return PyUnicode_DecodeFSDefault(spw_meetings_path(meetings_of(self)));
}

static PyObject *meetings_on_readable(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    spw_error error;
    if (spw_meetings_on_readable(meetings_of(self), &error) == SPW_STATUS_OK)
        Py_RETURN_NONE;
    return PyUnicode_FromString(error.message);
}

PyTypeObject *meetings_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"fileno", meetings_fileno, METH_NOARGS,
         "Readable when on_readable is to be called."},
        {"path", meetings_path, METH_NOARGS, "Where peers come to."},
        {"on_readable", meetings_on_readable, METH_NOARGS,
         "Let in who has come. Returns why not by the best way, or None."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "Meetings(parent, best=0, uses_descriptors=False)\n--\n\n"
                    "Where peers of this host come to meet connections of one loop."},
        {Py_tp_new, meetings_new},
        {Py_tp_dealloc, meetings_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Meetings",
        .basicsize = sizeof(meetings_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
