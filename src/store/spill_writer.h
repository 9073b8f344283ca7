/* What a spill does on a thread of the store: it knows payloads and ranges, and nothing
 * of entries' states. */
#ifndef SPW_STORE_SPILL_WRITER_H
#define SPW_STORE_SPILL_WRITER_H

#include "store/store_state.h"

/* Compress, if the store is to, and write what the items of a spill have, each to a
 * range of its own. Returns: in each item on_disk and range. On failure no item has
 * either. Thread: the store's; blocks on the disk.
 * Errors: IO (errno tells), LIMIT_EXCEEDED (no directory has the room), NO_MEMORY. */
spw_status spw__spill_write(spw__spill *spill, spw_error *error);

#endif
