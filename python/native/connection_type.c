/* Connection. Invariant: while is_busy, a call is inside the library, perhaps without
 * the GIL, and no other call enters; close() is then left to the call under way, and
 * the connection already says that it is closed. The library runs release callbacks
 * (which run Python code) only inside reap, close and free, all of which are called
 * with the GIL held.
 *
 * Not tracked by the garbage collector, which could not see the frames in the send
 * queue in any case: a frame that refers back to its connection keeps it alive until
 * its bytes are sent or the connection is closed. */
#include "connection_type.h"

#include "completions_type.h"
#include "frames.h"
#include "integer_arguments.h"
#include "meetings_type.h"
#include "raise_status.h"
#include "store_type.h"

/* Moving less than this takes less time than getting the GIL back may. */
#define GIL_RELEASE_BYTES (64 * 1024)

typedef struct connection_object {
    PyObject_HEAD spw_connection *connection; /* closed or not, until deallocation */
    PyObject *completions;                    /* NULL: it was given none */
    PyObject *meetings;                       /* NULL: it has not met its peer */
    bool has_threads;                         /* it was given completions */
    bool is_busy;
    bool is_close_due;       /* close() came while is_busy */
    bool was_open;           /* what open answers while is_busy */
    uint64_t received_bytes; /* of the message that receive returned last */
} connection_object;

/* Whether a call that is to move bytes is worth letting go of the GIL: what goes to a
 * thread is not. */
static bool moves_much(const connection_object *self, uint64_t bytes)
{
    return bytes > GIL_RELEASE_BYTES &&
           spw_connection_is_inline(self->connection, bytes);
}

static bool enter(connection_object *self)
{
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the connection is in use by another call; only close() and "
                        "open may come from another thread or from a frame's "
                        "finalizer");
        return false;
    }
    self->was_open = spw_connection_is_open(self->connection);
    self->is_busy = true;
    return true;
}

/* Who keeps a connection that is over keeps no threads and descriptors by that. */
static void drop_borrowed(connection_object *self)
{
    Py_CLEAR(self->completions);
    Py_CLEAR(self->meetings);
}

/* Whatever the call was, it may have ended the connection, and with it the send queue:
 * what has been sent or given up is let go here, where the GIL is held. */
static void leave(connection_object *self)
{
    self->was_open = spw_connection_is_open(self->connection);
    spw_connection_reap(self->connection);
    if (self->is_close_due) {
        spw_connection_close(self->connection);
        drop_borrowed(self);
    }
    self->is_close_due = false;
    self->is_busy = false;
}

PyObject *connection_wrap(module_state *state, spw_connection *connection,
                          PyObject *completions)
{
    connection_object *self = PyObject_New(connection_object, state->connection_type);
    if (self == NULL) {
        spw_connection_free(connection);
        return NULL;
    }
    self->connection = connection;
    self->completions = Py_XNewRef(completions);
    self->meetings = NULL;
    self->has_threads = completions != NULL;
    spw_connection_set_user(connection, self);
    self->is_busy = false;
    self->is_close_due = false;
    self->was_open = true;
    self->received_bytes = 0;
    return (PyObject *)self;
}

static void connection_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    spw_connection_free(((connection_object *)object)->connection);
    Py_XDECREF(((connection_object *)object)->completions);
    Py_XDECREF(((connection_object *)object)->meetings);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *connection_connect(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "host", "port", "user_timeout_ms", "loopback_congestion", "completions", NULL};
    module_state *state = PyType_GetModuleState((PyTypeObject *)type);
    const char *host;
    uint16_t port;
    PyObject *completions = NULL;
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "sO&O&|zO!:connect", names, &host, port_argument, &port,
            milliseconds_argument, &options.user_timeout_ms,
            &options.loopback_congestion, state->completions_type, &completions))
        return NULL;
    options.completions = completions_of(completions);
    spw_connection *connection;
    spw_error error;
    if (spw_connection_connect(state->context, host, port, &options, &connection,
                               &error) != SPW_STATUS_OK)
        return raise_status(state, &error);
    return connection_wrap(state, connection, completions);
}

static PyObject *connection_fileno(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (self->is_close_due)
        return PyLong_FromLong(-1);
    if (!enter(self))
        return NULL;
    int descriptor = spw_connection_descriptor(self->connection);
    leave(self);
    return PyLong_FromLong(descriptor);
}

static PyObject *connection_interest(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (self->is_close_due)
        return PyLong_FromLong(0);
    if (!enter(self))
        return NULL;
    unsigned interest = spw_connection_interest(self->connection);
    leave(self);
    return PyLong_FromUnsignedLong(interest);
}

static PyObject *connection_get_connecting(PyObject *object, void *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (self->is_close_due)
        return PyBool_FromLong(0);
    if (!enter(self))
        return NULL;
    bool is_connecting = spw_connection_is_connecting(self->connection);
    leave(self);
    return PyBool_FromLong(is_connecting);
}

static PyObject *connection_get_open(PyObject *object, void *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (self->is_close_due)
        return PyBool_FromLong(0);
    /* From any thread: whoever logs a comm asks. What a call under way makes of the
     * connection shows when it ends. */
    return PyBool_FromLong(self->is_busy ? self->was_open
                                         : spw_connection_is_open(self->connection));
}

static PyObject *connection_queued_bytes(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (self->is_close_due)
        return PyLong_FromLong(0);
    if (!enter(self))
        return NULL;
    uint64_t bytes = spw_connection_queued_bytes(self->connection);
    leave(self);
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *connection_local(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    const char *host;
    uint16_t port;
    spw_error error;
    if (!enter(self))
        return NULL;
    spw_status status = spw_connection_local(self->connection, &host, &port, &error);
    leave(self);
    if (status != SPW_STATUS_OK)
        return raise_status(module_state_of(object), &error);
    return Py_BuildValue("(sH)", host, port);
}

static PyObject *connection_peer(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    const char *host;
    uint16_t port;
    if (!enter(self))
        return NULL;
    spw_connection_peer(self->connection, &host, &port);
    leave(self);
    return Py_BuildValue("(sH)", host, port);
}

static PyObject *connection_send(PyObject *object, PyObject *frames)
{
    connection_object *self = (connection_object *)object;
    module_state *state = module_state_of(object);
    spw_payload *payload = payload_from_frames(
        state, frames, self->has_threads ? FRAMES_BY_FILE : FRAMES_READ);
    if (payload == NULL)
        return NULL;
    if (!enter(self)) {
        spw_payload_free(payload);
        return NULL;
    }
    uint64_t bytes = 0;
    spw_status status;
    spw_error error;
    if (moves_much(self, spw_payload_bytes(payload) +
                             spw_connection_queued_bytes(self->connection))) {
        Py_BEGIN_ALLOW_THREADS;
        status = spw_connection_send(self->connection, payload, &bytes, &error);
        Py_END_ALLOW_THREADS;
    } else {
        status = spw_connection_send(self->connection, payload, &bytes, &error);
    }
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    leave(self);
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *connection_receive(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    module_state *state = module_state_of(object);
    spw_payload *payload;
    spw_error error;
    if (!enter(self))
        return NULL;
    spw_status status = spw_connection_receive(self->connection, &payload, &error);
    leave(self);
    if (status == SPW_STATUS_AGAIN)
        Py_RETURN_NONE;
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    PyObject *frames = frames_from_payload(state, payload);
    self->received_bytes = spw_payload_bytes(payload);
    spw_payload_free(payload);
    return frames;
}

static PyObject *connection_receive_values(PyObject *object, PyObject *args)
{
    connection_object *self = (connection_object *)object;
    module_state *state = module_state_of(object);
    PyObject *store;
    const char *only_with = NULL;
    spw_value_sink *sink;
    spw_error error;
    if (!PyArg_ParseTuple(args, "O!|z:receive_values", state->store_type, &store,
                          &only_with))
        return NULL;
    if (!enter(self))
        return NULL;
    spw_status status =
        spw_store_create_sink(store_behind(store), only_with, &sink, &error);
    if (status == SPW_STATUS_OK)
        spw_connection_receive_values(self->connection, sink);
    leave(self);
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    Py_RETURN_NONE;
}

static PyObject *connection_on_readable(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (!enter(self))
        return NULL;
    spw_status status;
    if (moves_much(self, spw_connection_missing_bytes(self->connection))) {
        Py_BEGIN_ALLOW_THREADS;
        status = spw_connection_on_readable(self->connection);
        Py_END_ALLOW_THREADS;
    } else {
        status = spw_connection_on_readable(self->connection);
    }
    leave(self);
    return PyBool_FromLong(status != SPW_STATUS_AGAIN);
}

static PyObject *connection_on_writable(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (!enter(self))
        return NULL;
    spw_status status;
    spw_error error;
    if (moves_much(self, spw_connection_queued_bytes(self->connection))) {
        Py_BEGIN_ALLOW_THREADS;
        status = spw_connection_on_writable(self->connection, &error);
        Py_END_ALLOW_THREADS;
    } else {
        status = spw_connection_on_writable(self->connection, &error);
    }
    leave(self);
    if (status != SPW_STATUS_OK)
        return raise_status(module_state_of(object), &error);
    Py_RETURN_NONE;
}

static PyObject *connection_meet(PyObject *object, PyObject *args)
{
    connection_object *self = (connection_object *)object;
    module_state *state = module_state_of(object);
    PyObject *meetings;
    const char *own_nonce, *peer_path, *peer_nonce;
    Py_ssize_t own_size, peer_size;
    if (!PyArg_ParseTuple(args, "O!y#sy#:meet", state->meetings_type, &meetings,
                          &own_nonce, &own_size, &peer_path, &peer_nonce, &peer_size))
        return NULL;
    if (own_size != SPW_NONCE_BYTES || peer_size != SPW_NONCE_BYTES) {
        PyErr_Format(PyExc_ValueError, "a nonce has %d bytes", SPW_NONCE_BYTES);
        return NULL;
    }
    if (!enter(self))
        return NULL;
    spw_error error;
    spw_status status = spw_connection_meet(self->connection, meetings_of(meetings),
                                            (const uint8_t *)own_nonce, peer_path,
                                            (const uint8_t *)peer_nonce, &error);
    if (status == SPW_STATUS_OK)
        self->meetings = Py_NewRef(meetings);
    leave(self);
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    Py_RETURN_NONE;
}

static PyObject *connection_let_go(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    if (!enter(self))
        return NULL;
    spw_connection_let_go(self->connection);
    if (!spw_connection_is_open(self->connection))
        drop_borrowed(self);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *connection_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    self->is_close_due = true;
    if (!self->is_busy) {
        self->is_busy = true;
        leave(self);
    }
    Py_RETURN_NONE;
}

static PyObject *connection_get_received_bytes(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLongLong(((connection_object *)object)->received_bytes);
}

static PyObject *connection_get_offload_bytes(PyObject *object, void *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    return PyLong_FromUnsignedLongLong(spw_connection_offload_bytes(self->connection));
}

static int connection_set_offload_bytes(PyObject *object, PyObject *value,
                                        void *ignored)
{
    (void)ignored;
    connection_object *self = (connection_object *)object;
    uint64_t bytes;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "offload_bytes cannot be deleted");
        return -1;
    }
    if (!bytes_argument(value, &bytes))
        return -1;
    spw_connection_set_offload_bytes(self->connection, bytes);
    return 0;
}

static PyMethodDef methods[] = {
    {"connect", (PyCFunction)(void (*)(void))connection_connect,
     METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "connect(host, port, user_timeout_ms, loopback_congestion=None, "
     "completions=...)\n--\n\n"
     "Start to connect to a numeric host; see connecting."},
    {"fileno", connection_fileno, METH_NOARGS,
     "The descriptor to watch; -1 once closed or let go."},
    {"interest", connection_interest, METH_NOARGS,
     "What to wait for: 1 read, 2 write, 4 completions, a sum of them, 0 nothing."},
    {"local", connection_local, METH_NOARGS, "The local host and port."},
    {"peer", connection_peer, METH_NOARGS, "The peer's host and port."},
    {"send", connection_send, METH_O,
     "Queue a message, send what the socket takes now, and return its bytes on "
     "the wire. The frames stay referenced until they are sent."},
    {"queued_bytes", connection_queued_bytes, METH_NOARGS,
     "Bytes that wait in the send queue."},
    {"receive", connection_receive, METH_NOARGS,
     "The next message as a list of frames, or None when it has not arrived "
     "whole."},
    {"receive_values", connection_receive_values, METH_VARARGS,
     "Have a Store decide where the values of the next message go."},
    {"on_readable", connection_on_readable, METH_NOARGS,
     "Read what is there. True: call receive again."},
    {"on_writable", connection_on_writable, METH_NOARGS,
     "Finish connecting, or send from the queue."},
    {"meet", connection_meet, METH_VARARGS,
     "meet(meetings, own_nonce, peer_path, peer_nonce, /)\n--\n\n"
     "Expect the peer at meetings, and go to its path when there is something "
     "large to send."},
    {"let_go", connection_let_go, METH_NOARGS,
     "Close the descriptor of a connection that has ended and that no loop watches "
     "any more. Whole messages can still be received."},
    {"close", connection_close, METH_NOARGS,
     "Close at once and release every frame. From another thread, or inside "
     "another call, it happens when that call ends."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"connecting", connection_get_connecting, NULL,
     "True until the outcome of connect is known.", NULL},
    {"open", connection_get_open, NULL,
     "False once closed here, closed by the peer, or failed.", NULL},
    {"received_bytes", connection_get_received_bytes, NULL,
     "Bytes of the frames that receive returned last.", NULL},
    {"offload_bytes", connection_get_offload_bytes, connection_set_offload_bytes,
     "From how many bytes on work on messages leaves the loop's thread; 0 for "
     "never. Stored for whoever does that work.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject *connection_type_create(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc, "Whole messages in both directions over one TCP stream. No call "
                    "blocks."},
        {Py_tp_dealloc, connection_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spillway._native.Connection",
        .basicsize = sizeof(connection_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                 Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
