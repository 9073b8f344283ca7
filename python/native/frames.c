/* Frames in and out. Outgoing memory is wrapped: a reference (bytes) or an export (all
 * else) keeps it alive until the library lets go of it, on a thread of Python's.
 * Incoming memory is exported through Buffer. */
#include "frames.h"

#include "buffer_type.h"
#include "file_range_type.h"
#include "raise_status.h"

/* The first frame is the message's msgpack, read once: small ones are cheaper to
 * decode as bytes, and a copy of them does not pin the region of their neighbours. */
#define METADATA_BYTES_LIMIT (64 * 1024)

/* A store lets go where it has given up the GIL. */
static void release_object(void *user)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)user);
    PyGILState_Release(gil);
}

static void release_view(void *user)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyBuffer_Release(user);
    PyMem_Free(user);
    PyGILState_Release(gil);
}

static spw_slice slice_of(spw_buffer *buffer, uint32_t flags)
{
    uint64_t size = spw_buffer_size(buffer);
    return (spw_slice){
        .kind = SPW_MEMORY_HOST,
        .flags = flags,
        .buffer = buffer,
        .size = size,
        .plain_size = size,
    };
}

static bool wrap_bytes(module_state *state, PyObject *bytes, uint32_t flags,
                       spw_slice *ret_slice)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) < 0)
        return false;
    spw_buffer *buffer;
    spw_error error;
    if (spw_buffer_wrap(state->context, data, (size_t)size, false, release_object,
                        bytes, &buffer, &error) != SPW_STATUS_OK) {
        raise_status(state, &error);
        return false;
    }
    Py_INCREF(bytes);
    *ret_slice = slice_of(buffer, flags);
    return true;
}

/* The bytes of an exporter with gaps, in C order as Dask would send them. */
static bool wrap_copy(module_state *state, PyObject *frame, spw_slice *ret_slice)
{
    PyObject *copy = PyBytes_FromObject(frame);
    if (copy == NULL)
        return false;
    bool is_wrapped = wrap_bytes(state, copy, 0, ret_slice);
    if (is_wrapped)
        spw_context_count_copy(state->context, SPW_COPY_NONCONTIGUOUS, ret_slice->size);
    Py_DECREF(copy);
    return is_wrapped;
}

/* Dask hands pickles on as views of bytes. 1 or 0, -1 with an exception set. */
static int is_view_of_bytes(PyObject *frame)
{
    if (!PyMemoryView_Check(frame))
        return 0;
    PyObject *owner = PyObject_GetAttrString(frame, "obj");
    if (owner == NULL)
        return -1;
    int is_bytes = PyBytes_Check(owner);
    Py_DECREF(owner);
    return is_bytes;
}

static bool wrap_exporter(module_state *state, PyObject *frame, spw_slice *ret_slice)
{
    Py_buffer *view = PyMem_Malloc(sizeof *view);
    if (view == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (PyObject_GetBuffer(frame, view, PyBUF_FULL_RO) < 0) {
        PyMem_Free(view);
        return false;
    }
    if (!PyBuffer_IsContiguous(view, 'A')) {
        release_view(view);
        return wrap_copy(state, frame, ret_slice);
    }
    int is_transient = view->readonly ? is_view_of_bytes(frame) : 0;
    if (is_transient < 0) {
        release_view(view);
        return false;
    }
    spw_buffer *buffer;
    spw_error error;
    if (spw_buffer_wrap(state->context, view->buf, (size_t)view->len, !view->readonly,
                        release_view, view, &buffer, &error) != SPW_STATUS_OK) {
        release_view(view);
        raise_status(state, &error);
        return false;
    }
    uint32_t flags = view->readonly ? 0 : SPW_SLICE_WRITEABLE;
    *ret_slice = slice_of(buffer, is_transient ? SPW_SLICE_TRANSIENT : flags);
    return true;
}

/* A view of a Buffer as a slice of that. Returns: 1, 0 where it is none, or -1 with an
 * exception set. */
static int slice_of_buffer(module_state *state, PyObject *frame, spw_slice *ret_slice)
{
    Py_buffer view;
    if (!PyMemoryView_Check(frame))
        return 0;
    PyObject *owner = PyObject_GetAttrString(frame, "obj");
    if (owner == NULL)
        return -1;
    spw_buffer *buffer = buffer_behind(state, owner);
    int answer = 0;
    if (buffer != NULL)
        answer = PyObject_GetBuffer(frame, &view, PyBUF_FULL_RO) < 0 ? -1 : 1;
    if (answer > 0) {
        *ret_slice =
            slice_of(buffer, view.readonly ? 0 : (uint32_t)SPW_SLICE_WRITEABLE);
        ret_slice->offset =
            (uint64_t)((char *)view.buf - (char *)spw_buffer_data(buffer));
        ret_slice->size = ret_slice->plain_size = (uint64_t)view.len;
        answer = PyBuffer_IsContiguous(&view, 'C');
        PyBuffer_Release(&view);
    }
    if (answer > 0)
        (void)spw_buffer_ref(buffer);
    Py_DECREF(owner);
    return answer;
}

static bool wrap(module_state *state, PyObject *frame, frames_way way,
                 spw_slice *ret_slice)
{
    if (PyBytes_Check(frame))
        return wrap_bytes(state, frame, SPW_SLICE_TRANSIENT, ret_slice);
    if (way != FRAMES_READ && file_range_slice(state, frame, ret_slice))
        return true;
    int is_buffer =
        way == FRAMES_AS_RECEIVED ? slice_of_buffer(state, frame, ret_slice) : 0;
    return is_buffer > 0 || (is_buffer == 0 && wrap_exporter(state, frame, ret_slice));
}

static bool append_frame(module_state *state, spw_payload *payload, PyObject *frame,
                         frames_way way)
{
    spw_slice slice;
    if (!wrap(state, frame, way, &slice))
        return false;
    spw_error error;
    if (spw_payload_append(payload, &slice, &error) != SPW_STATUS_OK) {
        if (slice.kind == SPW_MEMORY_FILE)
            spw_file_unref(slice.file);
        else
            spw_buffer_unref(slice.buffer);
        raise_status(state, &error);
        return false;
    }
    return true;
}

spw_payload *payload_from_frames(module_state *state, PyObject *frames, frames_way way)
{
    if (!PyList_Check(frames)) {
        PyErr_Format(PyExc_TypeError, "frames must be a list, not %R", Py_TYPE(frames));
        return NULL;
    }
    spw_payload *payload;
    spw_error error;
    if (spw_payload_create(state->context, (size_t)PyList_Size(frames), &payload,
                           &error) != SPW_STATUS_OK) {
        raise_status(state, &error);
        return NULL;
    }
    /* An exporter may run code that changes the list: look at its size each time. */
    for (Py_ssize_t i = 0; i < PyList_Size(frames); i++) {
        PyObject *frame = Py_NewRef(PyList_GetItem(frames, i));
        bool is_appended = append_frame(state, payload, frame, way);
        Py_DECREF(frame);
        if (!is_appended) {
            spw_payload_free(payload);
            return NULL;
        }
    }
    return payload;
}

/* The view that the latest slices were cut from: shards of one buffer follow each
 * other and must be views of one Buffer, or merging them would copy. */
typedef struct region_view {
    const spw_buffer *buffer;
    PyObject *view;
} region_view;

static PyObject *cut(PyObject *view, uint64_t offset, uint64_t size)
{
    PyObject *part = NULL;
    PyObject *range = NULL;
    PyObject *start = PyLong_FromUnsignedLongLong(offset);
    PyObject *stop = PyLong_FromUnsignedLongLong(offset + size);
    if (start != NULL && stop != NULL)
        range = PySlice_New(start, stop, NULL);
    if (range != NULL)
        part = PyObject_GetItem(view, range);
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(range);
    return part;
}

/* A frame without bytes must not keep the region alive that it happens to lie in. */
static PyObject *empty_view(void)
{
    PyObject *nothing = PyByteArray_FromStringAndSize(NULL, 0);
    if (nothing == NULL)
        return NULL;
    PyObject *view = PyMemoryView_FromObject(nothing);
    Py_DECREF(nothing);
    return view;
}

static PyObject *slice_view(module_state *state, const spw_slice *slice,
                            region_view *region)
{
    if (slice->size == 0)
        return empty_view();
    if (region->buffer != slice->buffer) {
        PyObject *view = buffer_view(state, slice->buffer);
        if (view == NULL)
            return NULL;
        Py_XDECREF(region->view);
        *region = (region_view){slice->buffer, view};
    }
    if (slice->size == spw_buffer_size(slice->buffer))
        return Py_NewRef(region->view);
    return cut(region->view, slice->offset, slice->size);
}

static PyObject *metadata_bytes(module_state *state, const spw_slice *slice)
{
    PyObject *bytes =
        PyBytes_FromStringAndSize(spw_slice_data(slice), (Py_ssize_t)slice->size);
    if (bytes != NULL)
        spw_context_count_copy(state->context, SPW_COPY_METADATA, slice->size);
    return bytes;
}

static PyObject *received_frame(module_state *state, const spw_slice *slices, size_t i,
                                region_view *region)
{
    if (slices[i].kind == SPW_MEMORY_FILE && slices[i].size > 0)
        return file_range_wrap(state, &slices[i]);
    return i == 0 && slices[i].size <= METADATA_BYTES_LIMIT
               ? metadata_bytes(state, &slices[i])
               : slice_view(state, &slices[i], region);
}

static PyObject *stored_frame(module_state *state, const spw_slice *slices, size_t i,
                              region_view *region)
{
    if (slices[i].kind == SPW_MEMORY_FILE && slices[i].size > 0)
        return file_range_wrap(state, &slices[i]);
    /* A view of a pickle would not be known as one when it is sent. */
    return (slices[i].flags & SPW_SLICE_TRANSIENT) != 0 &&
                   slices[i].size <= METADATA_BYTES_LIMIT
               ? metadata_bytes(state, &slices[i])
               : slice_view(state, &slices[i], region);
}

/* A list of what make makes of each slice. */
static PyObject *make_frames(module_state *state, const spw_payload *payload,
                             PyObject *(*make)(module_state *state,
                                               const spw_slice *slices, size_t i,
                                               region_view *region))
{
    size_t count = spw_payload_count(payload);
    const spw_slice *slices = spw_payload_slices(payload);
    PyObject *frames = PyList_New((Py_ssize_t)count);
    if (frames == NULL)
        return NULL;
    region_view region = {NULL, NULL};
    for (size_t i = 0; i < count; i++) {
        PyObject *frame = make(state, slices, i, &region);
        if (frame == NULL) {
            Py_CLEAR(frames);
            break;
        }
        /* Cannot fail: the index is inside a list that nobody else has seen. */
        PyList_SetItem(frames, (Py_ssize_t)i, frame);
    }
    Py_XDECREF(region.view);
    return frames;
}

PyObject *frames_from_payload(module_state *state, const spw_payload *payload)
{
    return make_frames(state, payload, received_frame);
}

PyObject *frames_from_stored(module_state *state, const spw_payload *payload)
{
    return make_frames(state, payload, stored_frame);
}
