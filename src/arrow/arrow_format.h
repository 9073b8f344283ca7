/* One type of a schema: what its format string says of its arrays, and which column
 * they are. Thread: any. */
#ifndef SPW_ARROW_ARROW_FORMAT_H
#define SPW_ARROW_ARROW_FORMAT_H

#include "spillway/arrow.h"

enum { SPW__ARROW_DEPTH_MAX = 64 };

typedef struct spw__arrow_format {
    bool has_column;      /* false: a null, or a struct without validity */
    bool is_struct;       /* children have its rows; those of a list its items */
    spw_column_type type; /* inner_columns 0: only its children tell */
    int64_t buffer_count;
    int64_t child_count; /* -1: any */
} spw__arrow_format;

/* Errors: UNSUPPORTED, INVALID_ARGUMENT (children that are not there, too), and
 * LIMIT_EXCEEDED for a depth that is not below SPW__ARROW_DEPTH_MAX. */
spw_status spw__arrow_format_read(const struct ArrowSchema *schema, unsigned depth,
                                  spw__arrow_format *ret_format, spw_error *error);

/* Whether children are inside of the column. */
static inline bool spw__arrow_is_list(const spw__arrow_format *format)
{
    return format->type.kind == SPW_COLUMN_LIST ||
           (format->type.kind == SPW_COLUMN_FIXED_LIST && !format->is_struct);
}

#endif
