/* A file: an ordinary one, open for reading, with one reference count. Slices of
 * SPW_MEMORY_FILE are ranges of it, which are sent without passing through the memory
 * of the process. */
#ifndef SPILLWAY_FILE_H
#define SPILLWAY_FILE_H

#include "spillway/context.h"

typedef struct spw_file spw_file;

/* Make a file of an open descriptor. A range of it that was handed to
 * spw_connection_send must stay as it is until the peer has received it, also after the
 * connection has let go of the file: what the network has not acknowledged is sent
 * again from there. So space is given back by unlinking a file as a whole.
 * Takes: descriptor, on success only; closed with the last reference. Its own place in
 * the file is neither used nor moved. Borrows: context gets a reference of its own.
 * Returns: one reference. Thread: any; asks the file system, and reads nothing.
 * Errors: INVALID_ARGUMENT (not an ordinary file, or not open for reading), NO_MEMORY,
 * IO (errno tells). */
SPW_EXPORT SPW_NODISCARD spw_status spw_file_adopt(spw_context *context, int descriptor,
                                                   spw_file **ret_file,
                                                   spw_error *error);
/* Takes one more reference. Returns: file. Thread: any. */
SPW_EXPORT spw_file *spw_file_ref(spw_file *file);
/* Takes: one reference (NULL allowed). Thread: any; the last one closes. */
SPW_EXPORT void spw_file_unref(spw_file *file);

/* Borrows: the descriptor, until the caller's reference goes. Returns: it. Thread: any.
 */
SPW_EXPORT int spw_file_descriptor(const spw_file *file);

#endif
