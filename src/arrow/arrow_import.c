/* From Arrow's arrays to columns. Invariant: what is read of an array's buffers is the
 * last offset of each column with offsets, and bitmaps of what must not have nulls;
 * lengths are held against each other first. That buffers are as long as lengths say is
 * the word of whoever made the array, as it is for all who take it. */
#include <inttypes.h>

#include "arrow/arrow_format.h"
#include "context/error.h"
#include "shuffle/numbers.h"

/* Types, columns, or both, of a tree that is walked from its root on. */
typedef struct import {
    spw_column_type *types;
    spw_column *columns;
    size_t room, count;
} import;

/* ----- types ----- */

static spw_status add_types(import *to, const struct ArrowSchema *schema,
                            unsigned depth, spw_error *error)
{
    spw__arrow_format format;
    spw_status status = spw__arrow_format_read(schema, depth, &format, error);
    if (status != SPW_STATUS_OK)
        return status;
    size_t own = to->count;
    to->count += format.has_column;
    for (int64_t i = 0; i < schema->n_children && status == SPW_STATUS_OK; i++)
        status = add_types(to, schema->children[i], depth + 1, error);
    if (format.has_column && own < to->room) {
        if (spw__arrow_is_list(&format))
            format.type.inner_columns = (uint32_t)(to->count - own - 1);
        to->types[own] = format.type;
    }
    return status;
}

spw_status spw_arrow_types(const struct ArrowSchema *schema, spw_column_type *types,
                           size_t room, size_t *ret_count, spw_error *error)
{
import to = {.types = types, .room = room };
    spw_status status = add_types(&to, schema, 0, error);
    if (status == SPW_STATUS_OK)
        *ret_count = to.count;
    return status;
}

/* ----- arrays ----- */

static spw_status refuse(const struct ArrowSchema *schema, const char *what,
                         spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "an array of the type %.40s %s", schema->format, what);
}

static spw_status check_array(const struct ArrowSchema *schema,
                              const spw__arrow_format *format,
                              const struct ArrowArray *array, spw_error *error)
{
    if (array->release == NULL)
        return refuse(schema, "was released", error);
    if (array->n_buffers != format->buffer_count ||
        (array->n_buffers > 0 && array->buffers == NULL))
        return refuse(schema, "has another number of buffers", error);
    if (array->n_children != schema->n_children ||
        (array->n_children > 0 && array->children == NULL))
        return refuse(schema, "has another number of children", error);
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i] == NULL)
            return refuse(schema, "lacks a child", error);
    if (array->length < 0 || array->offset < 0 ||
        array->length > INT64_MAX - array->offset)
        return refuse(schema, "has a length that is none", error);
    return SPW_STATUS_OK;
}

static bool has_nulls(const struct ArrowArray *array, uint64_t first, uint64_t rows)
{
    const uint8_t *bitmap = array->n_buffers > 0 ? array->buffers[0] : NULL;
    if (bitmap == NULL || array->null_count == 0)
        return false;
    for (uint64_t i = first; i < first + rows; i++)
        if ((bitmap[i / 8] >> (i % 8) & 1) == 0)
            return true;
    return false;
}

/* How much of its data or of its child a column with offsets may have. */
static spw_status find_data_size(const struct ArrowSchema *schema,
                                 const struct ArrowArray *array, spw_column *column,
                                 spw_error *error)
{
    uint32_t size = column->type.item_size;
    if (column->type.kind == SPW_COLUMN_LIST) {
        column->data_size = (uint64_t)array->children[0]->length;
        return SPW_STATUS_OK;
    }
    column->data = array->buffers[2];
    if (array->length == 0)
        return SPW_STATUS_OK; /* it need not have an offset */
    if (column->values == NULL)
        return refuse(schema, "has no offsets", error);
    uint64_t end =
        spw__offset_at(column->values, size, (uint64_t)(array->offset + array->length));
    if (end > INT64_MAX)
        return refuse(schema, "has an offset below 0", error);
    if (end > 0 && column->data == NULL)
        return refuse(schema, "has no data", error);
    column->data_size = end;
    return SPW_STATUS_OK;
}

/* first: rows of the array that lie before its own first one, because it is a member of
 * a struct that begins behind them. */
static spw_status make_column(const struct ArrowSchema *schema,
                              const spw__arrow_format *format,
                              const struct ArrowArray *array, uint64_t first,
                              spw_column *ret_column, spw_error *error)
{
    spw_column_kind kind = format->type.kind;
    spw_column column = {.type = format->type,
                         .offset = first + (uint64_t)array->offset};
    if (kind != SPW_COLUMN_FIXED_LIST)
        column.values = array->buffers[1];
    if (format->type.has_validity && array->null_count != 0)
        column.validity = array->buffers[0];
    spw_status status = SPW_STATUS_OK;
    if (kind == SPW_COLUMN_BINARY || kind == SPW_COLUMN_LIST)
        status = find_data_size(schema, array, &column, error);
    *ret_column = column;
    return status;
}

/* rows: of the array's, behind the first ones. */
static spw_status add_columns(import *to, const struct ArrowSchema *schema,
                              const struct ArrowArray *array, uint64_t first,
                              uint64_t rows, unsigned depth, spw_error *error)
{
    spw__arrow_format format;
    spw_status status = spw__arrow_format_read(schema, depth, &format, error);
    if (status == SPW_STATUS_OK)
        status = check_array(schema, &format, array, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (first > (uint64_t)array->length || rows > (uint64_t)array->length - first)
        return refuse(schema, "is shorter than what it is in", error);
    uint64_t begin = first + (uint64_t)array->offset;
    if (!format.type.has_validity && has_nulls(array, begin, rows))
        return refuse(schema, "has nulls, though it is not nullable", error);
    size_t own = to->count;
    to->count += format.has_column;
    if (to->count > to->room)
        return refuse(schema, "has no room for its column", error);
    bool is_list = spw__arrow_is_list(&format);
    for (int64_t i = 0; i < array->n_children && status == SPW_STATUS_OK; i++) {
        const struct ArrowArray *child = array->children[i];
        uint64_t child_first = is_list ? 0 : begin;
        uint64_t child_rows = rows;
        if (format.type.kind == SPW_COLUMN_LIST)
            child_rows = child->length > 0 ? (uint64_t)child->length : 0;
        else if (is_list && format.type.item_size > 0 &&
                 begin + rows > INT64_MAX / format.type.item_size)
            return refuse(schema, "is longer than the address space", error);
        else if (is_list)
            child_rows = (begin + rows) * format.type.item_size;
        status = add_columns(to, schema->children[i], child, child_first, child_rows,
                             depth + 1, error);
    }
    if (status != SPW_STATUS_OK || !format.has_column)
        return status;
    if (is_list)
        format.type.inner_columns = (uint32_t)(to->count - own - 1);
    return make_column(schema, &format, array, first, &to->columns[own], error);
}

spw_status spw_arrow_columns(const struct ArrowSchema *schema,
                             const struct ArrowArray *array, spw_column *columns,
                             size_t room, spw_error *error)
{
import to = {.columns = columns, .room = room };
    uint64_t rows = array->length > 0 ? (uint64_t)array->length : 0;
    return add_columns(&to, schema, array, 0, rows, 0, error);
}
