/* Huge pages: a first touch of fresh 4 KiB pages is the dearest part of receiving. */
#include "platform/memory_advice.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* numpy asks for them from the same size on, so that a receiver which keeps what it
 * gets is served no worse than one on numpy's own memory. */
static const size_t HUGE_FROM_BYTES = (size_t)4 << 20;

void spw__memory_advise_huge(void *data, size_t size)
{
    if (size < HUGE_FROM_BYTES)
        return;
    /* Not all pages are 4 KiB, and an address inside a page is refused. */
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)data + page_bytes - 1) & ~(page_bytes - 1);
    uintptr_t end = ((uintptr_t)data + size) & ~(page_bytes - 1);
    (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}
