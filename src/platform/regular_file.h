/* What the library asks of the operating system about files that it is given. Every
 * function answers a value >= 0, or the negative errno of what went wrong. Thread: any.
 */
#ifndef SPW_PLATFORM_REGULAR_FILE_H
#define SPW_PLATFORM_REGULAR_FILE_H

/* Errors: EINVAL (a pipe, socket, directory or device), EBADF (not open, or not for
 * reading) and what the file system says. */
int spw__regular_file_verify(int descriptor);
void spw__regular_file_close(int descriptor);

#endif
