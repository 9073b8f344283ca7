/* Writing what leaves memory past the system's cache, through a buffer of the
 * context's; what reads it back asks spw__direct_file_read. */
#ifndef SPW_MEMORY_PAST_CACHE_H
#define SPW_MEMORY_PAST_CACHE_H

#include "platform/direct_file.h"
#include "platform/disk_speed.h"
#include "spillway/context.h"

/* As spw__spill_file_write. speed learns how fast the disk is; once it is slow, what is
 * left goes by the cache, as does all of it where there is no memory for the buffer. */
int spw__write_past_cache(spw_context *context, int descriptor,
                          const spw__spill_part *parts, size_t count, uint64_t offset,
                          spw__disk_speed *speed);

#endif
