/* split(): everything that depends on the number of rows runs without the GIL. */
#include "split_function.h"

#include <string.h>

#include "buffer_type.h"
#include "exported_columns.h"
#include "integer_arguments.h"
#include "raise_status.h"

/* As the buffer protocol names them. */
static const char INTEGERS[] = "bBhHiIlLqQ", SIGNED[] = "bhilq";

typedef struct split_job {
    spw_context *context;
    exported_columns columns;
    uint64_t row_count;
    Py_buffer ids, numbers, ends; /* obj is NULL until exported */
    spw_partition_id_type id_type;
    uint32_t partition_count;
    spw_split *split;
} split_job;

static uint32_t range_count(const split_job *job)
{
    return (uint32_t)(job->ends.len / 4);
}

static void job_clear(split_job *job)
{
    spw_split_free(job->split);
    exported_columns_clear(&job->columns);
    PyBuffer_Release(&job->ids);
    PyBuffer_Release(&job->numbers);
    PyBuffer_Release(&job->ends);
}

/* What kind of integers a buffer has, by its format. */
static bool parse_ids(split_job *job)
{
    const char *format = job->ids.format != NULL ? job->ids.format : "B";
    Py_ssize_t count = job->ids.len / job->ids.itemsize;
    if (format[0] == '\0' || format[1] != '\0' || strchr(INTEGERS, format[0]) == NULL) {
        PyErr_Format(PyExc_TypeError, "partition ids are integers, not '%s'", format);
        return false;
    }
    if ((uint64_t)count != job->row_count) {
        PyErr_Format(PyExc_ValueError, "%zd partition ids for %llu rows", count,
                     (unsigned long long)job->row_count);
        return false;
    }
    job->id_type = (spw_partition_id_type){
        .size = (uint32_t)job->ids.itemsize,
        .is_signed = strchr(SIGNED, format[0]) != NULL,
    };
    return true;
}

static bool parse_ranges(split_job *job)
{
    if (job->numbers.itemsize != 4 || job->ends.itemsize != 4 || job->ends.len == 0) {
        PyErr_SetString(PyExc_ValueError, "numbers and ends are arrays of u32, and "
                                          "there is an end at least");
        return false;
    }
    job->partition_count = ((const uint32_t *)job->ends.buf)[range_count(job) - 1];
    return true;
}

static bool parse(module_state *state, split_job *job, PyObject *args)
{
    PyObject *columns, *ids, *numbers, *ends;
    if (!PyArg_ParseTuple(args, "OO&OOO:split", &columns, bytes_argument,
                          &job->row_count, &ids, &numbers, &ends))
        return false;
    if (PyObject_GetBuffer(ids, &job->ids, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0 ||
        PyObject_GetBuffer(numbers, &job->numbers, PyBUF_C_CONTIGUOUS) < 0 ||
        PyObject_GetBuffer(ends, &job->ends, PyBUF_C_CONTIGUOUS) < 0)
        return false;
    return parse_ids(job) && parse_ranges(job) &&
           exported_columns_open(state, columns, job->row_count, job->partition_count,
                                 &job->columns);
}

/* Needs no GIL. */
static spw_status run(split_job *job, spw_error *error)
{
    spw_buffer *numbered;
    spw_status status =
        exported_columns_fill(job->context, job->row_count, &job->columns, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_buffer_create(job->context, (size_t)job->row_count * sizeof(uint32_t),
                               SPW_CHARGE_HELD, &numbered, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint32_t *ids = spw_buffer_data(numbered);
    status = spw_partition_ids_number(job->ids.buf, &job->id_type, job->row_count,
                                      job->numbers.buf, (uint64_t)job->numbers.len / 4,
                                      ids, error);
    if (status == SPW_STATUS_OK) {
        const spw_partitioning partitions = {.ids = ids,
                                             .count = job->partition_count,
                                             .range_count = range_count(job),
                                             .range_ends = job->ends.buf};
        status = spw_split_rows(job->context, job->columns.columns, job->columns.count,
                                job->row_count, &partitions, &job->split, error);
    }
    spw_buffer_unref(numbered);
    return status;
}

/* What one range has for others to keep; its parts of the tables follow those of the
 * ranges before it. */
typedef struct split_tables {
    char *rows, *counts; /* the next byte of each */
    PyObject *buffers;   /* a list */
} split_tables;

static bool add_range(module_state *state, const spw_split_range *range,
                      split_tables *tables)
{
    PyObject *view =
        range->buffer != NULL ? buffer_view(state, range->buffer) : Py_NewRef(Py_None);
    if (view == NULL)
        return false;
    int answer = PyList_Append(tables->buffers, view);
    Py_DECREF(view);
    size_t rows = range->partition_count * sizeof *range->rows;
    size_t counts = (size_t)range->partition_count * range->counts_per_shard *
                    sizeof *range->counts;
    if (rows > 0)
        memcpy(tables->rows, range->rows, rows);
    if (counts > 0)
        memcpy(tables->counts, range->counts, counts);
    tables->rows += rows;
    tables->counts += counts;
    return answer == 0;
}

static PyObject *answer(module_state *state, const split_job *job)
{
    spw_split_range range;
    spw_split_read_range(job->split, 0, &range);
    Py_ssize_t shards = (Py_ssize_t)job->partition_count;
    PyObject *rows = PyBytes_FromStringAndSize(NULL, shards * 4);
    PyObject *counts = PyBytes_FromStringAndSize(
        NULL, shards * (Py_ssize_t)range.counts_per_shard * 8);
    PyObject *buffers = PyList_New(0);
    bool is_whole = rows != NULL && counts != NULL && buffers != NULL;
    if (is_whole) {
        split_tables tables = {PyBytes_AsString(rows), PyBytes_AsString(counts),
                               buffers};
        for (uint32_t i = 0; i < spw_split_range_count(job->split) && is_whole; i++) {
            spw_split_read_range(job->split, i, &range);
            is_whole = add_range(state, &range, &tables);
        }
    }
    if (is_whole)
        return Py_BuildValue("(NNN)", rows, counts, buffers);
    Py_XDECREF(rows);
    Py_XDECREF(counts);
    Py_XDECREF(buffers);
    return NULL;
}

PyObject *native_split(PyObject *module, PyObject *args)
{
    module_state *state = PyModule_GetState(module);
    split_job job = {.context = state->context};
    PyObject *result = NULL;
    if (parse(state, &job, args)) {
        spw_status status;
        spw_error error;
        Py_BEGIN_ALLOW_THREADS;
        status = run(&job, &error);
        Py_END_ALLOW_THREADS;
        result =
            status == SPW_STATUS_OK ? answer(state, &job) : raise_status(state, &error);
    }
    job_clear(&job);
    return result;
}
