/* Huge pages: a first touch of fresh 4 KiB pages is the dearest part of receiving. */
#include "platform/memory_advice.h"

#include <stdint.h>
#include <sys/mman.h>

/* numpy asks for them from the same size on, so that a receiver which keeps what it
 * gets is served no worse than one on numpy's own memory. */
static const size_t HUGE_FROM_BYTES = (size_t)4 << 20;
static const uintptr_t PAGE_BYTES = 4096;

void spw__memory_advise_huge(void *data, size_t size)
{
    if (size < HUGE_FROM_BYTES)
        return;
    uintptr_t start = ((uintptr_t)data + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)data + size) & ~(PAGE_BYTES - 1);
    (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}
