/* Joining shards. They come from disks and peers: their sizes are held against what
 * their rows and counts lead to before anything is read or written (shard_sizes.c), and
 * what the bytes themselves say, the ends of rows, is only ever used as a number. So no
 * shard, whatever is in it, makes this read or write elsewhere. */
#include <inttypes.h>
#include <string.h>

#include "context/error.h"
#include "shuffle/bitmap.h"
#include "shuffle/numbers.h"
#include "shuffle/shard_layout.h"
#include "shuffle/shard_sizes.h"

/* One column of one shard, and where it goes. */
typedef struct join {
    const spw_column_type *type;
    spw_column_place *place;
    const uint8_t *in; /* the column in the shard */
    spw__shard_parts parts;
    uint32_t rows;
    uint64_t count;
    uint64_t at; /* the row of the place */
} join;

/* ----- places ----- */

static uint32_t offset_size_of(const spw_column_type *type,
                               const spw_column_place *place)
{
    return place->offset_size != 0 ? place->offset_size : type->item_size;
}

/* Where in its data, or in the places inside, a place goes on. */
static uint64_t place_begin(const spw_column_type *type, const spw_column_place *place,
                            uint64_t first_row)
{
    if (type->kind == SPW_COLUMN_BLOB)
        return place->data_begin;
    if (type->kind == SPW_COLUMN_FIXED_LIST)
        return first_row * type->item_size;
    uint32_t size = offset_size_of(type, place);
    return first_row > 0 ? spw__number_at(place->values, size, first_row) : 0;
}

static spw_status refuse_place(size_t column, const char *what, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "the place of column %zu %s", column, what);
}

static spw_status check_data_room(const spw_column_type *type,
                                  const spw_column_place *place, size_t column,
                                  uint64_t first_row, uint64_t count, spw_error *error)
{
    bool is_list = type->kind == SPW_COLUMN_LIST;
    if (!is_list && place->data == NULL && place->data_size > 0)
        return refuse_place(column, "has data without an address", error);
    uint64_t begin = place_begin(type, place, first_row);
    if (begin > place->data_size || count > place->data_size - begin)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "the place of column %zu has %" PRIu64
                              " %s, too few for %" PRIu64 " after %" PRIu64,
                              column, place->data_size,
                              is_list ? "items inside" : "bytes for data", count,
                              begin);
    if (spw__column_has_offsets(type) && offset_size_of(type, place) == 4 &&
        begin + count > INT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "column %zu has %" PRIu64
                              " %s, more than offsets of 4 bytes can count",
                              column, begin + count, is_list ? "items" : "bytes");
    return SPW_STATUS_OK;
}

static bool has_values(const spw_column_type *type)
{
    return type->kind != SPW_COLUMN_BLOB && type->kind != SPW_COLUMN_FIXED_LIST;
}

static spw_status check_place(const spw_column_type *type,
                              const spw_column_place *place, size_t column,
                              uint64_t end_row, spw_error *error)
{
    bool is_needed = end_row > 0 || spw__column_has_offsets(type);
    bool has_data = spw__column_has_data(type);
    if (has_values(type) && place->values == NULL && is_needed)
        return refuse_place(column, "has no address", error);
    if (!has_values(type) && place->values != NULL)
        return refuse_place(column, "has values, which its kind does not have", error);
    if (type->kind != SPW_COLUMN_BLOB && place->data_begin != 0)
        return refuse_place(column, "has a begin, which only blobs have", error);
    if (place->offset_size != 0 &&
        (!spw__column_has_offsets(type) ||
         (place->offset_size != 4 && place->offset_size != 8)))
        return refuse_place(column, "has offsets that it cannot have", error);
    if (type->has_validity && place->validity == NULL && end_row > 0)
        return refuse_place(column, "has no validity bitmap", error);
    if (!type->has_validity && place->validity != NULL)
        return refuse_place(column, "has a validity bitmap that its type does not have",
                            error);
    if ((!has_data && place->data != NULL) ||
        (!spw__column_has_count(type) && place->data_size > 0))
        return refuse_place(column, "has data, which only binary ones and blobs have",
                            error);
    return SPW_STATUS_OK;
}

/* What all shards together need room for. */
typedef struct needs {
    const spw_column_type *types;
    const spw_column_place *places;
    const spw_shard *shards;
    size_t shard_count;
    size_t number; /* of the next count */
} needs;

/* rows more behind first_row. As deep as lists are, which is limited. */
static spw_status check_places(needs *n, size_t begin, size_t end, uint64_t first_row,
                               uint64_t rows, spw_error *error)
{
    for (size_t i = begin; i < end; i += 1 + n->types[i].inner_columns) {
        const spw_column_type *type = &n->types[i];
        const spw_column_place *place = &n->places[i];
        uint64_t count = 0;
        spw_status status = check_place(type, place, i, first_row + rows, error);
        if (status == SPW_STATUS_OK && spw__column_has_count(type)) {
            status = spw__shards_sum_counts(n->shards, n->shard_count, n->number++,
                                            &count, error);
            if (status == SPW_STATUS_OK)
                status = check_data_room(type, place, i, first_row, count, error);
        }
        if (status == SPW_STATUS_OK && type->kind == SPW_COLUMN_FIXED_LIST &&
            type->item_size > 0 && first_row + rows > PTRDIFF_MAX / type->item_size)
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "column %zu has more items than the address space",
                                  i);
        if (status == SPW_STATUS_OK && type->inner_columns > 0)
            status = check_places(n, i + 1, i + 1 + type->inner_columns,
                                  place_begin(type, place, first_row),
                                  spw__column_inner_rows(type, rows, count), error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    return SPW_STATUS_OK;
}

static spw_status check_room(const spw_column_type *types, size_t column_count,
                             const spw_shard *shards, size_t shard_count,
                             uint64_t first_row, uint64_t room_rows,
                             const spw_column_place *places, spw_error *error)
{
    uint64_t rows = 0;
    spw_status status = spw__shards_sum_rows(shards, shard_count, &rows, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (first_row > room_rows || rows > room_rows - first_row)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "room for %" PRIu64 " rows, too few for %" PRIu64
                              " after %" PRIu64,
                              room_rows, rows, first_row);
    needs n = {
        .types = types, .places = places, .shards = shards, .shard_count = shard_count};
    return check_places(&n, 0, column_count, first_row, rows, error);
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

/* Of BINARY and LIST, whose values and items stand elsewhere. */
static bool join_offsets(const join *j)
{
    uint32_t size = offset_size_of(j->type, j->place);
    uint8_t *offsets = j->place->values;
    const uint8_t *ends = j->in + j->parts.values;
    /* What this column's joins have left, not what was there at first_row. */
    uint64_t begin = place_begin(j->type, j->place, j->at);
    if (j->type->kind == SPW_COLUMN_BINARY && j->count > 0)
        memcpy((uint8_t *)j->place->data + begin, j->in + j->parts.data,
               (size_t)j->count);
    offsets += (j->at + 1) * size;
    if (spw__shard_end_size(j->count) == 8)
        return join_ends(offsets, size, begin, ends, 8, j->rows, j->count);
    if (size == 8)
        return join_ends(offsets, 8, begin, ends, 4, j->rows, j->count);
    return join_ends(offsets, 4, begin, ends, 4, j->rows, j->count);
}

static void join_blob(const join *j)
{
    if (j->count > 0)
        memcpy((uint8_t *)j->place->data + j->place->data_begin, j->in,
               (size_t)j->count);
    j->place->data_begin += j->count;
}

/* Returns: whether the shard is right. */
static bool join_column(const join *j)
{
    const uint8_t *values = j->in + j->parts.values;
    if (j->type->has_validity)
        spw__bitmap_append(j->place->validity, j->at, j->in, j->rows);
    switch (j->type->kind) {
    case SPW_COLUMN_BINARY:
    case SPW_COLUMN_LIST:
        return join_offsets(j);
    case SPW_COLUMN_BLOB:
        join_blob(j);
        break;
    case SPW_COLUMN_BITS:
        spw__bitmap_append(j->place->values, j->at, values, j->rows);
        break;
    case SPW_COLUMN_FIXED:
        memcpy((uint8_t *)j->place->values + j->at * j->type->item_size, values,
               (size_t)j->rows * j->type->item_size);
        break;
    case SPW_COLUMN_FIXED_LIST:
        break;
    }
    return true;
}

/* One shard, of which columns have been joined so far. */
typedef struct shard_join {
    const spw_column_type *types;
    spw_column_place *places;
    const uint8_t *in; /* the next column */
    const uint64_t *counts;
    size_t number; /* of the shard */
} shard_join;

/* first_count: the number of column begin's count, or of the next one. */
static spw_status join_beside(shard_join *s, size_t begin, size_t end,
                              size_t first_count, uint32_t rows, uint64_t at,
                              spw_error *error)
{
    for (size_t i = begin; i < end; i++) {
        join j = {
            .type = &s->types[i],
            .place = &s->places[i],
            .in = s->in,
            .rows = rows,
            .count = spw__column_has_count(&s->types[i]) ? s->counts[first_count++] : 0,
            .at = at};
        j.parts = spw__shard_parts_of(j.type, j.rows, j.count);
        if (!join_column(&j))
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "shard %zu, column %zu: its ends decrease, or do not "
                                  "end with its %" PRIu64 " %s",
                                  s->number, i, j.count,
                                  j.type->kind == SPW_COLUMN_LIST ? "items" : "bytes");
        s->in += j.parts.end;
        first_count += spw__count_columns(j.type + 1, j.type->inner_columns);
        i += j.type->inner_columns;
    }
    return SPW_STATUS_OK;
}

/* What is inside of columns follows all of them. As deep as lists are, which is
 * limited. */
static spw_status join_level(shard_join *s, size_t begin, size_t end,
                             size_t first_count, uint32_t rows, uint64_t at,
                             spw_error *error)
{
    if (rows == 0)
        return SPW_STATUS_OK;
    spw_status status = join_beside(s, begin, end, first_count, rows, at, error);
    for (size_t i = begin; i < end && status == SPW_STATUS_OK; i++) {
        const spw_column_type *type = &s->types[i];
        uint64_t count = spw__column_has_count(type) ? s->counts[first_count++] : 0;
        if (type->inner_columns == 0)
            continue;
        status = join_level(s, i + 1, i + 1 + type->inner_columns, first_count,
                            (uint32_t)spw__column_inner_rows(type, rows, count),
                            place_begin(type, &s->places[i], at), error);
        first_count += spw__count_columns(type + 1, type->inner_columns);
        i += type->inner_columns;
    }
    return status;
}

spw_status spw_shards_read(const spw_column_type *types, size_t column_count,
                           const spw_shard *shards, size_t shard_count,
                           uint64_t first_row, uint64_t room_rows,
                           spw_column_place *places, spw_error *error)
{
    spw_status status =
        spw__shards_check(types, column_count, shards, shard_count, error);
    if (status == SPW_STATUS_OK)
        status = check_room(types, column_count, shards, shard_count, first_row,
                            room_rows, places, error);
    for (size_t i = 0; i < column_count && status == SPW_STATUS_OK; i++)
        if (spw__column_has_offsets(&types[i]) && first_row == 0)
            spw__number_put(places[i].values, offset_size_of(&types[i], &places[i]), 0,
                            0);
    for (size_t i = 0; i < shard_count && status == SPW_STATUS_OK; i++) {
        static const uint8_t NOTHING[1]; /* to reckon from, where rows have no bytes */
        shard_join s = {.types = types,
                        .places = places,
                        .in = shards[i].data != NULL ? shards[i].data : NOTHING,
                        .counts = shards[i].counts,
                        .number = i};
        status = join_level(&s, 0, column_count, 0, shards[i].rows, first_row, error);
        first_row += shards[i].rows;
    }
    return status;
}
