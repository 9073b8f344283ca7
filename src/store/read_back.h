/* Ranges of files, back in memory. */
#ifndef SPW_STORE_READ_BACK_H
#define SPW_STORE_READ_BACK_H

#include "spillway/payload.h"

typedef struct spw__read_back_figures {
    uint64_t read_bytes, read_ns, decompress_ns;
} spw__read_back_figures;

/* Read the slices of a payload that are ranges of files, verify the checksums that they
 * have, and decompress. Small ones that lie behind each other share a buffer; large
 * ones are read past the system's cache, if is_direct. Returns: a payload of the
 * caller's with as many slices, all in memory and plain; what it took is added to
 * figures. Thread: any; blocks on the disk. Errors: IO (errno tells), CORRUPT (other
 * bytes than were written, or fewer), NO_MEMORY, LIMIT_EXCEEDED. */
spw_status spw__read_back(spw_context *context, const spw_payload *on_disk,
                          bool is_direct, spw_payload **ret_payload,
                          spw__read_back_figures *figures, spw_error *error);

#endif
