/* From joined shards to Arrow's arrays. An array, with all that is in it, is one
 * buffer: its structs, and then what they point to, each on a boundary of its own.
 * Whoever takes an array may keep one of its children and release the others, so each
 * has a reference to the buffer. Invariant: the buffer is laid out twice in the same
 * way, first to know its size, with no memory to write to. */
#include <inttypes.h>
#include <string.h>

#include "arrow/arrow_format.h"
#include "context/error.h"
#include "shuffle/numbers.h"

enum { BUFFERS_MAX = 3 };

typedef struct layout {
    uint8_t *memory; /* NULL: sizes only */
    spw_buffer *buffer;
    uint64_t size; /* of what has been laid out so far; a multiple of the alignment */
    const uint64_t *counts;   /* the next one */
    spw_column_place *places; /* the next one */
    size_t room;
} layout;

/* What one node of the tree points to. */
typedef struct node_memory {
    const void *buffers[BUFFERS_MAX];
    struct ArrowArray *children[];
} node_memory;

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release != NULL)
            array->children[i]->release(array->children[i]);
    if (array->dictionary != NULL && array->dictionary->release != NULL)
        array->dictionary->release(array->dictionary);
    spw_buffer *buffer = array->private_data;
    array->release = NULL;
    spw_buffer_unref(buffer);
}

/* The next count items of item_size bytes. What fills them up is cleared.
 * Returns: in ret_part, NULL if there is no memory yet. */
static spw_status lay_out(layout *l, uint64_t count, uint64_t item_size,
                          void **ret_part, spw_error *error)
{
    const uint64_t most = PTRDIFF_MAX - SPW_BUFFER_ALIGNMENT;
    if (item_size > 0 && count > (most - l->size) / item_size)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "an array of more bytes than the address space");
    uint64_t bytes = count * item_size;
    uint64_t filled = (bytes + SPW_BUFFER_ALIGNMENT - 1) / SPW_BUFFER_ALIGNMENT *
                      SPW_BUFFER_ALIGNMENT;
    if (l->memory != NULL) {
        *ret_part = l->memory + l->size;
        memset(l->memory + l->size + bytes, 0, (size_t)(filled - bytes));
    }
    l->size += filled;
    return SPW_STATUS_OK;
}

static spw_status lay_out_values(layout *l, const spw_column_type *type, uint64_t rows,
                                 uint64_t count, spw_column_place *place,
                                 spw_error *error)
{
    bool is_offsets = type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_LIST;
    spw_status status = SPW_STATUS_OK;
    if (is_offsets && type->item_size == 4 && count > INT32_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%" PRIu64 " bytes or items, more than offsets of 4 "
                              "bytes can count",
                              count);
    if (type->has_validity)
        status = lay_out(l, (rows + 7) / 8, 1, &place->validity, error);
    if (status == SPW_STATUS_OK && type->kind != SPW_COLUMN_FIXED_LIST) {
        bool is_bits = type->kind == SPW_COLUMN_BITS;
        status = lay_out(l, is_bits ? (rows + 7) / 8 : rows + is_offsets,
                         is_bits ? 1 : type->item_size, &place->values, error);
    }
    if (status == SPW_STATUS_OK && type->kind == SPW_COLUMN_BINARY)
        status = lay_out(l, count, 1, &place->data, error);
    if (is_offsets && status == SPW_STATUS_OK) {
        place->data_size = count;
        /* Nobody need join anything into an array without rows. */
        if (place->values != NULL)
            spw__number_put(place->values, type->item_size, 0, 0);
    }
    return status;
}

/* A column's place, if the type has one, and its count. */
static spw_status take_place(layout *l, const spw__arrow_format *format, uint64_t rows,
                             uint64_t *ret_count, spw_column_place *ret_place,
                             spw_error *error)
{
    spw_column_kind kind = format->type.kind;
    bool has_count = kind == SPW_COLUMN_BINARY || kind == SPW_COLUMN_LIST;
    *ret_place = (spw_column_place){0};
    *ret_count = has_count ? *l->counts++ : 0;
    if (!format->has_column)
        return SPW_STATUS_OK;
    if (l->room == 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "no room for the place of each column");
    l->room--;
    spw_status status =
        lay_out_values(l, &format->type, rows, *ret_count, ret_place, error);
    if (l->memory != NULL && status == SPW_STATUS_OK)
        *l->places = *ret_place;
    l->places++;
    return status;
}

static void fill_array(const layout *l, const spw__arrow_format *format, uint64_t rows,
                       const spw_column_place *place, node_memory *memory,
                       struct ArrowArray *array)
{
    memory->buffers[0] = place->validity;
    /* Bytes of no width are somewhere, too. */
    memory->buffers[1] = place->values != NULL ? place->values : memory;
    memory->buffers[2] = place->data;
    array->length = (int64_t)rows;
    array->null_count = place->validity != NULL ? -1 : 0;
    array->n_buffers = format->buffer_count;
    array->buffers = memory->buffers;
    array->children = memory->children;
    array->private_data = spw_buffer_ref(l->buffer);
    array->release = release_array;
}

/* Of the array, and of what is in it if that is as many rows for each of them. */
static spw_status check_rows(const spw__arrow_format *format, uint64_t rows,
                             spw_error *error)
{
    uint32_t items = 1;
    if (format->type.kind == SPW_COLUMN_FIXED_LIST && format->type.item_size > 0)
        items = format->type.item_size;
    if (rows <= (uint64_t)INT64_MAX / items - 1)
        return SPW_STATUS_OK;
    return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                          "%" PRIu64 " rows, more than an array may have", rows);
}

/* array is NULL if there is no memory yet. */
static spw_status lay_out_array(layout *l, const struct ArrowSchema *schema,
                                uint64_t rows, unsigned depth, struct ArrowArray *array,
                                spw_error *error)
{
    spw__arrow_format format;
    spw_column_place place;
    uint64_t count;
    void *part = NULL;
    spw_status status = spw__arrow_format_read(schema, depth, &format, error);
    if (status == SPW_STATUS_OK)
        status = check_rows(&format, rows, error);
    if (status == SPW_STATUS_OK)
        status = take_place(l, &format, rows, &count, &place, error);
    if (status == SPW_STATUS_OK)
        status = lay_out(
            l, sizeof(node_memory) + (uint64_t)schema->n_children * sizeof(void *), 1,
            &part, error);
    if (status != SPW_STATUS_OK)
        return status;
    node_memory *memory = part;
    if (schema->dictionary != NULL) {
        status = lay_out(l, sizeof *array, 1, &part, error);
        if (array != NULL && status == SPW_STATUS_OK)
            array->dictionary = memset(part, 0, sizeof *array);
    }
    uint64_t inner_rows = rows;
    if (spw__arrow_is_list(&format))
        inner_rows =
            format.type.kind == SPW_COLUMN_LIST ? count : rows * format.type.item_size;
    for (int64_t i = 0; i < schema->n_children && status == SPW_STATUS_OK; i++) {
        struct ArrowArray *child = NULL;
        status = lay_out(l, sizeof *child, 1, &part, error);
        if (memory != NULL && status == SPW_STATUS_OK)
            child = memory->children[i] = memset(part, 0, sizeof *child);
        if (status == SPW_STATUS_OK)
            status = lay_out_array(l, schema->children[i], inner_rows, depth + 1, child,
                                   error);
    }
    if (memory != NULL && status == SPW_STATUS_OK) {
        fill_array(l, &format, rows, &place, memory, array);
        array->n_children = schema->n_children;
    }
    return status;
}

spw_status spw_arrow_array_create(spw_context *context,
                                  const struct ArrowSchema *schema, uint64_t row_count,
                                  const uint64_t *counts, spw_column_place *places,
                                  size_t room, struct ArrowArray *ret_array,
                                  spw_error *error)
{
    layout sizes = {.counts = counts, .places = places, .room = room};
    spw_status status = lay_out_array(&sizes, schema, row_count, 0, NULL, error);
    spw_buffer *buffer;
    if (status == SPW_STATUS_OK)
        status = spw_buffer_create(context, (size_t)sizes.size, SPW_CHARGE_HELD,
                                   &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    layout filling = {.memory = spw_buffer_data(buffer),
                      .buffer = buffer,
                      .counts = counts,
                      .places = places,
                      .room = room};
    struct ArrowArray array = {0};
    status = lay_out_array(&filling, schema, row_count, 0, &array, error);
    /* Every array in it has a reference of its own. */
    spw_buffer_unref(buffer);
    if (status == SPW_STATUS_OK)
        *ret_array = array;
    return status;
}
