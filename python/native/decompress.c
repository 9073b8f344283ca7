/* Decompress the shards of one buffer side by side. Frames that say how large they are
 * (all that lz4 and snappy make, nearly all of zstd's) go straight to their place; the
 * others are expanded first and joined by one copy. */
#include "decompress.h"

#include <string.h>

#include "buffer_type.h"
#include "raise_status.h"

typedef struct compressed_shard {
    Py_buffer view; /* view.obj is NULL until exported */
    size_t plain_size;
    spw_buffer *expanded; /* NULL if the frame says its size */
} compressed_shard;

typedef struct decompression {
    spw_context *context;
    spw_codec_id codec;
    compressed_shard *shards;
    size_t count;
} decompression;

/* Find the size of each shard, expanding those that do not say it. Needs no GIL. */
static spw_status measure(const decompression *job, size_t *ret_total, spw_error *error)
{
    size_t total = 0;
    for (size_t i = 0; i < job->count; i++) {
        compressed_shard *shard = &job->shards[i];
        const void *data = shard->view.buf;
        size_t size = (size_t)shard->view.len;
        uint64_t plain_size;
        spw_status status =
            spw_codec_plain_size(job->codec, data, size, &plain_size, error);
        if (status == SPW_STATUS_UNSUPPORTED) {
            status = spw_codec_expand(job->context, job->codec, data, size,
                                      SPW_CHARGE_HELD, &shard->expanded, error);
            if (status != SPW_STATUS_OK)
                return status;
            plain_size = spw_buffer_size(shard->expanded);
            spw_context_count_copy(job->context, SPW_COPY_DECOMPRESSED, plain_size);
        } else if (status != SPW_STATUS_OK) {
            return status;
        }
        if (plain_size > (uint64_t)PY_SSIZE_T_MAX - total) {
            *error = (spw_error){
                .status = SPW_STATUS_LIMIT_EXCEEDED,
                .message = "compressed frames claim more than the address space",
            };
            return SPW_STATUS_LIMIT_EXCEEDED;
        }
        shard->plain_size = (size_t)plain_size;
        total += (size_t)plain_size;
    }
    *ret_total = total;
    return SPW_STATUS_OK;
}

/* Fill a buffer of the shards' total size. Needs no GIL. */
static spw_status fill(const decompression *job, spw_buffer *buffer, spw_error *error)
{
    char *out = spw_buffer_data(buffer);
    for (size_t i = 0; i < job->count; i++) {
        const compressed_shard *shard = &job->shards[i];
        if (shard->expanded != NULL) {
            memcpy(out, spw_buffer_data(shard->expanded), shard->plain_size);
        } else {
            spw_status status = spw_codec_decompress(job->codec, shard->view.buf,
                                                     (size_t)shard->view.len, out,
                                                     shard->plain_size, error);
            if (status != SPW_STATUS_OK)
                return status;
        }
        spw_context_count_copy(job->context, SPW_COPY_DECOMPRESSED, shard->plain_size);
        out += shard->plain_size;
    }
    return SPW_STATUS_OK;
}

/* Needs no GIL. Returns: one reference. */
static spw_status run(const decompression *job, spw_buffer **ret_buffer,
                      spw_error *error)
{
    size_t total;
    spw_status status = measure(job, &total, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (job->count == 1 && job->shards[0].expanded != NULL) {
        *ret_buffer = spw_buffer_ref(job->shards[0].expanded);
        return SPW_STATUS_OK;
    }
    spw_buffer *buffer;
    status = spw_buffer_create(job->context, total, SPW_CHARGE_HELD, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = fill(job, buffer, error);
    if (status != SPW_STATUS_OK) {
        spw_buffer_unref(buffer);
        return status;
    }
    *ret_buffer = buffer;
    return SPW_STATUS_OK;
}

static bool export_shards(decompression *job, PyObject *frames)
{
    for (size_t i = 0; i < job->count; i++) {
        PyObject *frame = PyList_GetItem(frames, (Py_ssize_t)i);
        if (frame == NULL ||
            PyObject_GetBuffer(frame, &job->shards[i].view, PyBUF_SIMPLE) < 0)
            return false;
    }
    return true;
}

static void clear_shards(decompression *job)
{
    for (size_t i = 0; i < job->count; i++) {
        PyBuffer_Release(&job->shards[i].view);
        spw_buffer_unref(job->shards[i].expanded);
    }
    PyMem_Free(job->shards);
}

PyObject *native_decompress(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"codec", "frames", NULL};
    module_state *state = PyModule_GetState(module);
    const char *codec;
    PyObject *frames;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "sO!:decompress", names, &codec,
                                     &PyList_Type, &frames))
        return NULL;
    decompression job = {.context = state->context,
                         .codec = spw_codec_by_name(codec),
                         .count = (size_t)PyList_Size(frames)};
    if (job.codec == SPW_CODEC_NONE)
        return PyErr_Format(PyExc_ValueError, "unknown codec '%s'", codec);
    job.shards = PyMem_Calloc(job.count, sizeof(compressed_shard));
    if (job.shards == NULL)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    if (export_shards(&job, frames)) {
        spw_buffer *buffer;
        spw_status status;
        spw_error error;
        Py_BEGIN_ALLOW_THREADS;
        status = run(&job, &buffer, &error);
        Py_END_ALLOW_THREADS;
        if (status == SPW_STATUS_OK) {
            result = buffer_view(state, buffer);
            spw_buffer_unref(buffer);
        } else {
            raise_status(state, &error);
        }
    }
    clear_shards(&job);
    return result;
}
