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
/* What a process says of a file that it has open, for others to take it. */
typedef struct spw_file_claim {
    int64_t process; /* its pid */
    int descriptor;  /* by which it has the file */
    uint64_t device, inode;
} spw_file_claim;

/* Take the file that another process of this host has open, as by a descriptor of our
 * own: it lives on, with all that is in it, however that process ends. What stands in
 * it is not looked at. Borrows: claim, during the call; context gets a reference of its
 * own. Returns: one reference; in ret_size how large the file is now. Thread: any; asks
 * the system, and reads nothing. Errors: UNSUPPORTED (the system does not let us, or
 * the process has no such file), NO_MEMORY, IO (errno tells), INVALID_ARGUMENT (it is
 * no ordinary file, open for reading). */
SPW_EXPORT SPW_NODISCARD spw_status spw_file_take(spw_context *context,
                                                  const spw_file_claim *claim,
                                                  spw_file **ret_file,
                                                  uint64_t *ret_size, spw_error *error);
/* Takes one more reference. Returns: file. Thread: any. */
SPW_EXPORT spw_file *spw_file_ref(spw_file *file);
/* Takes: one reference (NULL allowed). Thread: any; the last one closes. */
SPW_EXPORT void spw_file_unref(spw_file *file);

/* Borrows: the descriptor, until the caller's reference goes. Returns: it. Thread: any.
 */
SPW_EXPORT int spw_file_descriptor(const spw_file *file);

#endif
