/* Fuzz target: one frame for one codec. The first byte chooses the codec, the rest is
 * the frame. Beyond "no crash" it holds the three public functions against each other:
 * what plain_size says is what expand gives, what expand gives decompress gives too,
 * and nothing stays charged.
 *
 * The corpus has frames as the packages that Dask uses write them
 * (corpus/codec/<codec>_*) and shapes that only others write (several frames, no size,
 * skippable). */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/spillway.h"

#define PLAIN_LIMIT ((uint64_t)1 << 20)
/* Pieces of at most the limit together, and the buffer that they are joined in: a
 * frame within the limit is never refused for the budget. */
#define BUDGET_BYTES (PLAIN_LIMIT * 2)

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_against_expanded(spw_context *context, spw_codec_id codec,
                                   const void *data, size_t size,
                                   const spw_buffer *expanded)
{
    size_t plain_size = spw_buffer_size(expanded);
    uint64_t claimed;
    spw_status status = spw_codec_plain_size(codec, data, size, &claimed, NULL);
    require(status == SPW_STATUS_OK || status == SPW_STATUS_UNSUPPORTED);
    if (status == SPW_STATUS_OK)
        require(claimed == plain_size);
    spw_buffer *again;
    require(spw_buffer_create(context, plain_size, SPW_CHARGE_IN_FLIGHT, &again,
                              NULL) == SPW_STATUS_OK);
    /* zstd's streaming decoder, which expand needs for a frame without a size, takes a
     * compressed block of no bytes for an empty one; decompress' decoder refuses it. */
    bool may_differ = codec == SPW_CODEC_ZSTD && status == SPW_STATUS_UNSUPPORTED;
    status = spw_codec_decompress(codec, data, size, spw_buffer_data(again), plain_size,
                                  NULL);
    require(status == SPW_STATUS_OK || (may_differ && status == SPW_STATUS_CORRUPT));
    if (status == SPW_STATUS_OK)
        require(memcmp(spw_buffer_data(again), spw_buffer_data(expanded), plain_size) ==
                0);
    spw_buffer_unref(again);
}

/* Whatever expand thinks of the frame, decompress must stay inside out. */
static void decompress_anyway(spw_context *context, spw_codec_id codec,
                              const void *data, size_t size)
{
    uint64_t claimed;
    if (spw_codec_plain_size(codec, data, size, &claimed, NULL) != SPW_STATUS_OK ||
        claimed > PLAIN_LIMIT)
        claimed = 1000;
    spw_buffer *out;
    require(spw_buffer_create(context, (size_t)claimed, SPW_CHARGE_IN_FLIGHT, &out,
                              NULL) == SPW_STATUS_OK);
    spw_error error;
    spw_status status = spw_codec_decompress(codec, data, size, spw_buffer_data(out),
                                             (size_t)claimed, &error);
    require(status == SPW_STATUS_OK || status == error.status);
    spw_buffer_unref(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    spw_codec_id codec = (spw_codec_id)(SPW_CODEC_LZ4 + data[0] % 4);
    const void *frame = data + 1;
    size_t frame_size = size - 1;
    spw_budget *budget;
    require(spw_budget_create(BUDGET_BYTES, &budget, NULL) == SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    options.limits.bytes_per_message = PLAIN_LIMIT;
    options.pool = SPW_POOL_OFF; /* AddressSanitizer sees where a block ends */
    spw_context *context;
    require(spw_context_create(&options, &context, NULL) == SPW_STATUS_OK);

    spw_buffer *expanded = NULL;
    spw_error error;
    spw_status status = spw_codec_expand(context, codec, frame, frame_size,
                                         SPW_CHARGE_HELD, &expanded, &error);
    if (status == SPW_STATUS_OK)
        check_against_expanded(context, codec, frame, frame_size, expanded);
    else
        require(status == error.status && expanded == NULL);
    decompress_anyway(context, codec, frame, frame_size);

    spw_buffer_unref(expanded);
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_HELD] == 0 &&
            figures.used_bytes[SPW_CHARGE_IN_FLIGHT] == 0);
    spw_context_unref(context);
    spw_budget_free(budget);
    return 0;
}
