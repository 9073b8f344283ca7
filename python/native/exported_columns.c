/* Invariant: a column that passes has its rows in memory that is kept, so that the
 * library may read them without the GIL. What offsets say is the library's to check;
 * that an array of Arrow's has the memory it says is the word of whoever made it. */
#include "exported_columns.h"

#include "arrow_capsules.h"
#include "raise_status.h"

static bool refuse(size_t number, const char *what)
{
    PyErr_Format(PyExc_ValueError, "column %zu %s", number, what);
    return false;
}

/* Returns: where more columns go; NULL with an exception set. */
static spw_column *grow(exported_columns *columns, size_t more)
{
    size_t bytes = (columns->count + more + 1) * sizeof *columns->columns;
    spw_column *grown = PyMem_Realloc(columns->columns, bytes);
    if (grown == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    columns->columns = grown;
    return &grown[columns->count];
}

/* ----- in memory ----- */

static bool export_part(PyObject *part, int flags, Py_buffer *ret_view)
{
    if (part == Py_None)
        return true;
    return PyObject_GetBuffer(part, ret_view, flags) == 0;
}

/* 1, 0 if it is no range, -1 with an exception set. */
static int parse_range(PyObject *values, column_owner *owner)
{
    if (!PyObject_TypeCheck(values, &PyRange_Type))
        return 0;
    static const char *const NAMES[] = {"start", "step"};
    int64_t *places[] = {&owner->first, &owner->step};
    for (int i = 0; i < 2; i++) {
        PyObject *number = PyObject_GetAttrString(values, NAMES[i]);
        *places[i] = number != NULL ? PyLong_AsLongLong(number) : 0;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return -1;
    }
    owner->is_range = true;
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

static bool check(spw_column *column, const column_owner *owner, uint64_t row_count,
                  uint32_t partition_count, size_t number)
{
    bool is_blob = column->type.kind == SPW_COLUMN_BLOB;
    if (!is_blob && column->type.kind != SPW_COLUMN_FIXED)
        return refuse(number, "is of a kind that is in an array of Arrow's");
    if (!is_blob && column->type.item_size == 0)
        return refuse(number, "has items of no bytes");
    bool suffice = row_count == 0 || owner->is_range;
    if (owner->values.obj != NULL && is_blob)
        suffice = has_items(&owner->values, (uint64_t)partition_count + 1, 8,
                            &column->stride) &&
                  column->stride == 0;
    else if (owner->values.obj != NULL)
        suffice = has_items(&owner->values, row_count, column->type.item_size,
                            &column->stride);
    return suffice || refuse(number, "has fewer values than rows");
}

static bool open_memory(PyObject *tuple, uint64_t row_count, uint32_t partition_count,
                        size_t number, column_owner *owner, exported_columns *columns)
{
    PyObject *values, *data;
    int kind;
    unsigned item_size;
    spw_column *column = grow(columns, 1);
    if (column == NULL ||
        !PyArg_ParseTuple(tuple, "iIOO:column", &kind, &item_size, &values, &data))
        return false;
    int is_range = parse_range(values, owner);
    if (is_range < 0)
        return false;
    if (is_range && (kind != SPW_COLUMN_FIXED || item_size != 8))
        return refuse(number, "is a range, and no column of its integers");
    if (!export_part(is_range ? Py_None : values, PyBUF_STRIDED_RO, &owner->values) ||
        !export_part(data, PyBUF_SIMPLE, &owner->data))
        return false;
    *column = (spw_column){
        .type = {.kind = (spw_column_kind)kind, .item_size = item_size},
        .values = owner->values.buf,
        .data = owner->data.buf,
        .data_size = (uint64_t)owner->data.len,
    };
    columns->count++;
    return check(column, owner, row_count, partition_count, number);
}

/* ----- of Arrow's ----- */

static bool open_array(module_state *state, PyObject *pair, uint64_t row_count,
                       size_t number, column_owner *owner, exported_columns *columns)
{
    PyObject *capsule, *object;
    struct ArrowArray *array;
    if (!PyArg_ParseTuple(pair, "OO:column", &capsule, &object))
        return false;
    const struct ArrowSchema *schema = arrow_schema_in(capsule);
    if (schema == NULL || (owner->capsules = arrow_array_of(object, &array)) == NULL)
        return false;
    if (array->length < 0 || (uint64_t)array->length != row_count)
        return refuse(number, "has another number of rows");
    size_t count;
    spw_error error;
    spw_status status = spw_arrow_types(schema, NULL, 0, &count, &error);
    if (status == SPW_STATUS_OK) {
        spw_column *column = grow(columns, count);
        if (column == NULL)
            return false;
        status = spw_arrow_columns(schema, array, column, count, &error);
    }
    if (status != SPW_STATUS_OK) {
        raise_status(state, &error);
        return false;
    }
    columns->count += count;
    return true;
}

/* ----- all ----- */

static bool open_one(module_state *state, PyObject *item, uint64_t row_count,
                     uint32_t partition_count, size_t number, column_owner *owner,
                     exported_columns *columns)
{
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "columns are tuples");
        return false;
    }
    return PyTuple_Size(item) == 2
               ? open_array(state, item, row_count, number, owner, columns)
               : open_memory(item, row_count, partition_count, number, owner, columns);
}

bool exported_columns_open(module_state *state, PyObject *given, uint64_t row_count,
                           uint32_t partition_count, exported_columns *ret_columns)
{
    PyObject *items = PySequence_Tuple(given);
    if (items == NULL)
        return false;
    exported_columns columns = {.owner_count = (size_t)PyTuple_Size(items)};
    columns.owners = PyMem_Calloc(columns.owner_count + 1, sizeof *columns.owners);
    bool is_open = columns.owners != NULL && grow(&columns, 0) != NULL;
    if (columns.owners == NULL) {
        columns.owner_count = 0;
        PyErr_NoMemory();
    }
    for (size_t i = 0; i < columns.owner_count && is_open; i++) {
        PyObject *item = PyTuple_GetItem(items, (Py_ssize_t)i);
        column_owner *owner = &columns.owners[i];
        owner->column = columns.count;
        is_open = open_one(state, item, row_count, partition_count, i, owner, &columns);
    }
    Py_DECREF(items);
    if (is_open)
        *ret_columns = columns;
    else
        exported_columns_clear(&columns);
    return is_open;
}

void exported_columns_clear(exported_columns *columns)
{
    for (size_t i = 0; i < columns->owner_count; i++) {
        column_owner *owner = &columns->owners[i];
        spw_buffer_unref(owner->written);
        Py_XDECREF(owner->capsules);
        PyBuffer_Release(&owner->values);
        PyBuffer_Release(&owner->data);
    }
    PyMem_Free(columns->owners);
    PyMem_Free(columns->columns);
}

spw_status exported_columns_fill(spw_context *context, uint64_t row_count,
                                 exported_columns *columns, spw_error *error)
{
    for (size_t i = 0; i < columns->owner_count; i++) {
        column_owner *owner = &columns->owners[i];
        if (!owner->is_range)
            continue;
        spw_status status =
            spw_buffer_create(context, (size_t)row_count * sizeof(int64_t),
                              SPW_CHARGE_HELD, &owner->written, error);
        if (status != SPW_STATUS_OK)
            return status;
        int64_t *values = spw_buffer_data(owner->written);
        for (uint64_t row = 0; row < row_count; row++)
            values[row] =
                (int64_t)((uint64_t)owner->first + row * (uint64_t)owner->step);
        columns->columns[owner->column].values = values;
    }
    return SPW_STATUS_OK;
}
