/* Mappings on Linux. */
#include "platform/memory_map.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

size_t spw__memory_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void *map_anywhere(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* The kernel puts a mapping on any page, so one that is larger is cut to measure. */
static void *map_on_huge_page(size_t size)
{
    size_t surplus = SPW__HUGE_PAGE_BYTES - spw__memory_page_bytes();
    if (size > SIZE_MAX - surplus) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    char *data = map_anywhere(size + surplus);
    if (data == MAP_FAILED)
        return MAP_FAILED;
    size_t before = (size_t)(-(uintptr_t)data & (SPW__HUGE_PAGE_BYTES - 1));
    spw__memory_unmap(data, before);
    spw__memory_unmap(data + before + size, surplus - before);
    return data + before;
}

int spw__memory_map(size_t size, spw__page_kind pages, void **ret_data)
{
    void *data = pages == SPW__PAGES_HUGE ? map_on_huge_page(size) : map_anywhere(size);
    if (data == MAP_FAILED)
        return -errno;
    /* Only advice: a kernel without huge pages refuses it and loses nothing. */
    (void)madvise(data, size,
                  pages == SPW__PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    *ret_data = data;
    return 0;
}

void spw__memory_unmap(void *data, size_t size)
{
    if (size == 0 || munmap(data, size) == 0)
        return;
    /* The kernel joins neighbours into one mapping; where the process has as many as it
     * may, it refuses to make two of one. The memory goes all the same, and what is
     * left are addresses. */
    spw__memory_discard(data, size);
}

/* Several mappings cannot grow, and the kernel says so before it looks for room. */
static bool is_one_mapping(char *data, size_t size)
{
    size_t page = spw__memory_page_bytes();
    if (mremap(data, size, size + page, 0) == MAP_FAILED)
        return errno != EFAULT;
    spw__memory_unmap(data + size, page);
    return true;
}

size_t spw__memory_mapping_part(void *data, size_t size)
{
    if (is_one_mapping(data, size))
        return size;
    size_t page = spw__memory_page_bytes(), part = page, step = 16 * page;
    for (; part + step < size && is_one_mapping(data, part + step); step *= 2)
        part += step;
    for (; step >= page; step /= 2)
        if (part + step < size && is_one_mapping(data, part + step))
            part += step;
    return part;
}

static int move(void *from, size_t size, void *to, int flags)
{
    void *moved = mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to);
    return moved == MAP_FAILED ? -errno : 0;
}

int spw__memory_move(void *from, size_t size, void *to)
{
    return move(from, size, to, 0);
}

int spw__memory_move_pages(void *from, size_t size, void *to)
{
    return move(from, size, to, MREMAP_DONTUNMAP);
}

void spw__memory_discard(void *data, size_t size)
{
    if (size > 0)
        (void)madvise(data, size, MADV_DONTNEED);
}
