/* Which slabs there are, and which of them have items to give: by size, those first
 * that have warm ones. One thread at a time. */
#ifndef SPW_MEMORY_SLAB_LISTS_H
#define SPW_MEMORY_SLAB_LISTS_H

#include "memory/slab.h"

/* The slabs of one size that have free items. */
typedef struct spw__slab_class {
    spw__slab *warm; /* with warm ones */
    spw__slab *cold; /* with cold ones only */
} spw__slab_class;

/* All zero: no slabs. */
typedef struct spw__slab_lists {
    spw__slab_class classes[SPW__SLAB_CLASS_COUNT];
    spw__slab *all; /* by all_next */
} spw__slab_lists;

/* Add a slab to all of them; it gives nothing before it is sorted in. */
void spw__slab_lists_add(spw__slab_lists *lists, spw__slab *slab);
/* Put a slab into the list it belongs to after its items have changed, or into none
 * when it is full. */
void spw__slab_lists_sort(spw__slab_lists *lists, spw__slab *slab);
/* Take a slab out of all lists. */
void spw__slab_lists_remove(spw__slab_lists *lists, spw__slab *slab);

#endif
