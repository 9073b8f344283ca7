/* Shards come from disks and peers. Invariant: of a shard that passes here, each part
 * of each column is within its bytes, and columns have less than 2^32 rows at any
 * depth. */
#include "shuffle/shard_sizes.h"

#include <inttypes.h>

#include "context/error.h"
#include "shuffle/shard_layout.h"

/* One shard, whose columns have been added up so far. */
typedef struct sizes {
    const spw_column_type *types;
    size_t number;          /* for messages */
    const uint64_t *counts; /* the next one; NULL: none are said */
    uint64_t most;          /* bytes that it may have */
    uint64_t taken;         /* at most that */
} sizes;

static spw_status refuse(const sizes *s, size_t column, const char *what,
                         spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_CORRUPT, 0, "shard %zu, column %zu: %s",
                          s->number, column, what);
}

static spw_status refuse_size(const sizes *s, size_t column, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                          "shard %zu, column %zu: what its rows and bytes take is more "
                          "than the shard's %" PRIu64 " bytes",
                          s->number, column, s->most);
}

/* Add a column, and see that its count can be one. */
static spw_status add_column(sizes *s, size_t column, uint32_t rows,
                             uint64_t *ret_count, spw_error *error)
{
    const spw_column_type *type = &s->types[column];
    bool has_count = spw__column_has_count(type);
    if (has_count && s->counts == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "shard %zu does not say the count of column %zu",
                              s->number, column);
    uint64_t count = has_count ? *s->counts++ : 0;
    if (type->kind == SPW_COLUMN_LIST && count > UINT32_MAX)
        return refuse(s, column, "more items than a shard may have", error);
    /* Before they are added up. */
    if (spw__column_has_data(type) && count > s->most)
        return refuse_size(s, column, error);
    if (rows == 0 && count > 0)
        return refuse(s, column, "bytes without rows", error);
    uint64_t taken = spw__shard_parts_of(type, rows, count).end;
    if (taken > s->most - s->taken)
        return refuse_size(s, column, error);
    s->taken += taken;
    *ret_count = count;
    return SPW_STATUS_OK;
}

/* As deep as lists are, which is limited. */
static spw_status add_columns(sizes *s, size_t begin, size_t end, uint32_t rows,
                              spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    for (size_t i = begin; i < end && status == SPW_STATUS_OK;
         i += 1 + s->types[i].inner_columns) {
        uint64_t count = 0;
        status = add_column(s, i, rows, &count, error);
        if (status != SPW_STATUS_OK || s->types[i].inner_columns == 0)
            continue;
        uint64_t inner_rows = spw__column_inner_rows(&s->types[i], rows, count);
        if (inner_rows > UINT32_MAX)
            return refuse(s, i, "more items than a shard may have", error);
        status = add_columns(s, i + 1, i + 1 + s->types[i].inner_columns,
                             (uint32_t)inner_rows, error);
    }
    return status;
}

spw_status spw__shard_size(const spw_column_type *types, size_t column_count,
                           size_t number, uint32_t rows, const uint64_t *counts,
                           uint64_t most, uint64_t *ret_size, spw_error *error)
{
    sizes s = {.types = types, .number = number, .counts = counts, .most = most};
    spw_status status = add_columns(&s, 0, column_count, rows, error);
    if (status == SPW_STATUS_OK)
        *ret_size = s.taken;
    return status;
}

static spw_status check_shard(const spw_column_type *types, size_t column_count,
                              const spw_shard *shard, size_t number, spw_error *error)
{
    uint64_t taken;
    if (shard->data == NULL && shard->size > 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "shard %zu has no address", number);
    if (shard->size > PTRDIFF_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "shard %zu is larger than the address space", number);
    spw_status status = spw__shard_size(types, column_count, number, shard->rows,
                                        shard->counts, shard->size, &taken, error);
    if (status == SPW_STATUS_OK && taken != shard->size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "shard %zu: %" PRIu64 " bytes, of which its columns take "
                              "only %" PRIu64,
                              number, shard->size, taken);
    return status;
}

spw_status spw__shards_check(const spw_column_type *types, size_t column_count,
                             const spw_shard *shards, size_t shard_count,
                             spw_error *error)
{
    spw_status status =
        spw__column_types_check(types, sizeof *types, column_count, NULL, error);
    for (size_t i = 0; i < shard_count && status == SPW_STATUS_OK; i++)
        status = check_shard(types, column_count, &shards[i], i, error);
    return status;
}

spw_status spw__shards_sum_rows(const spw_shard *shards, size_t shard_count,
                                uint64_t *ret_rows, spw_error *error)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < shard_count; i++) {
        if (shards[i].rows > UINT64_MAX - rows)
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "the shards up to %zu have more rows than 64 bits "
                                  "count",
                                  i);
        rows += shards[i].rows;
    }
    *ret_rows = rows;
    return SPW_STATUS_OK;
}

spw_status spw__shards_sum_counts(const spw_shard *shards, size_t shard_count,
                                  size_t number, uint64_t *ret_sum, spw_error *error)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < shard_count; i++) {
        if (shards[i].counts[number] > UINT64_MAX - sum)
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "the shards up to %zu have more bytes than 64 bits "
                                  "count",
                                  i);
        sum += shards[i].counts[number];
    }
    *ret_sum = sum;
    return SPW_STATUS_OK;
}

spw_status spw_shards_measure(const spw_column_type *types, size_t column_count,
                              const spw_shard *shards, size_t shard_count,
                              uint64_t *ret_rows, uint64_t *ret_counts,
                              spw_error *error)
{
    uint64_t rows = 0, sum = 0;
    size_t count_columns = spw__count_columns(types, column_count);
    spw_status status =
        spw__shards_check(types, column_count, shards, shard_count, error);
    if (status == SPW_STATUS_OK)
        status = spw__shards_sum_rows(shards, shard_count, &rows, error);
    /* First all that can fail. */
    for (size_t i = 0; i < count_columns && status == SPW_STATUS_OK; i++)
        status = spw__shards_sum_counts(shards, shard_count, i, &sum, error);
    if (status != SPW_STATUS_OK)
        return status;
    *ret_rows = rows;
    for (size_t i = 0; i < count_columns && ret_counts != NULL; i++)
        (void)spw__shards_sum_counts(shards, shard_count, i, &ret_counts[i], NULL);
    return SPW_STATUS_OK;
}
