#include "arrow_arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

enum { CHILDREN_MAX = 8 };

static void *zeros(size_t size)
{
    void *memory = calloc(1, size > 0 ? size : 1);
    assert_non_null(memory);
    return memory;
}

static unsigned below(unsigned *seed, unsigned count)
{
    return (unsigned)rand_r(seed) % count;
}

/* ----- types ----- */

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        arrow_schema_close(schema->children[i]);
    if (schema->dictionary != NULL)
        arrow_schema_close(schema->dictionary);
    free(schema->children);
    free((char *)(uintptr_t)schema->format);
    schema->release = NULL;
}

void arrow_schema_close(struct ArrowSchema *schema)
{
    schema->release(schema);
    free(schema);
}

static struct ArrowSchema *read_schema(const char **text)
{
    struct ArrowSchema *schema = zeros(sizeof *schema);
    if (**text == '?') {
        schema->flags = ARROW_FLAG_NULLABLE;
        ++*text;
    }
    size_t length = strcspn(*text, "()@ ");
    char *format = zeros(length + 1);
    memcpy(format, *text, length);
    *text += length;
    schema->format = format;
    schema->release = release_schema;
    schema->children = zeros(CHILDREN_MAX * sizeof(void *));
    if (**text == '@') {
        ++*text;
        schema->dictionary = arrow_schema_open("u");
    }
    if (**text != '(')
        return schema;
    while (**text != ')') {
        ++*text; /* the bracket, or the space before another one */
        assert_in_range(schema->n_children, 0, CHILDREN_MAX - 1);
        schema->children[schema->n_children++] = read_schema(text);
    }
    ++*text;
    return schema;
}

struct ArrowSchema *arrow_schema_open(const char *text)
{
    struct ArrowSchema *schema = read_schema(&text);
    assert_string_equal(text, "");
    return schema;
}

/* What the specification says of a format, in its own words. */
typedef enum shape { NOTHING, BITS, ITEMS, TEXT, LIST, FIXED_LIST, STRUCT } shape;

static shape shape_of(const char *format, size_t *ret_width)
{
    static const struct {
        const char *formats;
        size_t width;
    } WIDTHS[] = {
        {" c C ", 1},
        {" s S e ", 2},
        {" i I f tdD tts ttm tiM ", 4},
        {" l L g tdm ttu ttn tDs tDm tDu tDn tiD ", 8},
        {" tin ", 16},
    };
    char word[16];
    if (strchr("zuZU", format[0]) != NULL || strcmp(format, "+l") == 0 ||
        strcmp(format, "+L") == 0 || strcmp(format, "+m") == 0) {
        *ret_width = strpbrk(format, "ZUL") != NULL ? 8 : 4;
        return format[0] == '+' ? LIST : TEXT;
    }
    *ret_width = 0;
    if (strcmp(format, "n") == 0)
        return NOTHING;
    if (strcmp(format, "b") == 0)
        return BITS;
    if (strcmp(format, "+s") == 0)
        return STRUCT;
    if (strncmp(format, "w:", 2) == 0 || strncmp(format, "+w:", 3) == 0) {
        *ret_width = strtoul(strchr(format, ':') + 1, NULL, 10);
        return format[0] == '+' ? FIXED_LIST : ITEMS;
    }
    if (strncmp(format, "d:", 2) == 0) {
        const char *bits = strchr(strchr(format, ',') + 1, ',');
        *ret_width = bits != NULL ? strtoul(bits + 1, NULL, 10) / 8 : 16;
        return ITEMS;
    }
    if (strncmp(format, "ts", 2) == 0) {
        *ret_width = 8;
        return ITEMS;
    }
    snprintf(word, sizeof word, " %s ", format);
    for (size_t i = 0; i < COUNT_OF(WIDTHS); i++)
        if (strstr(WIDTHS[i].formats, word) != NULL)
            *ret_width = WIDTHS[i].width;
    assert_int_not_equal(*ret_width, 0);
    return ITEMS;
}

/* ----- arrays ----- */

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++)
        arrow_array_close(array->children[i]);
    for (int64_t i = 0; i < array->n_buffers; i++)
        free((void *)(uintptr_t)array->buffers[i]);
    free(array->buffers);
    free(array->children);
    array->release = NULL;
}

void arrow_array_close(struct ArrowArray *array)
{
    array->release(array);
    free(array);
}

static void *noise(size_t size, unsigned *seed)
{
    uint8_t *bytes = zeros(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(rand_r(seed) >> 3);
    return bytes;
}

/* Returns: the last offset. */
static int64_t fill_offsets(struct ArrowArray *array, size_t width, unsigned *seed)
{
    size_t count = (size_t)(array->offset + array->length) + 1;
    uint8_t *offsets = zeros(count * width);
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(offsets + i * width, &at, width);
        if (i + 1 < count)
            at += below(seed, 4);
    }
    array->buffers[1] = offsets;
    return at;
}

static void fill_children(const struct ArrowSchema *schema, struct ArrowArray *array,
                          int64_t length, unsigned *seed)
{
    array->n_children = schema->n_children;
    array->children = zeros((size_t)array->n_children * sizeof(void *));
    for (int64_t i = 0; i < array->n_children; i++)
        array->children[i] =
            arrow_array_open(schema->children[i], length + below(seed, 3), seed);
}

struct ArrowArray *arrow_array_open(const struct ArrowSchema *schema, int64_t length,
                                    unsigned *seed)
{
    static const int64_t BUFFERS[] = {0, 2, 2, 3, 2, 1, 1};
    struct ArrowArray *array = zeros(sizeof *array);
    size_t width;
    shape kind = shape_of(schema->format, &width);
    array->length = length;
    array->offset = below(seed, 2) == 0 ? 0 : below(seed, 20);
    array->release = release_array;
    array->n_buffers = BUFFERS[kind];
    array->buffers = zeros(3 * sizeof(void *));
    size_t rows = (size_t)(array->offset + length), bitmap = (rows + 7) / 8;
    int64_t inside = 0;
    if (array->n_buffers > 0 && (schema->flags & ARROW_FLAG_NULLABLE) != 0 &&
        below(seed, 3) > 0) {
        array->null_count = -1;
        array->buffers[0] = noise(bitmap, seed);
    }
    if (kind == BITS)
        array->buffers[1] = noise(bitmap, seed);
    else if (kind == ITEMS)
        array->buffers[1] = noise(rows * width, seed);
    else if (kind == TEXT || kind == LIST)
        inside = fill_offsets(array, width, seed);
    else if (kind == STRUCT)
        inside = (int64_t)rows;
    else if (kind == FIXED_LIST)
        inside = (int64_t)(rows * width);
    if (kind == TEXT)
        array->buffers[2] = noise((size_t)inside, seed);
    fill_children(schema, array, inside, seed);
    return array;
}

/* ----- values ----- */

static void put(char *text, size_t room, const char *more)
{
    size_t length = strlen(text);
    assert_in_range(strlen(more), 0, room - length - 1);
    memcpy(text + length, more, strlen(more) + 1);
}

static void put_bytes(char *text, size_t room, const uint8_t *bytes, size_t size)
{
    char hex[3];
    for (size_t i = 0; i < size; i++) {
        snprintf(hex, sizeof hex, "%02x", bytes[i]);
        put(text, room, hex);
    }
    put(text, room, ".");
}

static bool bit_at(const void *bits, int64_t i)
{
    return (((const uint8_t *)bits)[i / 8] >> (i % 8) & 1) != 0;
}

static int64_t offset_at(const struct ArrowArray *array, size_t width, int64_t i)
{
    int64_t offset = 0;
    memcpy(&offset, (const uint8_t *)array->buffers[1] + (size_t)i * width, width);
    return offset;
}

void arrow_array_print(const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t i, char *text, size_t room)
{
    size_t width;
    shape kind = shape_of(schema->format, &width);
    int64_t at = array->offset + i, begin = 0, end = 0;
    if (kind != NOTHING && array->buffers[0] != NULL && !bit_at(array->buffers[0], at))
        kind = NOTHING;
    if (kind == NOTHING)
        put(text, room, "-");
    else if (kind == BITS)
        put(text, room, bit_at(array->buffers[1], at) ? "1" : "0");
    else if (kind == ITEMS)
        put_bytes(text, room, (const uint8_t *)array->buffers[1] + (size_t)at * width,
                  width);
    if (kind == TEXT || kind == LIST) {
        begin = offset_at(array, width, at);
        end = offset_at(array, width, at + 1);
    } else if (kind == FIXED_LIST) {
        begin = at * (int64_t)width;
        end = begin + (int64_t)width;
    } else if (kind == STRUCT) {
        begin = at;
        end = at + 1;
    }
    if (kind == TEXT) {
        put_bytes(text, room, (const uint8_t *)array->buffers[2] + begin,
                  (size_t)(end - begin));
        return;
    }
    put(text, room, "(");
    for (int64_t j = begin; j < end; j++)
        for (int64_t c = 0; c < array->n_children; c++)
            arrow_array_print(schema->children[c], array->children[c], j, text, room);
    put(text, room, ")");
}
