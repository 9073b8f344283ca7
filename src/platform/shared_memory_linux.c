/* Shared memory on Linux: memfds. */
#include "platform/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const int SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/* Linux moves no more than that in one call. */
static const size_t CALL_MAX_BYTES = 0x7ffff000;

int spw__shared_memory_create(void)
{
    int descriptor = memfd_create("spillway", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return descriptor >= 0 ? descriptor : -errno;
}

int spw__shared_memory_fill(int descriptor, uint64_t offset, const void *data,
                            size_t size)
{
    /* Writing spares the kernel zeroing the pages that a mapping would fault in. */
    const char *next = data;
    while (size > 0) {
        size_t step = size < CALL_MAX_BYTES ? size : CALL_MAX_BYTES;
        ssize_t written = pwrite(descriptor, next, step, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? -errno : -EIO;
        next += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return 0;
}

int spw__shared_memory_seal(int descriptor)
{
    return fcntl(descriptor, F_ADD_SEALS, SEALS) == 0 ? 0 : -errno;
}

int spw__shared_memory_verify(int descriptor, uint64_t size)
{
    struct stat about;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0)
        return -errno;
    if ((seals & SEALS) != SEALS)
        return -EPERM;
    if (fstat(descriptor, &about) != 0)
        return -errno;
    struct statfs system;
    if (fstatfs(descriptor, &system) != 0)
        return -errno;
    /* A private mapping of hugetlbfs ends its reader by SIGBUS where pages run out. */
    if (system.f_type != TMPFS_MAGIC)
        return -EINVAL;
    return (uint64_t)about.st_size == size ? 0 : -EMSGSIZE;
}

int spw__shared_memory_map(int descriptor, size_t size, void **ret_data)
{
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return -errno;
    *ret_data = data;
    return 0;
}

void spw__shared_memory_unmap(void *data, size_t size)
{
    /* Refused only where it would split a mapping in two, which giving back all of one
     * cannot. */
    (void)munmap(data, size);
}

int spw__shared_memory_read(int descriptor, uint64_t offset, void *to, size_t size)
{
    char *next = to;
    while (size > 0) {
        size_t step = size < CALL_MAX_BYTES ? size : CALL_MAX_BYTES;
        ssize_t got = pread(descriptor, next, step, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        next += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

void spw__shared_memory_close(int descriptor)
{
    (void)close(descriptor);
}
