/* Invariant: a column that passes has its rows in memory that is exported, so that the
 * library may read them without the GIL. What offsets say is the library's to check. */
#include "exported_columns.h"

enum { VALUES, DATA, VALIDITY };

static bool refuse(size_t number, const char *what)
{
    PyErr_Format(PyExc_ValueError, "column %zu %s", number, what);
    return false;
}

static bool export_part(PyObject *part, int flags, Py_buffer *ret_view)
{
    if (part == Py_None)
        return true;
    return PyObject_GetBuffer(part, ret_view, flags) == 0;
}

/* 1, 0 if it is no range, -1 with an exception set. */
static int parse_range(PyObject *values, column_views *ret_views)
{
    if (!PyObject_TypeCheck(values, &PyRange_Type))
        return 0;
    static const char *const NAMES[] = {"start", "step"};
    int64_t *places[] = {&ret_views->first, &ret_views->step};
    for (int i = 0; i < 2; i++) {
        PyObject *number = PyObject_GetAttrString(values, NAMES[i]);
        *places[i] = number != NULL ? PyLong_AsLongLong(number) : 0;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return -1;
    }
    ret_views->is_range = true;
    return 1;
}

/* Whether a view has count items of size bytes, side by side or at regular distances,
 * which then are the column's stride. */
static bool has_items(const Py_buffer *view, uint64_t count, uint32_t size,
                      uint64_t *ret_stride)
{
    *ret_stride = 0;
    if (PyBuffer_IsContiguous(view, 'C'))
        return count <= (uint64_t)view->len / size;
    *ret_stride = (uint64_t)view->strides[0];
    return view->ndim == 1 && view->itemsize == (Py_ssize_t)size &&
           view->strides[0] >= view->itemsize && count <= (uint64_t)view->shape[0];
}

static bool has_bits(const Py_buffer *view, uint64_t first, uint64_t count)
{
    uint64_t bits = (uint64_t)view->len * 8;
    return PyBuffer_IsContiguous(view, 'C') && first <= bits && count <= bits - first;
}

/* What is not a multiple of a row: one more offset than there are rows. */
static bool values_suffice(spw_column *column, const Py_buffer *view, uint64_t rows,
                           uint32_t partition_count)
{
    switch (column->type.kind) {
    case SPW_COLUMN_BITS:
        return has_bits(view, column->values_bit_offset, rows);
    case SPW_COLUMN_FIXED:
        return has_items(view, rows, column->type.item_size, &column->stride);
    case SPW_COLUMN_BINARY:
        return has_items(view, rows + 1, column->type.item_size, &column->stride) &&
               column->stride == 0;
    default:
        return has_items(view, (uint64_t)partition_count + 1, 8, &column->stride) &&
               column->stride == 0;
    }
}

static bool check(spw_column *column, const column_views *views, uint64_t row_count,
                  uint32_t partition_count, size_t number)
{
    const Py_buffer *values = &views->parts[VALUES],
                    *validity = &views->parts[VALIDITY];
    uint64_t rows = row_count + column->offset;
    if (rows < row_count || (int64_t)rows < 0)
        return refuse(number, "begins behind its end");
    bool has_size =
        column->type.kind == SPW_COLUMN_FIXED || column->type.kind == SPW_COLUMN_BINARY;
    if (has_size && column->type.item_size == 0)
        return refuse(number, "has items of no bytes");
    bool suffice = values->obj != NULL
                       ? values_suffice(column, values, rows, partition_count)
                       : row_count == 0 || views->is_range;
    if (!suffice)
        return refuse(number, "has fewer values than rows");
    if (validity->obj != NULL && !has_bits(validity, column->validity_bit_offset, rows))
        return refuse(number, "has a shorter bitmap than rows");
    return true;
}

static bool open_one(PyObject *tuple, uint64_t row_count, uint32_t partition_count,
                     size_t number, spw_column *ret_column, column_views *ret_views)
{
    PyObject *parts[3];
    int kind, has_validity;
    unsigned item_size;
    unsigned long long offset, bit_offset, validity_bit_offset;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "columns are tuples");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "iIOKKOpOK:column", &kind, &item_size, &parts[VALUES],
                          &offset, &bit_offset, &parts[DATA], &has_validity,
                          &parts[VALIDITY], &validity_bit_offset))
        return false;
    int is_range = parse_range(parts[VALUES], ret_views);
    if (is_range < 0)
        return false;
    if (is_range && (kind != SPW_COLUMN_FIXED || item_size != 8 || offset != 0))
        return refuse(number, "is a range, and no column of its integers");
    PyObject *values = is_range ? Py_None : parts[VALUES];
    if (!export_part(values, PyBUF_STRIDED_RO, &ret_views->parts[VALUES]) ||
        !export_part(parts[DATA], PyBUF_SIMPLE, &ret_views->parts[DATA]) ||
        !export_part(parts[VALIDITY], PyBUF_SIMPLE, &ret_views->parts[VALIDITY]))
        return false;
    *ret_column = (spw_column){
        .type = {.kind = (spw_column_kind)kind,
                 .item_size = item_size,
                 .has_validity = has_validity != 0},
        .offset = offset,
        .values = ret_views->parts[VALUES].buf,
        .values_bit_offset = bit_offset,
        .data = ret_views->parts[DATA].buf,
        .data_size = (uint64_t)ret_views->parts[DATA].len,
        .validity = ret_views->parts[VALIDITY].buf,
        .validity_bit_offset = validity_bit_offset,
    };
    return check(ret_column, ret_views, row_count, partition_count, number);
}

bool exported_columns_open(PyObject *list, uint64_t row_count, uint32_t partition_count,
                           exported_columns *ret_columns)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "columns are a list");
        return false;
    }
    exported_columns columns = {.count = (size_t)PyList_Size(list)};
    columns.columns = PyMem_Calloc(columns.count + 1, sizeof *columns.columns);
    columns.views = PyMem_Calloc(columns.count + 1, sizeof *columns.views);
    if (columns.columns == NULL || columns.views == NULL) {
        exported_columns_clear(&columns);
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < columns.count; i++)
        if (!open_one(PyList_GetItem(list, (Py_ssize_t)i), row_count, partition_count,
                      i, &columns.columns[i], &columns.views[i])) {
            exported_columns_clear(&columns);
            return false;
        }
    *ret_columns = columns;
    return true;
}

void exported_columns_clear(exported_columns *columns)
{
    for (size_t i = 0; i < columns->count && columns->views != NULL; i++) {
        spw_buffer_unref(columns->views[i].written);
        for (size_t part = 0; part < 3; part++)
            PyBuffer_Release(&columns->views[i].parts[part]);
    }
    PyMem_Free(columns->views);
    PyMem_Free(columns->columns);
}

spw_status exported_columns_fill(spw_context *context, uint64_t row_count,
                                 exported_columns *columns, spw_error *error)
{
    for (size_t i = 0; i < columns->count; i++) {
        column_views *views = &columns->views[i];
        if (!views->is_range)
            continue;
        spw_status status =
            spw_buffer_create(context, (size_t)row_count * sizeof(int64_t),
                              SPW_CHARGE_HELD, &views->written, error);
        if (status != SPW_STATUS_OK)
            return status;
        int64_t *values = spw_buffer_data(views->written);
        for (uint64_t row = 0; row < row_count; row++)
            values[row] =
                (int64_t)((uint64_t)views->first + row * (uint64_t)views->step);
        columns->columns[i].values = values;
    }
    return SPW_STATUS_OK;
}
