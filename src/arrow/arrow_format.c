/* Format strings come from whoever made the schema: what is not known is refused. */
#include "arrow/arrow_format.h"

#include <stdlib.h>
#include <string.h>

#include "context/error.h"

/* Formats that say all by themselves. is_prefix: a time zone follows. */
typedef struct known_format {
    const char *text;
    spw_column_kind kind;
    uint32_t item_size;
    bool is_prefix;
} known_format;

static const known_format KNOWN[] = {
    {"b", SPW_COLUMN_BITS, 0, false},     {"c", SPW_COLUMN_FIXED, 1, false},
    {"C", SPW_COLUMN_FIXED, 1, false},    {"s", SPW_COLUMN_FIXED, 2, false},
    {"S", SPW_COLUMN_FIXED, 2, false},    {"i", SPW_COLUMN_FIXED, 4, false},
    {"I", SPW_COLUMN_FIXED, 4, false},    {"l", SPW_COLUMN_FIXED, 8, false},
    {"L", SPW_COLUMN_FIXED, 8, false},    {"e", SPW_COLUMN_FIXED, 2, false},
    {"f", SPW_COLUMN_FIXED, 4, false},    {"g", SPW_COLUMN_FIXED, 8, false},
    {"z", SPW_COLUMN_BINARY, 4, false},   {"Z", SPW_COLUMN_BINARY, 8, false},
    {"u", SPW_COLUMN_BINARY, 4, false},   {"U", SPW_COLUMN_BINARY, 8, false},
    {"tdD", SPW_COLUMN_FIXED, 4, false},  {"tdm", SPW_COLUMN_FIXED, 8, false},
    {"tts", SPW_COLUMN_FIXED, 4, false},  {"ttm", SPW_COLUMN_FIXED, 4, false},
    {"ttu", SPW_COLUMN_FIXED, 8, false},  {"ttn", SPW_COLUMN_FIXED, 8, false},
    {"tss:", SPW_COLUMN_FIXED, 8, true},  {"tsm:", SPW_COLUMN_FIXED, 8, true},
    {"tsu:", SPW_COLUMN_FIXED, 8, true},  {"tsn:", SPW_COLUMN_FIXED, 8, true},
    {"tDs", SPW_COLUMN_FIXED, 8, false},  {"tDm", SPW_COLUMN_FIXED, 8, false},
    {"tDu", SPW_COLUMN_FIXED, 8, false},  {"tDn", SPW_COLUMN_FIXED, 8, false},
    {"tiM", SPW_COLUMN_FIXED, 4, false},  {"tiD", SPW_COLUMN_FIXED, 8, false},
    {"tin", SPW_COLUMN_FIXED, 16, false}, {"+l", SPW_COLUMN_LIST, 4, false},
    {"+L", SPW_COLUMN_LIST, 8, false},    {"+m", SPW_COLUMN_LIST, 4, false},
};

/* Views of binary and of lists, unions, run-end encoded. */
static const char *const UNSUPPORTED[] = {"vz",   "vu",   "+vl", "+vL",
                                          "+ud:", "+us:", "+r"};

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Returns: whether text is a number and nothing else. */
static bool read_number(const char *text, uint32_t *ret_number)
{
    uint64_t number = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
        if (number > INT32_MAX)
            return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

/* d:PRECISION,SCALE[,BITS] with 128 bits if nothing else is said. */
static bool read_decimal(const char *text, uint32_t *ret_size)
{
    uint32_t bits = 128;
    const char *comma = strchr(text, ',');
    const char *second = comma != NULL ? strchr(comma + 1, ',') : NULL;
    if (comma == NULL || comma == text ||
        (second != NULL && !read_number(second + 1, &bits)))
        return false;
    *ret_size = bits / 8;
    return bits == 32 || bits == 64 || bits == 128 || bits == 256;
}

/* Returns: whether the format is one of those with numbers in them. */
static bool read_sized(const char *text, spw__arrow_format *format)
{
    spw_column_type *type = &format->type;
    if (begins_with(text, "+w:")) {
        type->kind = SPW_COLUMN_FIXED_LIST;
        format->buffer_count = format->child_count = 1;
        return read_number(text + 3, &type->item_size);
    }
    type->kind = SPW_COLUMN_FIXED;
    format->buffer_count = 2;
    if (begins_with(text, "d:"))
        return read_decimal(text + 2, &type->item_size);
    if (!begins_with(text, "w:") || !read_number(text + 2, &type->item_size))
        return false;
    if (type->item_size == 0) { /* only its validity has bytes, as a struct's */
        type->kind = SPW_COLUMN_FIXED_LIST;
        format->has_column = type->has_validity;
        format->is_struct = true;
    }
    return true;
}

static bool read_known(const char *text, spw__arrow_format *format)
{
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        const known_format *known = &KNOWN[i];
        if (known->is_prefix ? !begins_with(text, known->text)
                             : strcmp(text, known->text) != 0)
            continue;
        format->type.kind = known->kind;
        format->type.item_size = known->item_size;
        format->buffer_count = known->kind == SPW_COLUMN_BINARY ? 3 : 2;
        format->child_count = known->kind == SPW_COLUMN_LIST;
        return true;
    }
    return false;
}

static bool read_format(const char *text, spw__arrow_format *format)
{
    if (strcmp(text, "n") == 0) {
        format->has_column = false;
        return true;
    }
    if (strcmp(text, "+s") == 0) {
        format->type.kind = SPW_COLUMN_FIXED_LIST;
        format->has_column = format->type.has_validity;
        format->is_struct = true;
        format->buffer_count = 1;
        format->child_count = -1;
        return true;
    }
    return read_known(text, format) || read_sized(text, format);
}

static spw_status check_children(const struct ArrowSchema *schema,
                                 const spw__arrow_format *format, spw_error *error)
{
    int64_t count = schema->n_children;
    bool is_right = format->child_count < 0 ? count >= 0 : count == format->child_count;
    for (int64_t i = 0; i < count && is_right; i++)
        is_right = schema->children != NULL && schema->children[i] != NULL;
    if (is_right)
        return SPW_STATUS_OK;
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "a type %.40s with %lld children", schema->format,
                          (long long)count);
}

spw_status spw__arrow_format_read(const struct ArrowSchema *schema, unsigned depth,
                                  spw__arrow_format *ret_format, spw_error *error)
{
    if (schema->release == NULL || schema->format == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a schema that was released");
    if (depth >= SPW__ARROW_DEPTH_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "types in more than %d others", SPW__ARROW_DEPTH_MAX - 1);
    for (size_t i = 0; i < sizeof UNSUPPORTED / sizeof UNSUPPORTED[0]; i++)
        if (begins_with(schema->format, UNSUPPORTED[i]))
            return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                                  "columns of the Arrow type %.40s", schema->format);
    spw__arrow_format format = {.has_column = true,
                                .type.has_validity =
                                    (schema->flags & ARROW_FLAG_NULLABLE) != 0};
    if (!read_format(schema->format, &format))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "%.40s is no format of an Arrow type", schema->format);
    spw_status status = check_children(schema, &format, error);
    if (status == SPW_STATUS_OK)
        *ret_format = format;
    return status;
}
