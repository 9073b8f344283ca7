/* The store's objects are Python's. A callback may come without the GIL, on a thread
 * that has given it up to call the store, and takes it; letting go of an object runs
 * whatever finalizers do, and so an exception that is set, by a pack that failed in the
 * same call, is put aside for it. */
#include "stored_values.h"

#include "frames.h"
#include "raise_status.h"

static spw_status failed(spw_error *error, const char *what)
{
    if (error != NULL) {
        *error = (spw_error){.status = SPW_STATUS_UNSUPPORTED};
        PyOS_snprintf(error->message, sizeof error->message,
                      "a value cannot be %s; the exception says why", what);
    }
    return SPW_STATUS_UNSUPPORTED;
}

static spw_status pack(void *self, void *object, spw_payload **ret_payload,
                       spw_error *error)
{
    stored_values *values = self;
    spw_payload *payload = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_Clear(); /* of one before, that was removed meanwhile */
    PyObject *frames = PyObject_CallFunctionObjArgs(values->pack, object, NULL);
    if (frames != NULL)
        payload = payload_from_frames(values->state, frames, FRAMES_READ);
    Py_XDECREF(frames);
    PyGILState_Release(gil);
    if (payload == NULL)
        return failed(error, "packed");
    *ret_payload = payload;
    return SPW_STATUS_OK;
}

static spw_status unpack(void *self, const spw_payload *payload, void **ret_object,
                         spw_error *error)
{
    stored_values *values = self;
    PyObject *object = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *frames = frames_from_payload(values->state, payload);
    if (frames != NULL)
        object = PyObject_CallFunctionObjArgs(values->unpack, frames, NULL);
    Py_XDECREF(frames);
    PyGILState_Release(gil);
    if (object == NULL)
        return failed(error, "unpacked");
    *ret_object = object;
    return SPW_STATUS_OK;
}

static void ref(void *self, void *object)
{
    (void)self;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_INCREF((PyObject *)object);
    PyGILState_Release(gil);
}

static void unref(void *self, void *object)
{
    PyObject *type, *value, *traceback;
    (void)self;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &traceback);
    Py_DECREF((PyObject *)object);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
}

PyObject *stored_values_raise(module_state *state, const spw_error *error)
{
    return PyErr_Occurred() ? NULL : raise_status(state, error);
}

const spw_object_ops stored_value_ops = {
    .pack = pack, .unpack = unpack, .ref = ref, .unref = unref};
