/* Fuzz target: one frame as a sub-header, whose first byte is also taken for how many
 * frames follow it. What is held against the parser: its answer is consistent
 * in itself, the same a second time over the kept arrays, and its memory is bounded by
 * the frames that follow.
 *
 * The corpus has the sub-headers of stock Dask's messages, written by make_corpus.py;
 * their first byte, the msgpack map's, is many frames. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "framing/sub_header.h"
#include "framing/msgpack_scan.h"
#include "spillway/spillway.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_answer(const spw__sub_header *header, uint64_t frames_behind)
{
    require(header->sub_frames <= frames_behind);
    require(header->compressed_count <= frames_behind);
    if (!header->has_buffers)
        return;
    uint64_t sum = 0;
    for (size_t i = 0; i < header->buffer_count; i++) {
        require(header->buffer_frames[i] <= header->sub_frames - sum);
        sum += header->buffer_frames[i];
    }
    require(sum == header->sub_frames);
}

/* Whoever skips an item must end where whoever reads its parts ends. */
static void check_skip(const void *data, size_t size)
{
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    spw__byte_reader parts = reader;
    spw__msgpack_item item;
    if (!spw__msgpack_skip(&reader) || !spw__msgpack_next(&parts, &item))
        return;
    if (item.kind == SPW__MSGPACK_STRING || item.kind == SPW__MSGPACK_OTHER)
        require(spw__byte_reader_skip(&parts, item.value));
    uint64_t items = item.kind == SPW__MSGPACK_ARRAY ? item.value : 0;
    if (item.kind == SPW__MSGPACK_MAP)
        items = 2 * item.value;
    for (uint64_t i = 0; i < items; i++)
        require(spw__msgpack_skip(&parts));
    require(parts.next == reader.next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint64_t frames_behind = data[0];
    spw_budget *budget;
    require(spw_budget_create(0, &budget, NULL) == SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    spw_context *context;
    require(spw_context_create(&options, &context, NULL) == SPW_STATUS_OK);

    spw__sub_header header = {0};
    spw_status status, again;
    bool is_one = spw__sub_header_parse(&header, context, data, size, frames_behind,
                                        &status, NULL);
    require(status == SPW_STATUS_OK);
    if (is_one)
        check_answer(&header, frames_behind);
    /* The arrays grow by half, from eight. */
    require(header.buffer_capacity <= 8 + 2 * frames_behind);
    require(header.compressed_capacity <= 8 + 2 * frames_behind);
    bool had_buffers = header.has_buffers;
    require(spw__sub_header_parse(&header, context, data, size, frames_behind, &again,
                                  NULL) == is_one);
    require(!is_one || header.has_buffers == had_buffers);
    check_skip(data, size);

    spw__sub_header_clear(&header, context);
    spw_context_unref(context);
    spw_budget_free(budget);
    return 0;
}
