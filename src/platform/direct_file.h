/* Large pieces of spill files, between memory and the disk itself. The system's cache
 * costs more than a fast disk does: a page is found for every 4 KiB and filled, and
 * what a process has spilled takes from the machine, or from the process's own share of
 * it, the memory that it was to give back.
 *
 * They answer a value >= 0, or the negative errno of what went wrong, and go by the
 * cache where the file system has no other way. Thread: any; they block on the disk. */
#ifndef SPW_PLATFORM_DIRECT_FILE_H
#define SPW_PLATFORM_DIRECT_FILE_H

#include "platform/spill_file.h"

/* What is smaller goes by the cache: it is written behind others, in pages of which
 * they have a part. */
#define SPW__DIRECT_FROM_BYTES (UINT64_C(2) << 20)

/* A write under way. */
typedef struct spw__direct_write {
    int descriptor, direct; /* direct: negative where there is no such way */
    const spw__spill_part *parts;
    size_t skipped; /* of the first of them */
    uint64_t offset, left;
    char *through;
    size_t through_size;
} spw__direct_write;

/* Begin to write all the parts, behind each other from offset on, through a buffer: at
 * a multiple of SPW__DIRECT_BYTES, and of such a size. Borrows: descriptor, parts and
 * buffer, until the end. */
void spw__direct_write_begin(spw__direct_write *write, int descriptor,
                             const spw__spill_part *parts, size_t count,
                             uint64_t offset, void *through, size_t through_size);
/* Write some. Pages of which only a part is written go by the cache. Answers: how many
 * bytes, at most the size of the buffer; 0 when all is written. */
int spw__direct_write_step(spw__direct_write *write);
/* End it; or go on by the cache with what is left. */
void spw__direct_write_end(spw__direct_write *write);
/* As spw__spill_file_read. Data must lie in its page where offset lies in the file's,
 * or all is read by the cache. */
int spw__direct_file_read(int descriptor, void *data, size_t size, uint64_t offset);

#endif
