/* Listener. Every call is short and keeps the GIL. Not tracked by the garbage
 * collector: it refers to no Python object but its type and its completions, which
 * refer to nothing. */
#include "listener_type.h"

#include "completions_type.h"
#include "connection_type.h"
#include "integer_arguments.h"
#include "raise_status.h"

typedef struct listener_object {
    PyObject_HEAD spw_listener *listener; /* NULL once closed */
    PyObject *completions;                /* NULL: it does not serve */
} listener_object;

static PyObject *listener_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"host", "port", "backlog", NULL};
    module_state *state = PyType_GetModuleState(type);
    const char *host;
    uint16_t port;
    int backlog;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "sO&i:Listener", names, &host,
                                     port_argument, &port, &backlog))
        return NULL;
    spw_listener *listener;
    spw_error error;
    if (spw_listener_start(state->context, host, port, backlog, &listener, &error) !=
        SPW_STATUS_OK)
        return raise_status(state, &error);
    listener_object *self = PyObject_New(listener_object, type);
    if (self == NULL) {
        spw_listener_free(listener);
        return NULL;
    }
    self->listener = listener;
    self->completions = NULL;
    return (PyObject *)self;
}

static void listener_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    spw_listener_free(((listener_object *)self)->listener);
    Py_XDECREF(((listener_object *)self)->completions);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Returns: the open listener, NULL with an exception set. */
static spw_listener *opened(PyObject *self)
{
    spw_listener *listener = ((listener_object *)self)->listener;
    if (listener == NULL) {
        spw_error error = {.status = SPW_STATUS_CLOSED,
                           .message = "the listener is closed"};
        raise_status(module_state_of(self), &error);
    }
    return listener;
}

static PyObject *listener_fileno(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    spw_listener *listener = ((listener_object *)self)->listener;
    return PyLong_FromLong(listener == NULL ? -1 : spw_listener_descriptor(listener));
}

static PyObject *listener_local(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    spw_listener *listener = opened(self);
    if (listener == NULL)
        return NULL;
    const char *host;
    uint16_t port;
    spw_listener_local(listener, &host, &port);
    return Py_BuildValue("(sH)", host, port);
}

static PyObject *listener_serve(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"completions",        "user_timeout_ms",     "greeting",
                            "greeting_same_host", "loopback_congestion", NULL};
    listener_object *self = (listener_object *)object;
    module_state *state = module_state_of(object);
    spw_listener_options options = SPW_LISTENER_OPTIONS_INIT;
    spw_connection_options of_each = SPW_CONNECTION_OPTIONS_INIT;
    PyObject *completions;
    Py_ssize_t size, same_host_size;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O!O&y#y#|z:serve", names, state->completions_type,
            &completions, milliseconds_argument, &of_each.user_timeout_ms,
            &options.greeting, &size, &options.greeting_same_host, &same_host_size,
            &of_each.loopback_congestion))
        return NULL;
    of_each.completions = completions_of(completions);
    options.connection = &of_each;
    options.greeting_bytes = (size_t)size;
    options.greeting_same_host_bytes = (size_t)same_host_size;
    spw_listener *listener = opened(object);
    if (listener == NULL)
        return NULL;
    spw_error error;
    if (spw_listener_serve(listener, &options, &error) != SPW_STATUS_OK)
        return raise_status(state, &error);
    self->completions = Py_NewRef(completions);
    Py_RETURN_NONE;
}

static PyObject *listener_accept(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"user_timeout_ms", "loopback_congestion", "completions",
                            NULL};
    module_state *state = module_state_of(self);
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    PyObject *completions = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|zO!:accept", names,
                                     milliseconds_argument, &options.user_timeout_ms,
                                     &options.loopback_congestion,
                                     state->completions_type, &completions))
        return NULL;
    if (((listener_object *)self)->completions != NULL)
        completions = ((listener_object *)self)->completions;
    options.completions = completions_of(completions);
    spw_listener *listener = opened(self);
    if (listener == NULL)
        return NULL;
    spw_connection *connection;
    spw_error error;
    spw_status status = spw_listener_accept(listener, &options, &connection, &error);
    if (status == SPW_STATUS_AGAIN)
        Py_RETURN_NONE;
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    return connection_wrap(state, connection, completions);
}

static PyObject *listener_hold_from(PyObject *self, PyObject *value)
{
    uint64_t bytes;
    if (!bytes_argument(value, &bytes))
        return NULL;
    spw_listener *listener = opened(self);
    if (listener == NULL)
        return NULL;
    spw_listener_hold_from(listener, bytes);
    Py_RETURN_NONE;
}

static PyObject *listener_close(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    spw_listener_free(((listener_object *)self)->listener);
    ((listener_object *)self)->listener = NULL;
    Py_RETURN_NONE;
}

PyTypeObject *listener_type_create(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"fileno", listener_fileno, METH_NOARGS,
         "The descriptor to watch; -1 once closed."},
        {"local", listener_local, METH_NOARGS, "The bound host and port."},
        {"accept", (PyCFunction)(void (*)(void))listener_accept,
         METH_VARARGS | METH_KEYWORDS,
         "accept(user_timeout_ms, loopback_congestion=None, completions=...)\n--\n\n"
         "The next connection, or None when none waits. A listener that serves made it "
         "with what serve was given."},
        {"serve", (PyCFunction)(void (*)(void))listener_serve,
         METH_VARARGS | METH_KEYWORDS,
         "serve(completions, user_timeout_ms, greeting, greeting_same_host, "
         "loopback_congestion=None)\n--\n\n"
         "Let threads accept, say the greeting and begin to receive. fileno() is then "
         "readable when accept has something to tell."},
        {"hold_from", listener_hold_from, METH_O,
         "hold_from(bytes, /)\n--\n\n"
         "Let messages of so many bytes wait until their connection is accepted."},
        {"close", listener_close, METH_NOARGS, "Stop listening."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, "Listener(host, port, backlog)\n--\n\n"
                    "Accepts connections on one numeric address."},
        {Py_tp_new, listener_new},
        {Py_tp_dealloc, listener_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Listener",
        .basicsize = sizeof(listener_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
