/* A window is whole pages, in memory and in the file, so that it may be read past the
 * cache. */
#include "shuffle/chunk_reader.h"

#include <assert.h>
#include <inttypes.h>

#include "context/error.h"

static const uint64_t PAGE = SPW__DIRECT_BYTES;

/* Have a window of so many bytes. Returns: in ret_data where its first page begins. */
static spw_status make_window(spw__chunk_reader *reader, spw_context *context,
                              uint64_t bytes, char **ret_data, spw_error *error)
{
    size_t needed = (size_t)(bytes + PAGE);
    if (reader->window == NULL || spw_buffer_size(reader->window) < needed) {
        spw_buffer_unref(reader->window);
        reader->window = NULL;
        /* Once, whatever pages the next ones begin and end in. */
        spw_status status = spw_buffer_create(context, needed + (size_t)PAGE,
                                              SPW_CHARGE_HELD, &reader->window, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    char *data = spw_buffer_data(reader->window);
    *ret_data = data + (-(uintptr_t)data & (PAGE - 1));
    return SPW_STATUS_OK;
}

spw_status spw__chunk_reader_fill(spw__chunk_reader *reader, spw_context *context,
                                  spw__chunk_files *files, uint64_t bytes,
                                  spw_error *error)
{
    const spw__chunk *chunk = reader->chunk;
    uint64_t at = chunk->offset + reader->at, from = at & ~(PAGE - 1);
    uint64_t pages = ((at + bytes + PAGE - 1) & ~(PAGE - 1)) - from;
    /* Some of it may have been in the window before. */
    uint64_t known = reader->end - reader->at;
    char *window = NULL;
    spw_status status = make_window(reader, context, pages, &window, error);
    if (status == SPW_STATUS_OK)
        status = spw__chunk_files_read(files, chunk->batch, from, window, (size_t)pages,
                                       error);
    if (status != SPW_STATUS_OK)
        return status;
    reader->data = window + (at - from);
    if (reader->end == 0)
        spw__checksum_begin(&reader->sum);
    spw__checksum_add(&reader->sum, reader->data + known, (size_t)(bytes - known));
    reader->begin = reader->at;
    reader->end = reader->at + bytes;
    if (reader->end == chunk->size &&
        spw__checksum_end(&reader->sum) != chunk->checksum)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "%" PRIu64
                              " bytes of a partition that were read back from "
                              "disk are not those that were written",
                              chunk->size);
    return SPW_STATUS_OK;
}

spw_status spw__chunk_reader_next(spw__chunk_reader *reader, spw_context *context,
                                  spw__chunk_files *files, uint64_t size,
                                  uint64_t window_bytes, const void **ret_data,
                                  spw_error *error)
{
    uint64_t left = reader->chunk->size - reader->at;
    assert(size <= left);
    if (!spw__chunk_reader_has(reader, size)) {
        uint64_t bytes = size > window_bytes ? size : window_bytes;
        spw_status status = spw__chunk_reader_fill(reader, context, files,
                                                   bytes < left ? bytes : left, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    *ret_data = reader->data + (reader->at - reader->begin);
    reader->at += size;
    return SPW_STATUS_OK;
}

void spw__chunk_reader_clear(spw__chunk_reader *reader)
{
    spw_buffer_unref(reader->window);
    reader->window = NULL;
}
