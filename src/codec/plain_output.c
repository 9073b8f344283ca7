/* The growing output. Pieces are never moved: a decompressor that has no end costs at
 * most twice what it has really written, up to the limit or the budget, and one copy at
 * the end. (Growing one buffer would copy at each step and hold three times as much.)
 */
#include "codec/plain_output.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "context/error.h"

void spw__plain_output_init(spw__plain_output *output, spw_context *context,
                            spw_charge charge, uint64_t limit_bytes,
                            size_t expected_bytes)
{
    size_t first = expected_bytes;
    if (first < SPW__PLAIN_OUTPUT_FIRST_BYTES)
        first = SPW__PLAIN_OUTPUT_FIRST_BYTES;
    *output = (spw__plain_output){
        .context = context,
        .charge = charge,
        .limit_bytes = limit_bytes < SIZE_MAX / 2 ? limit_bytes : SIZE_MAX / 2,
        .first_bytes = first,
    };
}

void spw__plain_output_clear(spw__plain_output *output)
{
    for (size_t i = 0; i < output->piece_count; i++)
        spw_buffer_unref(output->pieces[i]);
    output->piece_count = 0;
    output->used_in_last = 0;
    output->total_bytes = 0;
}

static size_t left_in_last(const spw__plain_output *output)
{
    if (output->piece_count == 0)
        return 0;
    return spw_buffer_size(output->pieces[output->piece_count - 1]) -
           output->used_in_last;
}

static spw_status add_piece(spw__plain_output *output, spw_error *error)
{
    uint64_t allowed = output->limit_bytes - output->total_bytes;
    if (allowed == 0)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "a frame decompresses to more than the limit of "
                              "%" PRIu64 " bytes a message",
                              output->limit_bytes);
    uint64_t size =
        output->piece_count == 0 ? output->first_bytes : output->total_bytes;
    if (size > allowed)
        size = allowed;
    assert(output->piece_count < SPW__PLAIN_OUTPUT_MAX_PIECES);
    spw_status status = spw_buffer_create(output->context, (size_t)size, output->charge,
                                          &output->pieces[output->piece_count], error);
    if (status != SPW_STATUS_OK)
        return status;
    output->piece_count++;
    output->used_in_last = 0;
    return SPW_STATUS_OK;
}

spw_status spw__plain_output_room(spw__plain_output *output, void **ret_place,
                                  size_t *ret_size, spw_error *error)
{
    if (left_in_last(output) == 0) {
        spw_status status = add_piece(output, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    const spw_buffer *last = output->pieces[output->piece_count - 1];
    *ret_place = (char *)spw_buffer_data(last) + output->used_in_last;
    *ret_size = left_in_last(output);
    return SPW_STATUS_OK;
}

void spw__plain_output_advance(spw__plain_output *output, size_t bytes)
{
    assert(bytes <= left_in_last(output));
    output->used_in_last += bytes;
    output->total_bytes += bytes;
}

spw_status spw__plain_output_finish(spw__plain_output *output, spw_buffer **ret_buffer,
                                    spw_error *error)
{
    spw_buffer *joined;
    spw_status status = spw_buffer_create(output->context, (size_t)output->total_bytes,
                                          output->charge, &joined, error);
    if (status != SPW_STATUS_OK)
        return status;
    char *next = spw_buffer_data(joined);
    for (size_t i = 0; i < output->piece_count; i++) {
        bool is_last = i + 1 == output->piece_count;
        size_t used =
            is_last ? output->used_in_last : spw_buffer_size(output->pieces[i]);
        memcpy(next, spw_buffer_data(output->pieces[i]), used);
        next += used;
    }
    spw__plain_output_clear(output);
    *ret_buffer = joined;
    return SPW_STATUS_OK;
}
