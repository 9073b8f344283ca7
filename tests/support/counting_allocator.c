#include "counting_allocator.h"

#include <stdio.h>
#include <stdlib.h>

/* In front of each block, so that release can check what it is told. It fills what the
 * alignment leaves between the start of the C library's block and ours. */
typedef struct block_header {
    void *start;
    size_t size, alignment;
} block_header;

static void *allocate(void *user, size_t size, size_t alignment)
{
    counting_allocator *allocator = user;
    uint64_t call = atomic_fetch_add(&allocator->calls, 1) + 1;
    if (call == allocator->fail_at || size == 0)
        return NULL;
    if (alignment < _Alignof(block_header))
        alignment = _Alignof(block_header);
    size_t before = (sizeof(block_header) + alignment - 1) / alignment * alignment;
    void *start;
    if (posix_memalign(&start, alignment, before + size) != 0)
        return NULL;
    char *block = (char *)start + before;
    ((block_header *)(void *)block)[-1] = (block_header){start, size, alignment};
    atomic_fetch_add(&allocator->live_blocks, 1);
    uint64_t live = atomic_fetch_add(&allocator->live_bytes, size) + size;
    uint64_t peak = atomic_load(&allocator->peak_bytes);
    while (live > peak &&
           !atomic_compare_exchange_weak(&allocator->peak_bytes, &peak, live))
        ;
    return block;
}

static void release(void *user, void *pointer, size_t size, size_t alignment)
{
    counting_allocator *allocator = user;
    if (alignment < _Alignof(block_header))
        alignment = _Alignof(block_header);
    block_header header = ((block_header *)pointer)[-1];
    if (header.size != size || header.alignment != alignment) {
        fprintf(stderr, "released as %zu bytes on %zu, allocated as %zu on %zu\n", size,
                alignment, header.size, header.alignment);
        abort();
    }
    atomic_fetch_sub(&allocator->live_blocks, 1);
    atomic_fetch_sub(&allocator->live_bytes, size);
    free(header.start);
}

spw_allocator counting_allocator_hook(counting_allocator *allocator)
{
    return (spw_allocator){allocate, release, allocator};
}
