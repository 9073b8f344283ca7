/* Completions: the threads of one event loop, and the way back from them. Every call is
 * short and keeps the GIL; the threads never touch Python. Each connection that was
 * given completions keeps them alive. */
#include "completions_type.h"

#include "integer_arguments.h"
#include "raise_status.h"

typedef struct completions_object {
    PyObject_HEAD spw_reactor *reactor;
    spw_completions *completions;
} completions_object;

spw_completions *completions_of(PyObject *object)
{
    return object != NULL ? ((completions_object *)object)->completions : NULL;
}

static PyObject *completions_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"threads", NULL};
    module_state *state = PyType_GetModuleState(type);
    unsigned threads;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&:Completions", names,
                                     threads_argument, &threads))
        return NULL;
    completions_object *self = PyObject_New(completions_object, type);
    if (self == NULL)
        return NULL;
    self->reactor = NULL;
    self->completions = NULL;
    spw_error error;
    spw_status status =
        spw_reactor_create(state->context, threads, &self->reactor, &error);
    if (status == SPW_STATUS_OK)
        status = spw_completions_create(self->reactor, &self->completions, &error);
    if (status == SPW_STATUS_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return raise_status(state, &error);
}

static void completions_dealloc(PyObject *object)
{
    completions_object *self = (completions_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    spw_completions_free(self->completions);
    spw_reactor_free(self->reactor);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *completions_fileno(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return PyLong_FromLong(spw_completions_descriptor(completions_of(self)));
}

static PyObject *completions_next(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    spw_connection *connection = spw_completions_next(completions_of(self));
    if (connection == NULL)
        Py_RETURN_NONE;
    return Py_NewRef(spw_connection_user(connection));
}

PyTypeObject *completions_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"fileno", completions_fileno, METH_NOARGS,
         "Readable as long as connections wait in next."},
        {"next", completions_next, METH_NOARGS,
         "A connection that a thread is done with, or None."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "Completions(threads)\n--\n\n"
                    "Threads that move the large bodies of one event loop; 0: by "
                    "cores, two to four. They start when they are needed."},
        {Py_tp_new, completions_new},
        {Py_tp_dealloc, completions_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Completions",
        .basicsize = sizeof(completions_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
