/* What both ways check before they rely on the layout. */
#include "shuffle/shard_layout.h"

#include "context/error.h"

static bool has_right_size(const spw_column_type *type)
{
    switch (type->kind) {
    case SPW_COLUMN_FIXED:
        return type->item_size > 0;
    case SPW_COLUMN_BITS:
        return type->item_size == 0;
    case SPW_COLUMN_BLOB:
        return type->item_size == 0 && !type->has_validity;
    case SPW_COLUMN_BINARY:
    case SPW_COLUMN_LIST:
        return type->item_size == 4 || type->item_size == 8;
    case SPW_COLUMN_FIXED_LIST:
        return true;
    }
    return false;
}

/* follow: how many columns come after it that it can have inside. */
static spw_status check_type(const spw_column_type *type, size_t column, size_t follow,
                             bool is_inner, spw_error *error)
{
    if (!has_right_size(type))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "column %zu: no column of kind %d has items of %u "
                              "bytes%s",
                              column, (int)type->kind, type->item_size,
                              type->has_validity ? " and validity" : "");
    bool is_list = type->kind == SPW_COLUMN_LIST || type->kind == SPW_COLUMN_FIXED_LIST;
    if (type->inner_columns > (is_list ? follow : 0))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "column %zu cannot have %u columns inside", column,
                              type->inner_columns);
    if (is_inner && type->kind == SPW_COLUMN_BLOB)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "column %zu: a blob is inside of no list", column);
    return SPW_STATUS_OK;
}

spw_status spw__column_types_check(const spw_column_type *types, size_t stride,
                                   size_t column_count, size_t *ret_count_columns,
                                   spw_error *error)
{
    size_t ends[SPW_COLUMN_DEPTH_MAX]; /* of the lists that a column is in */
    size_t depth = 0, count_columns = 0;
    for (size_t i = 0; i < column_count; i++) {
        const spw_column_type *type =
            (const void *)((const uint8_t *)types + i * stride);
        while (depth > 0 && ends[depth - 1] == i)
            depth--;
        size_t end = depth > 0 ? ends[depth - 1] : column_count;
        spw_status status = check_type(type, i, end - i - 1, depth > 0, error);
        if (status != SPW_STATUS_OK)
            return status;
        count_columns += spw__column_has_count(type);
        if (type->inner_columns == 0)
            continue;
        if (depth == SPW_COLUMN_DEPTH_MAX)
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "column %zu is a list in more than %d others", i,
                                  SPW_COLUMN_DEPTH_MAX - 1);
        ends[depth++] = i + 1 + type->inner_columns;
    }
    if (ret_count_columns != NULL)
        *ret_count_columns = count_columns;
    return SPW_STATUS_OK;
}
