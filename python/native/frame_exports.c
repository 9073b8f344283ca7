/* Exports of frames. Whose memory a frame is in is found by following references, never
 * by comparing addresses: what touches by chance has two owners. */
#include "frame_exports.h"

#include "merged_type.h"

PyObject *exporter_root(module_state *state, PyObject *exporter)
{
    for (;;) {
        PyObject *next;
        if (PyMemoryView_Check(exporter)) {
            next = PyObject_GetAttrString(exporter, "obj");
            if (next == NULL)
                return NULL;
            /* The memoryview keeps it. */
            Py_DECREF(next);
            if (Py_IsNone(next))
                return exporter;
        } else {
            next = merged_root(state, exporter);
            if (next == NULL)
                return exporter;
        }
        exporter = next;
    }
}

static bool export_frame(module_state *state, PyObject *frame, frame_export *item)
{
    if (PyObject_GetBuffer(frame, &item->view, PyBUF_FULL_RO) < 0)
        return false;
    if (item->view.len == 0) {
        /* It may not even have an address, and must not keep anything alive. */
        int is_readonly = item->view.readonly;
        PyBuffer_Release(&item->view);
        item->view = (Py_buffer){.readonly = is_readonly};
        item->is_contiguous = true;
        return true;
    }
    item->is_contiguous = PyBuffer_IsContiguous(&item->view, 'C');
    item->root = exporter_root(state, item->view.obj);
    if (item->root != NULL)
        return true;
    PyBuffer_Release(&item->view);
    return false;
}

bool frame_exports_acquire(module_state *state, PyObject *frames,
                           frame_exports *ret_exports)
{
    size_t count = (size_t)PyTuple_Size(frames);
    frame_exports exports = {.items = PyMem_Calloc(count, sizeof(frame_export))};
    if (exports.items == NULL) {
        PyErr_NoMemory();
        return false;
    }
    while (exports.count < count) {
        frame_export *item = &exports.items[exports.count];
        PyObject *frame = PyTuple_GetItem(frames, (Py_ssize_t)exports.count);
        if (frame == NULL || !export_frame(state, frame, item))
            goto fail;
        exports.count++;
        /* One byte with strides of zero may be exported as any number of them. */
        if (item->view.len > PY_SSIZE_T_MAX - (Py_ssize_t)exports.bytes) {
            PyErr_SetString(PyExc_OverflowError,
                            "the frames have more bytes than the address space");
            goto fail;
        }
        exports.bytes += (size_t)item->view.len;
    }
    *ret_exports = exports;
    return true;
fail:
    frame_exports_release(&exports);
    return false;
}

void frame_exports_release(frame_exports *exports)
{
    for (size_t i = 0; i < exports->count; i++)
        PyBuffer_Release(&exports->items[i].view);
    PyMem_Free(exports->items);
    *exports = (frame_exports){0};
}
