/* A level: columns of one length, which are the table's, or those inside of a list. The
 * items of a list's rows are rows too, for the partition that their row is for, and so
 * whatever is done with a table's columns is done with them. */
#ifndef SPW_SHUFFLE_SPLIT_LEVEL_H
#define SPW_SHUFFLE_SPLIT_LEVEL_H

#include "shuffle/split_gather.h"

typedef struct spw__split_level {
    size_t begin, end; /* which of the table's columns, those inside of them included */
    size_t first_count;   /* the number of begin's count, if it has one */
    uint64_t first;       /* rows that lie before the first one beside column.offset */
    uint64_t row_count;   /* below 2^32 */
    const uint32_t *ids;  /* one a row */
    const uint32_t *rows; /* by partition */
    spw_buffer *memory;   /* of ids and rows; NULL: somebody else's */
} spw__split_level;

/* The table's own columns. */
spw__split_level spw__split_level_outermost(const spw__split_job *job);
/* What is inside of a list column of outer, whose offsets and counts are known to be
 * right. number: of the column's count, or of the next one.
 * Returns: in ret_level, to be closed. Errors: LIMIT_EXCEEDED (items, memory),
 * NO_MEMORY. */
spw_status spw__split_level_open(const spw__split_job *job,
                                 const spw__split_level *outer, size_t column,
                                 size_t number, spw__split_level *ret_level,
                                 spw_error *error);
void spw__split_level_close(spw__split_level *level);

/* A loop over the columns of a level, without those inside of them, begins with this;
 * number is that of column's count, or of the next one. */
typedef struct spw__level_column {
    size_t column, number;
} spw__level_column;

static inline spw__level_column spw__level_begin(const spw__split_level *level)
{
    return (spw__level_column){level->begin, level->first_count};
}
void spw__level_next(const spw__split_job *job, spw__level_column *at);

#endif
