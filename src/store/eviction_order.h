/* In which order values leave memory: of those that may, the one that was used longest
 * ago, where what is clean, which is on disk already, counts as older than it is; and
 * none that are too small to be worth it as long as there are others. While nothing can
 * be written, only clean ones are looked at. */
#ifndef SPW_STORE_EVICTION_ORDER_H
#define SPW_STORE_EVICTION_ORDER_H

#include <stdbool.h>

#include "store/entry_list.h"

typedef enum spw__size_class {
    SPW__CLASS_SMALL = 0,    /* only if there is nothing else, and all together */
    SPW__CLASS_MEDIUM = 1,   /* several together */
    SPW__CLASS_LARGE = 2,    /* alone */
    SPW__CLASS_OVERSIZE = 3, /* alone more than may be in memory: before all others */
    SPW__CLASS_AHEAD = 4,    /* read ahead, and dropped for nothing: when asked for */
    SPW__CLASS_COUNT = 5
} spw__size_class;

enum {
    SPW__LARGE_BYTES = 1 << 20 /* and what others are to be together */
};

typedef struct spw__eviction_order {
    uint64_t small_bytes;  /* fixed: lighter ones are SMALL */
    uint64_t target_bytes; /* fixed: others above it are OVERSIZE; 0: none */
    uint64_t uses;         /* counts them, for comparing ages */
    struct {
        spw__entry_list clean, others; /* longest unused first */
        uint64_t weight;
    } classes[SPW__CLASS_COUNT];
} spw__eviction_order;

/* All: thread: with the store's lock held. */

/* Whether such a weight is OVERSIZE. */
bool spw__order_is_oversize(const spw__eviction_order *order, uint64_t weight);
/* As the one used last. */
void spw__order_add(spw__eviction_order *order, spw_entry *entry);
void spw__order_remove(spw__eviction_order *order, spw_entry *entry);
/* Who is to leave next; of those that were read ahead only if with_ahead, of the others
 * only clean ones if only_clean. Returns: an entry, which stays in the order; NULL:
 * nobody. In ret_class of which class: those of MEDIUM and SMALL want company. */
spw_entry *spw__order_next(const spw__eviction_order *order, bool with_ahead,
                           bool only_clean, spw__size_class *ret_class);
/* Of that class, the one to leave before the others. NULL: none is left. */
spw_entry *spw__order_first(const spw__eviction_order *order, spw__size_class of,
                            bool only_clean);

#endif
