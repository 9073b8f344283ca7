/* The window. A disk gives 2 MiB about as fast as more, in about a millisecond, which
 * is as long as the owner waits for a direction that it calls home. */
#include "transport/file_window.h"

#include <assert.h>
#include <stdint.h>

#include "platform/direct_file.h"
#include "platform/regular_file.h"
#include "spillway/buffer.h"

enum { WINDOW_BYTES = 2 << 20 };

static bool fill(spw__file_window *window, spw_context *context,
                 const spw__file_range *range)
{
    size_t size = range->size < WINDOW_BYTES ? range->size : WINDOW_BYTES;
    if (window->buffer == NULL &&
        spw_buffer_create(context, WINDOW_BYTES + 2 * SPW__DIRECT_BYTES,
                          SPW_CHARGE_QUEUED, &window->buffer, NULL) != SPW_STATUS_OK)
        return false;
    char *data = spw_buffer_data(window->buffer);
    data += -(uintptr_t)data % SPW__DIRECT_BYTES + range->offset % SPW__DIRECT_BYTES;
    if (spw__direct_file_read(range->descriptor, data, size, range->offset) < 0)
        return false; /* sendfile will meet the same, and say so */
    window->data = data;
    window->offset = range->offset;
    window->left = size;
    return true;
}

bool spw__file_window_get(spw__file_window *window, spw_context *context,
                          const spw__file_range *range, struct iovec *ret_piece)
{
    if (window->left == 0) {
        if (range->size < WINDOW_BYTES / 2 ||
            spw__regular_file_is_cached(range->descriptor, range->offset,
                                        range->size) != 0 ||
            !fill(window, context, range)) {
            spw__file_window_clear(window);
            return false;
        }
    }
    assert(window->offset == range->offset);
    size_t size = window->left < range->size ? window->left : range->size;
    *ret_piece = (struct iovec){.iov_base = window->data, .iov_len = size};
    return true;
}

void spw__file_window_advance(spw__file_window *window, size_t bytes)
{
    assert(bytes <= window->left);
    window->data += bytes;
    window->offset += bytes;
    window->left -= bytes;
}

void spw__file_window_clear(spw__file_window *window)
{
    spw_buffer_unref(window->buffer);
    *window = (spw__file_window){0};
}
