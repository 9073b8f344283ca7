/* Merging frames: the library decides, on a payload whose buffers are the owners of the
 * frames' memory. Each run of frames of one owner is one buffer, from its lowest
 * address to its highest, so that frames follow each other as slices of it or not at
 * all. */
#include "merge_functions.h"

#include <string.h>

#include "buffer_type.h"
#include "merged_type.h"
#include "raise_status.h"

/* The payload is gone before the exports are. */
static void keep(void *user)
{
    (void)user;
}

static bool is_same_memory(module_state *state, PyObject *one, PyObject *other)
{
    if (one == other)
        return true;
    const spw_buffer *buffer = buffer_behind(state, one);
    return buffer != NULL && buffer == buffer_behind(state, other);
}

/* A run of frames of one owner, and the memory between the first and the last of them,
 * which is that owner's or nobody's: of it only the frames are looked at. */
typedef struct run {
    size_t end; /* the frame after it */
    char *lowest, *highest;
} run;

static run find_run(module_state *state, const frame_exports *exports, size_t start,
                    size_t count)
{
    run found = {.end = start};
    PyObject *root = NULL;
    for (; found.end < count; found.end++) {
        const frame_export *item = &exports->items[found.end];
        if (item->root == NULL)
            continue;
        char *data = item->view.buf;
        if (root == NULL) {
            root = item->root;
            found.lowest = found.highest = data;
        } else if (!is_same_memory(state, root, item->root)) {
            break;
        }
        if (data < found.lowest)
            found.lowest = data;
        if (data + item->view.len > found.highest)
            found.highest = data + item->view.len;
    }
    return found;
}

static spw_status append_run(spw_payload *payload, const frame_exports *exports,
                             size_t start, const run *found, spw_buffer *buffer,
                             spw_error *error)
{
    for (size_t i = start; i < found->end; i++) {
        const frame_export *item = &exports->items[i];
        uint64_t size = (uint64_t)item->view.len;
        spw_slice slice = {
            .kind = SPW_MEMORY_HOST,
            .flags = item->view.readonly ? 0 : SPW_SLICE_WRITEABLE,
            .buffer = spw_buffer_ref(buffer),
            .offset = size > 0 ? (uint64_t)((char *)item->view.buf - found->lowest) : 0,
            .size = size,
            .plain_size = size,
        };
        spw_status status = spw_payload_append(payload, &slice, error);
        if (status != SPW_STATUS_OK) {
            spw_buffer_unref(buffer);
            return status;
        }
    }
    return SPW_STATUS_OK;
}

/* The first count frames, which are contiguous, as a payload of as many slices. */
static spw_status describe(module_state *state, const frame_exports *exports,
                           size_t count, spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    spw_status status = spw_payload_create(state->context, count, &payload, error);
    run found = {0};
    for (size_t start = 0; status == SPW_STATUS_OK && start < count;
         start = found.end) {
        found = find_run(state, exports, start, count);
        spw_buffer *buffer;
        status = spw_buffer_wrap(state->context, found.lowest,
                                 (size_t)(found.highest - found.lowest), true, keep,
                                 NULL, &buffer, error);
        if (status != SPW_STATUS_OK)
            break;
        status = append_run(payload, exports, start, &found, buffer, error);
        spw_buffer_unref(buffer);
    }
    if (status == SPW_STATUS_OK)
        *ret_payload = payload;
    else
        spw_payload_free(payload);
    return status;
}

static PyObject *empty_view(module_state *state, spw_buffer *buffer, bool is_writeable)
{
    PyObject *view = buffer_view(state, buffer);
    if (view == NULL || is_writeable)
        return view;
    PyObject *readonly = PyObject_CallMethod(view, "toreadonly", NULL);
    Py_DECREF(view);
    return readonly;
}

static PyObject *view_of(module_state *state, frame_exports *exports,
                         const spw_slice *merged)
{
    bool is_writeable = (merged->flags & SPW_SLICE_WRITEABLE) != 0;
    if (merged->size == 0)
        return empty_view(state, merged->buffer, is_writeable);
    return merged_view(state, exports, spw_slice_data(merged), (size_t)merged->size,
                       is_writeable);
}

static size_t first_with_strides(const frame_exports *exports)
{
    size_t i = 0;
    while (i < exports->count && exports->items[i].is_contiguous)
        i++;
    return i;
}

static PyObject *merge_exports(module_state *state, frame_exports *exports)
{
    size_t plain = first_with_strides(exports);
    spw_payload *payload;
    spw_slice merged;
    spw_error error;
    spw_status status = describe(state, exports, plain, &payload, &error);
    if (status == SPW_STATUS_OK) {
        status = spw_payload_merge(payload, SPW_MERGE_NEVER, &merged, &error);
        spw_payload_free(payload);
    }
    if (status != SPW_STATUS_OK)
        return raise_status(state, &error);
    PyObject *view = NULL;
    if (plain < exports->count)
        PyErr_Format(PyExc_ValueError, "part %zu is not contiguous", plain);
    else
        view = view_of(state, exports, &merged);
    spw_buffer_unref(merged.buffer);
    return view;
}

/* What make makes of the frames of a sequence. */
static PyObject *of_frames(PyObject *module, PyObject *frames,
                           PyObject *(*make)(module_state *state,
                                             frame_exports *exports))
{
    module_state *state = PyModule_GetState(module);
    PyObject *tuple = PySequence_Tuple(frames);
    if (tuple == NULL)
        return NULL;
    frame_exports exports;
    PyObject *view = NULL;
    if (frame_exports_acquire(state, tuple, &exports)) {
        view = make(state, &exports);
        frame_exports_release(&exports);
    }
    Py_DECREF(tuple);
    return view;
}

PyObject *native_merge(PyObject *module, PyObject *frames)
{
    return of_frames(module, frames, merge_exports);
}

/* Copy each frame to its place: those with strides under the GIL, since that is
 * Python's own code, the others without it. */
static bool fill(const frame_exports *exports, char *out)
{
    char *place = out;
    for (size_t i = 0; i < exports->count; i++) {
        const frame_export *item = &exports->items[i];
        if (!item->is_contiguous &&
            PyBuffer_ToContiguous(place, &item->view, item->view.len, 'C') < 0)
            return false;
        place += item->view.len;
    }
    Py_BEGIN_ALLOW_THREADS;
    place = out;
    for (size_t i = 0; i < exports->count; i++) {
        const frame_export *item = &exports->items[i];
        if (item->is_contiguous && item->view.len > 0)
            memcpy(place, item->view.buf, (size_t)item->view.len);
        place += item->view.len;
    }
    Py_END_ALLOW_THREADS;
    return true;
}

static PyObject *join_exports(module_state *state, frame_exports *exports)
{
    spw_buffer *buffer;
    spw_error error;
    if (spw_buffer_create(state->context, exports->bytes, SPW_CHARGE_HELD, &buffer,
                          &error) != SPW_STATUS_OK)
        return raise_status(state, &error);
    PyObject *view = NULL;
    if (fill(exports, spw_buffer_data(buffer)))
        view = buffer_view(state, buffer);
    if (view != NULL && exports->bytes > 0)
        spw_context_count_copy(state->context, SPW_COPY_MERGED, exports->bytes);
    spw_buffer_unref(buffer);
    return view;
}

PyObject *native_join(PyObject *module, PyObject *frames)
{
    return of_frames(module, frames, join_exports);
}

/* The lowest address of what is exported: with a stride below zero, that is not where
 * its first item is. */
static const char *lowest_address(const Py_buffer *view)
{
    const char *lowest = view->buf;
    if (view->strides == NULL)
        return lowest;
    for (int i = 0; i < view->ndim; i++) {
        if (view->strides[i] < 0 && view->shape[i] > 1)
            lowest += view->strides[i] * (view->shape[i] - 1);
    }
    return lowest;
}

static PyObject *offset_in_root(module_state *state, const Py_buffer *view)
{
    PyObject *root = exporter_root(state, view->obj);
    if (root == NULL)
        return NULL;
    /* A class with a method __buffer__ is behind an object that does not export. */
    if (PyMemoryView_Check(root) || !PyObject_CheckBuffer(root)) {
        PyErr_SetString(PyExc_ValueError, "the view does not say whose memory it has");
        return NULL;
    }
    Py_buffer whole;
    if (PyObject_GetBuffer(root, &whole, PyBUF_FULL_RO) < 0)
        return NULL;
    PyObject *offset = NULL;
    if (whole.suboffsets != NULL)
        PyErr_SetString(PyExc_ValueError, "the view's owner has memory in many pieces");
    else
        offset = PyLong_FromSsize_t((const char *)view->buf - lowest_address(&whole));
    PyBuffer_Release(&whole);
    return offset;
}

PyObject *native_buffer_offset(PyObject *module, PyObject *view)
{
    module_state *state = PyModule_GetState(module);
    Py_buffer part;
    if (PyObject_GetBuffer(view, &part, PyBUF_FULL_RO) < 0)
        return NULL;
    PyObject *offset =
        part.buf == NULL ? PyLong_FromLong(0) : offset_in_root(state, &part);
    PyBuffer_Release(&part);
    return offset;
}
