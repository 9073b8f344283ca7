/* A slab: one mapping cut into items of one size, for what is too small for a mapping
 * of its own (a process has 65,530 of them) and too large for an allocator that gives
 * nothing back. A free item is warm while its memory is still there. No lock: callers
 * see to it that one thread at a time is in a slab. */
#ifndef SPW_MEMORY_SLAB_H
#define SPW_MEMORY_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spillway/context.h"

/* Slabs serve sizes from the first (inclusive) to the second. */
#define SPW__SLAB_FROM_BYTES ((size_t)4096)
#define SPW__SLAB_BELOW_BYTES ((size_t)2 << 20)
/* Addresses, not memory: what nobody touched takes none. 100,000 items of 64 KiB are
 * under 200 slabs. */
#define SPW__SLAB_BYTES ((size_t)32 << 20)
/* Item sizes are 4096 << n and seven steps between each and the next: an eighth of an
 * item is wasted at most. */
enum { SPW__SLAB_CLASS_COUNT = 9 * 8 + 1 };

/* The class that serves a size, and the size of its items, which is a multiple of 64.
 */
unsigned spw__slab_class_of(size_t size);
size_t spw__slab_class_bytes(unsigned size_class);

typedef struct spw__slab_item {
    uint16_t previous, next; /* in the slab's list for its state */
    uint8_t state;
    uint32_t idle_since_ms; /* of a warm one; wraps around */
} spw__slab_item;

typedef struct spw__slab {
    char *memory;
    size_t item_bytes;
    unsigned size_class;
    uint32_t count;      /* items */
    uint32_t live, warm; /* items that are taken; free, and have memory */
    uint16_t warm_head, cold_head;
    /* Of slab_lists.h. */
    struct spw__slab *previous, *next; /* with free items */
    struct spw__slab *all_previous, *all_next;
    bool is_listed; /* among those with free items */
    spw__slab_item items[];
} spw__slab;

/* All items are cold. Takes: memory, a mapping of SPW__SLAB_BYTES; on failure it stays
 * the caller's. Returns: NULL when there is no memory for it. */
spw__slab *spw__slab_create(spw_context *context, unsigned size_class, void *memory);
/* Takes: slab with its memory, whatever its items are. */
void spw__slab_free(spw__slab *slab, spw_context *context);

bool spw__slab_is_full(const spw__slab *slab);
/* Take an item, the warm one that was put last or else a cold one. The slab is not
 * full. Returns: its address; in ret_is_warm which it was. */
void *spw__slab_take(spw__slab *slab, bool *ret_is_warm);
/* Put an item back; it is warm. */
void spw__slab_put(spw__slab *slab, void *data, uint32_t now_ms);

/* Free items one after another: cold ones, and warm ones that are due. */
typedef struct spw__slab_run {
    uint32_t first, end; /* items [first, end) */
    uint32_t warm;       /* so many of them */
} spw__slab_run;

/* Find the next run from item `from` on in which a warm item is due, being idle for
 * older_than_ms. ret_oldest_ms is raised to the age of the oldest warm item met that is
 * not due. Returns: false when there is none. */
bool spw__slab_next_run(const spw__slab *slab, uint32_t from, uint32_t now_ms,
                        uint32_t older_than_ms, uint32_t *ret_oldest_ms,
                        spw__slab_run *ret_run);
/* Take the items of a run; then give their memory back, with no other thread kept from
 * the slab; then put them back as cold. */
void spw__slab_take_run(spw__slab *slab, const spw__slab_run *run);
void spw__slab_discard_run(const spw__slab *slab, const spw__slab_run *run);
void spw__slab_put_run(spw__slab *slab, const spw__slab_run *run);

#endif
