/* Fuzz target: format strings of Arrow's types, of schemas with no child, or with one
 * of 64-bit integers. What is taken is a column that can be split and joined, and its
 * widths fit; what is not says why. The input is the format. */
#include <stdlib.h>
#include <string.h>

#include "spillway/spillway.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void release_nothing(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void check(const struct ArrowSchema *schema)
{
    spw_column_type types[2];
    uint64_t rows;
    size_t count = 99;
    spw_error error;
    spw_status status = spw_arrow_types(schema, types, 2, &count, &error);
    if (status != SPW_STATUS_OK) {
        require(status == error.status && count == 99 && error.message[0] != '\0');
        require(status == SPW_STATUS_UNSUPPORTED ||
                status == SPW_STATUS_INVALID_ARGUMENT);
        return;
    }
    require(count <= 2);
    require(spw_shards_measure(types, count, NULL, 0, &rows, NULL, NULL) ==
            SPW_STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *format = malloc(size + 1);
    require(format != NULL);
    if (size > 0)
        memcpy(format, data, size);
    format[size] = '\0';
    struct ArrowSchema item = {.format = "l", .release = release_nothing};
    struct ArrowSchema *children[1] = {&item};
    for (int64_t n = 0; n < 2; n++)
        for (int64_t flags = 0; flags <= ARROW_FLAG_NULLABLE;
             flags += ARROW_FLAG_NULLABLE)
            check(&(struct ArrowSchema){.format = format,
                                        .flags = flags,
                                        .n_children = n,
                                        .children = children,
                                        .release = release_nothing});
    free(format);
    return 0;
}
