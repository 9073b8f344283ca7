/* Files on Linux. */
#include "platform/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int spw__regular_file_verify(int descriptor)
{
    struct stat about;
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0)
        return -errno;
    if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) != 0)
        return -EBADF;
    if (fstat(descriptor, &about) < 0)
        return -errno;
    return S_ISREG(about.st_mode) ? 0 : -EINVAL;
}

/* Nothing was written by it, so there is nothing that could fail to be. */
void spw__regular_file_close(int descriptor)
{
    (void)close(descriptor);
}
