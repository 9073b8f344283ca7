/* A piece of a file on its way to a socket, in memory. What the system has in its cache
 * goes by sendfile; what it has not, and must find memory for, page by page, is read
 * past the cache into a piece of memory that the next one uses again. */
#ifndef SPW_TRANSPORT_FILE_WINDOW_H
#define SPW_TRANSPORT_FILE_WINDOW_H

#include <stdbool.h>
#include <sys/uio.h>

#include "framing/message_writer.h"

/* One thread at a time. Invariant: it has bytes of the range that is sent now, and none
 * when that ends: a descriptor may then be that of another file. */
typedef struct spw__file_window {
    spw_buffer *buffer; /* NULL: none */
    char *data;
    uint64_t offset; /* of data, in the file */
    size_t left;
} spw__file_window;

/* What is next of a range, of which it reads some if it has nothing of it. Returns:
 * false where sendfile is the better way. Borrows: the memory, until the next call.
 * Thread: one that may wait for a disk. */
bool spw__file_window_get(spw__file_window *window, spw_context *context,
                          const spw__file_range *range, struct iovec *ret_piece);
/* So much of what it gave was sent. */
void spw__file_window_advance(spw__file_window *window, size_t bytes);
/* Drop what it has, and its memory. */
void spw__file_window_clear(spw__file_window *window);

#endif
