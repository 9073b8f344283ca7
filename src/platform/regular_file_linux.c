/* Files on Linux. */
#include "platform/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
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

int spw__regular_file_describe(int descriptor, spw__file_facts *ret_facts)
{
    struct stat about;
    if (fstat(descriptor, &about) < 0)
        return -errno;
    *ret_facts = (spw__file_facts){.device = (uint64_t)about.st_dev,
                                   .number = (uint64_t)about.st_ino,
                                   .bytes = (uint64_t)about.st_size};
    return 0;
}

/* cachestat would do, from Linux 6.5 on. The mapping is never touched: a file that is
 * cut meanwhile does no harm. */
int spw__regular_file_is_cached(int descriptor, uint64_t offset, size_t size)
{
    enum { PAGES = 512, LEAST_PAGE = 4096 };
    unsigned char pages[PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    size_t lead = (size_t)(offset % page);
    size_t looked = lead + size < PAGES * LEAST_PAGE ? lead + size : PAGES * LEAST_PAGE;
    void *map =
        mmap(NULL, looked, PROT_READ, MAP_SHARED, descriptor, (off_t)(offset - lead));
    if (map == MAP_FAILED)
        return -errno;
    int answer = mincore(map, looked, pages) == 0 ? 0 : -errno;
    (void)munmap(map, looked);
    if (answer < 0)
        return answer;
    size_t all = (looked + page - 1) / page;
    for (size_t i = 0; i < all; i++)
        count += pages[i] & 1;
    return 2 * count >= all;
}
