/* Directories that nobody else may enter, each of one process, which is known to live
 * by the lock that it holds on its directory: what a killed process left is found and
 * removed, and a system's cleaner of temporary files leaves a locked one alone.
 *
 * Every function answers a value >= 0, or the negative errno of what went wrong.
 * Thread: any. */
#ifndef SPW_PLATFORM_PRIVATE_DIRECTORY_H
#define SPW_PLATFORM_PRIVATE_DIRECTORY_H

#include <stddef.h>

/* Make a directory of a name of its own, which begins with prefix, in parent, and lock
 * it. Returns: a descriptor that holds the lock until it is closed, which child
 * processes do not inherit; the path in text, of room bytes.
 * Errors: ENAMETOOLONG, ENOENT, EACCES, EROFS and others. */
int spw__private_directory_create(const char *parent, const char *prefix, char *text,
                                  size_t room);
/* Remove the directory, with those files in it whose names begin with file, and its
 * lock. */
void spw__private_directory_remove(int lock, const char *path, const char *file);
/* Let go of the lock in a forked child, which does not end the parent's. */
void spw__private_directory_leave(int lock);
/* Remove those in parent that we own, whose names begin with prefix, and that nobody
 * has locked, with those files. Returns: how many were removed. */
int spw__private_directory_sweep(const char *parent, const char *prefix,
                                 const char *file);

#endif
