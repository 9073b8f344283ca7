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
        return type->item_size == 4 || type->item_size == 8;
    }
    return false;
}

spw_status spw__column_type_check(const spw_column_type *type, size_t column,
                                  spw_error *error)
{
    if (has_right_size(type))
        return SPW_STATUS_OK;
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "column %zu: no column of kind %d has items of %u bytes%s",
                          column, (int)type->kind, type->item_size,
                          type->has_validity ? " and validity" : "");
}
