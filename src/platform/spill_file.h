/* Files without a name, for what leaves memory: nobody else can open them, and the
 * system gives their space back when the last descriptor goes, also after a kill.
 *
 * Every function answers a value >= 0, or the negative errno of what went wrong.
 * Thread: any; they block on the disk, and no lock may be held that a loop waits for.
 */
#ifndef SPW_PLATFORM_SPILL_FILE_H
#define SPW_PLATFORM_SPILL_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Some bytes of what is written together. */
typedef struct spw__spill_part {
    const void *data;
    size_t size;
} spw__spill_part;

/* Where a file system has no files without a name, one has a name for a moment, which
 * begins so; a process that is killed then leaves it. */
#define SPW__SPILL_FILE_PREFIX "segment-"

/* A multiple of what any disk asks for. */
#define SPW__DIRECT_BYTES 4096

/* Make a file in a directory, which we alone may write to, open for reading and
 * writing. Returns: a descriptor, not inherited by child processes, which
 * spw__regular_file_close closes.
 * Errors: what the file system says, ELOOP or ENOTDIR (a symbolic link) among them. */
int spw__spill_file_create(const char *directory);
/* Open the same file once more, for the same, past the system's cache: where place in
 * the file, memory and size are all multiples of SPW__DIRECT_BYTES. Returns: a
 * descriptor as above. Errors: EINVAL and others, where there is no such way. */
int spw__spill_file_open_direct(int descriptor);
/* Let others see that whoever made a file wants it, until the last descriptor goes that
 * was made by this one being duplicated, or handed to another process. Errors: ENOLCK
 * and others, where the file system knows of no such thing. */
int spw__spill_file_hold(int descriptor);
/* Open the same file once more, for reading, apart from how descriptor has it open: it
 * does not hold what that one holds. Returns: a descriptor as above. Errors: EMFILE,
 * EACCES and others. */
int spw__spill_file_reopen(int descriptor);
/* Returns: 1 if somebody holds a file in another way than this descriptor, 0 if nobody
 * does. Errors: as spw__spill_file_hold. */
int spw__spill_file_is_held(int descriptor);
/* Write all the parts, behind each other from offset on. What was written before an
 * error stays in the file. Errors: ENOSPC, EDQUOT, EFBIG, EIO and others. */
int spw__spill_file_write(int descriptor, const spw__spill_part *parts, size_t count,
                          uint64_t offset);
/* Have a file end where size bytes are, and the system have back what was behind.
 * Errors: EIO and others. */
int spw__spill_file_cut(int descriptor, uint64_t size);
/* Have the system have back what whole blocks in a range take, which reads as zero from
 * then on; the file ends where it did. Errors: EOPNOTSUPP, EIO and others. */
int spw__spill_file_punch(int descriptor, uint64_t offset, uint64_t size);
/* Ask how many bytes the file system of a file has left for us. Errors: EIO and others.
 */
int spw__spill_file_room(int descriptor, uint64_t *ret_bytes);
/* Fill data. Errors: EIO and others; ENODATA where the file ends before. */
int spw__spill_file_read(int descriptor, void *data, size_t size, uint64_t offset);

#endif
