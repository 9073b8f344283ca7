/* Joining shards. They come from disks and peers: their sizes are held against what
 * their rows and bytes lead to before anything is read or written, and what the bytes
 * themselves say, the ends of a binary column, is only ever used as a number. So no
 * shard, whatever is in it, makes this read or write elsewhere. */
#include <inttypes.h>
#include <string.h>

#include "context/error.h"
#include "shuffle/bitmap.h"
#include "shuffle/numbers.h"
#include "shuffle/shard_layout.h"

/* One column of one shard, and where it goes. */
typedef struct join {
    const spw_column_type *type;
    spw_column_place *place;
    const uint8_t *in; /* the column in the shard */
    spw__shard_parts parts;
    uint32_t rows;
    uint64_t bytes;
    uint64_t at; /* the row of the place */
} join;

/* ----- sizes ----- */

static spw_status refuse_size(size_t shard, size_t column, uint64_t size,
                              spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                          "shard %zu, column %zu: what its rows and bytes take is more "
                          "than the shard's %" PRIu64 " bytes",
                          shard, column, size);
}

static spw_status check_shard(const spw_column_type *types, size_t column_count,
                              const spw_shard *shard, size_t number, spw_error *error)
{
    if (shard->data == NULL && shard->size > 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "shard %zu has no address", number);
    if (shard->size > PTRDIFF_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "shard %zu is larger than the address space", number);
    uint64_t at = 0;
    size_t number_of_count = 0;
    for (size_t i = 0; i < column_count; i++) {
        bool has_count = spw__column_has_count(&types[i]);
        if (has_count && shard->counts == NULL)
            return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                  "shard %zu does not say the count of column %zu",
                                  number, i);
        uint64_t bytes = has_count ? shard->counts[number_of_count++] : 0;
        /* Before they are added up. */
        if (bytes > shard->size)
            return refuse_size(number, i, shard->size, error);
        if (shard->rows == 0 && bytes > 0)
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "shard %zu, column %zu: bytes without rows", number,
                                  i);
        uint64_t taken = spw__shard_parts_of(&types[i], shard->rows, bytes).end;
        if (taken > shard->size - at)
            return refuse_size(number, i, shard->size, error);
        at += taken;
    }
    if (at != shard->size)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "shard %zu: %" PRIu64 " bytes, of which its columns take "
                              "only %" PRIu64,
                              number, shard->size, at);
    return SPW_STATUS_OK;
}

static spw_status check_all(const spw_column_type *types, size_t column_count,
                            const spw_shard *shards, size_t shard_count,
                            spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    for (size_t i = 0; i < column_count && status == SPW_STATUS_OK; i++)
        status = spw__column_type_check(&types[i], i, error);
    for (size_t i = 0; i < shard_count && status == SPW_STATUS_OK; i++)
        status = check_shard(types, column_count, &shards[i], i, error);
    return status;
}

/* One after another, so that nothing has to be kept for them. Errors: LIMIT_EXCEEDED.
 */
static spw_status sum_counts(const spw_shard *shards, size_t shard_count, size_t number,
                             uint64_t *ret_sum, spw_error *error)
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

static spw_status sum_rows(const spw_shard *shards, size_t shard_count,
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

static size_t count_counts(const spw_column_type *types, size_t column_count)
{
    size_t count = 0;
    for (size_t i = 0; i < column_count; i++)
        count += spw__column_has_count(&types[i]);
    return count;
}

spw_status spw_shards_measure(const spw_column_type *types, size_t column_count,
                              const spw_shard *shards, size_t shard_count,
                              uint64_t *ret_rows, uint64_t *ret_counts,
                              spw_error *error)
{
    uint64_t rows = 0, bytes = 0;
    size_t counts_per_shard = count_counts(types, column_count);
    spw_status status = check_all(types, column_count, shards, shard_count, error);
    if (status == SPW_STATUS_OK)
        status = sum_rows(shards, shard_count, &rows, error);
    /* First all that can fail. */
    for (size_t i = 0; i < counts_per_shard && status == SPW_STATUS_OK; i++)
        status = sum_counts(shards, shard_count, i, &bytes, error);
    if (status != SPW_STATUS_OK)
        return status;
    *ret_rows = rows;
    for (size_t i = 0; i < counts_per_shard && ret_counts != NULL; i++)
        (void)sum_counts(shards, shard_count, i, &ret_counts[i], NULL);
    return SPW_STATUS_OK;
}

/* ----- places ----- */

/* Where in its data a place goes on. */
static uint64_t data_begin(const spw_column_type *type, const spw_column_place *place,
                           uint64_t first_row)
{
    if (type->kind == SPW_COLUMN_BLOB)
        return place->data_begin;
    return first_row > 0 ? spw__number_at(place->values, type->item_size, first_row)
                         : 0;
}

static spw_status refuse_place(size_t column, const char *what, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "the place of column %zu %s", column, what);
}

static spw_status check_data_room(const spw_column_type *type,
                                  const spw_column_place *place, size_t column,
                                  uint64_t first_row, uint64_t bytes, spw_error *error)
{
    if (place->data == NULL && place->data_size > 0)
        return refuse_place(column, "has data without an address", error);
    uint64_t begin = data_begin(type, place, first_row);
    if (begin > place->data_size || bytes > place->data_size - begin)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "the place of column %zu has %" PRIu64
                              " bytes for data, too few for %" PRIu64 " after %" PRIu64,
                              column, place->data_size, bytes, begin);
    if (type->item_size == 4 && begin + bytes > INT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "column %zu has %" PRIu64
                              " bytes, more than offsets of 4 "
                              "bytes can count",
                              column, begin + bytes);
    return SPW_STATUS_OK;
}

static spw_status check_place(const spw_column_type *type,
                              const spw_column_place *place, size_t column,
                              uint64_t end_row, spw_error *error)
{
    bool is_blob = type->kind == SPW_COLUMN_BLOB;
    bool is_binary = type->kind == SPW_COLUMN_BINARY;
    if (place->values == NULL && !is_blob && (end_row > 0 || is_binary))
        return refuse_place(column, "has no address", error);
    if (is_blob ? place->values != NULL : place->data_begin != 0)
        return refuse_place(column,
                            is_blob ? "has values, which blobs do not have"
                                    : "has a begin, which only blobs have",
                            error);
    if (type->has_validity && place->validity == NULL && end_row > 0)
        return refuse_place(column, "has no validity bitmap", error);
    if (!type->has_validity && place->validity != NULL)
        return refuse_place(column, "has a validity bitmap that its type does not have",
                            error);
    if (!is_binary && !is_blob && (place->data != NULL || place->data_size > 0))
        return refuse_place(column, "has data, which only binary ones and blobs have",
                            error);
    return SPW_STATUS_OK;
}

static spw_status check_places(const spw_column_type *types, size_t column_count,
                               const spw_shard *shards, size_t shard_count,
                               uint64_t first_row, uint64_t room_rows,
                               const spw_column_place *places, spw_error *error)
{
    uint64_t rows = 0;
    spw_status status = sum_rows(shards, shard_count, &rows, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (first_row > room_rows || rows > room_rows - first_row)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "room for %" PRIu64 " rows, too few for %" PRIu64
                              " after %" PRIu64,
                              room_rows, rows, first_row);
    size_t number = 0;
    for (size_t i = 0; i < column_count; i++) {
        status = check_place(&types[i], &places[i], i, first_row + rows, error);
        if (status == SPW_STATUS_OK && spw__column_has_count(&types[i])) {
            uint64_t bytes = 0;
            status = sum_counts(shards, shard_count, number++, &bytes, error);
            if (status == SPW_STATUS_OK)
                status =
                    check_data_room(&types[i], &places[i], i, first_row, bytes, error);
        }
        if (status != SPW_STATUS_OK)
            return status;
    }
    return SPW_STATUS_OK;
}

/* ----- joining ----- */

/* Inlined with both sizes known. Returns: whether the ends do not decrease, and the
 * last one is where the data ends. */
static inline bool join_ends(uint8_t *offsets, uint32_t offset_size, uint64_t begin,
                             const uint8_t *ends, uint32_t end_size, uint32_t rows,
                             uint64_t bytes)
{
    uint64_t before = 0;
    bool decreases = false;
    for (uint32_t i = 0; i < rows; i++) {
        uint64_t end = spw__number_at(ends, end_size, i);
        decreases |= end < before;
        before = end;
        spw__number_put(offsets, offset_size, i, begin + end);
    }
    return !decreases && before == bytes;
}

static bool join_binary(const join *j)
{
    uint32_t size = j->type->item_size;
    uint8_t *offsets = j->place->values;
    const uint8_t *ends = j->in + j->parts.values;
    /* What this column's joins have left, not what was there at first_row. */
    uint64_t begin = data_begin(j->type, j->place, j->at);
    if (j->bytes > 0)
        memcpy((uint8_t *)j->place->data + begin, j->in + j->parts.data,
               (size_t)j->bytes);
    offsets += (j->at + 1) * size;
    if (spw__shard_end_size(j->bytes) == 8)
        return join_ends(offsets, size, begin, ends, 8, j->rows, j->bytes);
    if (size == 8)
        return join_ends(offsets, 8, begin, ends, 4, j->rows, j->bytes);
    return join_ends(offsets, 4, begin, ends, 4, j->rows, j->bytes);
}

static void join_blob(const join *j)
{
    if (j->bytes > 0)
        memcpy((uint8_t *)j->place->data + j->place->data_begin, j->in,
               (size_t)j->bytes);
    j->place->data_begin += j->bytes;
}

/* Returns: whether the shard is right. */
static bool join_column(const join *j)
{
    const uint8_t *values = j->in + j->parts.values;
    if (j->type->has_validity)
        spw__bitmap_append(j->place->validity, j->at, j->in, j->rows);
    if (j->type->kind == SPW_COLUMN_BINARY)
        return join_binary(j);
    if (j->type->kind == SPW_COLUMN_BLOB) {
        join_blob(j);
        return true;
    }
    if (j->type->kind == SPW_COLUMN_BITS)
        spw__bitmap_append(j->place->values, j->at, values, j->rows);
    else
        memcpy((uint8_t *)j->place->values + j->at * j->type->item_size, values,
               (size_t)j->rows * j->type->item_size);
    return true;
}

static spw_status join_shard(const spw_column_type *types, size_t column_count,
                             const spw_shard *shard, size_t number, uint64_t at,
                             spw_column_place *places, spw_error *error)
{
    const uint8_t *in = shard->data;
    size_t counted = 0;
    for (size_t i = 0; i < column_count; i++) {
        join j = {.type = &types[i],
                  .place = &places[i],
                  .in = in,
                  .rows = shard->rows,
                  .bytes =
                      spw__column_has_count(&types[i]) ? shard->counts[counted++] : 0,
                  .at = at};
        j.parts = spw__shard_parts_of(j.type, j.rows, j.bytes);
        if (!join_column(&j))
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "shard %zu, column %zu: its ends decrease, or do not "
                                  "end with its %" PRIu64 " bytes",
                                  number, i, j.bytes);
        in += j.parts.end;
    }
    return SPW_STATUS_OK;
}

spw_status spw_shards_read(const spw_column_type *types, size_t column_count,
                           const spw_shard *shards, size_t shard_count,
                           uint64_t first_row, uint64_t room_rows,
                           spw_column_place *places, spw_error *error)
{
    spw_status status = check_all(types, column_count, shards, shard_count, error);
    if (status == SPW_STATUS_OK)
        status = check_places(types, column_count, shards, shard_count, first_row,
                              room_rows, places, error);
    for (size_t i = 0; i < column_count && status == SPW_STATUS_OK; i++)
        if (types[i].kind == SPW_COLUMN_BINARY && first_row == 0)
            spw__number_put(places[i].values, types[i].item_size, 0, 0);
    for (size_t i = 0; i < shard_count && status == SPW_STATUS_OK; i++) {
        if (shards[i].rows == 0)
            continue;
        status =
            join_shard(types, column_count, &shards[i], i, first_row, places, error);
        first_row += shards[i].rows;
    }
    return status;
}
