/* Only items that rows refer to are moved: they are those between the first row's
 * offset and the last one's, since offsets do not decrease. */
#include "shuffle/split_level.h"

#include <inttypes.h>

#include "context/error.h"
#include "shuffle/numbers.h"
#include "shuffle/shard_layout.h"

spw__split_level spw__split_level_outermost(const spw__split_job *job)
{
    return (spw__split_level){.end = job->column_count,
                              .row_count = job->row_count,
                              .ids = job->ids,
                              .rows = job->tables.rows};
}

/* Which items the rows of a list have. */
static void find_items(const spw_column *column, const spw__split_level *outer,
                       spw__split_level *ret)
{
    uint32_t size = column->type.item_size;
    uint64_t row = column->offset + outer->first;
    if (column->type.kind == SPW_COLUMN_FIXED_LIST) {
        ret->first = row * size;
        ret->row_count = outer->row_count * size;
    } else if (outer->row_count > 0) {
        ret->first = spw__offset_at(column->values, size, row);
        ret->row_count =
            spw__offset_at(column->values, size, row + outer->row_count) - ret->first;
    }
}

static void derive_ids(const spw_column *column, const spw__split_level *outer,
                       uint32_t *ids)
{
    uint32_t size = column->type.item_size;
    uint64_t first = column->offset + outer->first, before = 0;
    bool is_fixed = column->type.kind == SPW_COLUMN_FIXED_LIST;
    if (!is_fixed && outer->row_count > 0)
        before = spw__offset_at(column->values, size, first);
    for (uint64_t row = 0; row < outer->row_count; row++) {
        uint64_t after = before + size;
        if (!is_fixed)
            after = spw__offset_at(column->values, size, first + row + 1);
        for (uint64_t item = before; item < after; item++)
            *ids++ = outer->ids[row];
        before = after;
    }
}

spw_status spw__split_level_open(const spw__split_job *job,
                                 const spw__split_level *outer, size_t column,
                                 size_t number, spw__split_level *ret_level,
                                 spw_error *error)
{
    const spw_column *list = &job->columns[column];
    const spw__split_tables *tables = &job->tables;
    spw__split_level level = {.begin = column + 1,
                              .end = column + 1 + list->type.inner_columns,
                              .first_count =
                                  number + spw__column_has_count(&list->type)};
    find_items(list, outer, &level);
    if (level.row_count > UINT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "column %zu has %" PRIu64 " items, more than a list may",
                              column, level.row_count);
    size_t bytes =
        ((size_t)level.row_count + tables->partition_count) * sizeof(uint32_t);
    spw_status status =
        spw_buffer_create(job->context, bytes, SPW_CHARGE_HELD, &level.memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint32_t *rows = spw_buffer_data(level.memory);
    for (size_t p = 0; p < tables->partition_count; p++) {
        uint64_t count = 0;
        if (list->type.kind == SPW_COLUMN_LIST)
            count = tables->counts[p * tables->counts_per_shard + number];
        rows[p] = (uint32_t)spw__column_inner_rows(&list->type, outer->rows[p], count);
    }
    derive_ids(list, outer, rows + tables->partition_count);
    level.rows = rows;
    level.ids = rows + tables->partition_count;
    *ret_level = level;
    return SPW_STATUS_OK;
}

void spw__split_level_close(spw__split_level *level)
{
    spw_buffer_unref(level->memory);
}

void spw__level_next(const spw__split_job *job, spw__level_column *at)
{
    size_t end = at->column + 1 + job->columns[at->column].type.inner_columns;
    for (; at->column < end; at->column++)
        at->number += spw__column_has_count(&job->columns[at->column].type);
}
