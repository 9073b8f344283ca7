/* An allocator that counts what lives, checks that every release names the size and
 * alignment of its allocation, and can fail the Nth allocation.
 * Thread: any, but arm it only while nobody allocates. */
#ifndef SPW_TESTS_COUNTING_ALLOCATOR_H
#define SPW_TESTS_COUNTING_ALLOCATOR_H

#include <stdatomic.h>

#include "spillway/context.h"

typedef struct counting_allocator {
    _Atomic uint64_t live_bytes, live_blocks;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t calls; /* allocations asked for */
    uint64_t fail_at;       /* the call that fails, counted from 1; 0: none */
} counting_allocator;

/* The hook for spw_context_options. Borrows: allocator, which starts all zero. */
spw_allocator counting_allocator_hook(counting_allocator *allocator);

#endif
