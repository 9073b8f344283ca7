/* XXH3 of what somebody exports, without the GIL where that takes longer than to get it
 * back. */
#include "checksum_function.h"

#define GIL_RELEASE_BYTES (64 * 1024)

PyObject *native_checksum(PyObject *module, PyObject *frame)
{
    (void)module;
    Py_buffer view;
    uint64_t sum;
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len < GIL_RELEASE_BYTES) {
        sum = spw_checksum(view.buf, (size_t)view.len);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        sum = spw_checksum(view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(sum);
}
