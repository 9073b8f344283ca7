/* What a store has on disk, as it reaches another process of the host that is handed
 * the file's descriptor. */
#ifndef SPW_TESTS_HANDED_FILES_H
#define SPW_TESTS_HANDED_FILES_H

#include <stdbool.h>

#include "spillway/payload.h"

/* Another file of the same descriptor, duplicated as by passing it on. */
spw_status handed_file(spw_context *context, const spw_file *file, spw_file **ret_file,
                       spw_error *error);
/* A value that is stored, all of it in one file: its header comes to memory, and its
 * other slices, with bytes or without, stay where they are, in a file of its own.
 * with_checksums: as they are stored, else without, as they come.
 * Returns: a payload of the caller's. */
spw_status handed_payload(spw_context *context, const spw_payload *stored,
                          bool with_checksums, spw_payload **ret_payload,
                          spw_error *error);

#endif
