/* What the library asks of the operating system about files that it is given. Every
 * function answers a value >= 0, or the negative errno of what went wrong. Thread: any.
 */
#ifndef SPW_PLATFORM_REGULAR_FILE_H
#define SPW_PLATFORM_REGULAR_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Errors: EINVAL (a pipe, socket, directory or device), EBADF (not open, or not for
 * reading) and what the file system says. */
int spw__regular_file_verify(int descriptor);
void spw__regular_file_close(int descriptor);
/* Whether the system has most of a range, or of its first 2 MiB, in its cache. size >
 * 0. Errors: EACCES, ENOMEM and others. */
int spw__regular_file_is_cached(int descriptor, uint64_t offset, size_t size);

/* Which file a descriptor is of: as long as one of a file is open, no other has the
 * same device and number. */
typedef struct spw__file_facts {
    uint64_t device, number;
    uint64_t bytes; /* where it ends, now */
} spw__file_facts;
/* Errors: EBADF, EIO and others. */
int spw__regular_file_describe(int descriptor, spw__file_facts *ret_facts);

#endif
