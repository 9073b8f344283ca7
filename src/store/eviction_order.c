/* The order of eviction: a list for each size class, in which age grows towards the
 * front. Invariant: what an entry's class follows from does not change while it is in a
 * list, and a class's weight is the sum of its entries'. */
#include "store/eviction_order.h"

#include "store/store_state.h"

/* A clean value may be so many times younger, and leaves all the same before one that
 * has to be written: else each turn through more than fits writes all of it, and finds
 * none of it in memory. */
static const uint64_t CLEAN_BEFORE = 4;

bool spw__order_is_oversize(const spw__eviction_order *order, uint64_t weight)
{
    return order->target_bytes > 0 && weight > order->target_bytes &&
           weight >= order->small_bytes;
}

static spw__size_class class_of(const spw__eviction_order *order,
                                const spw_entry *entry)
{
    uint64_t weight = entry->weight;
    if (entry->is_ahead)
        return SPW__CLASS_AHEAD;
    if (spw__order_is_oversize(order, weight))
        return SPW__CLASS_OVERSIZE;
    if (weight < order->small_bytes)
        return SPW__CLASS_SMALL;
    return weight < SPW__LARGE_BYTES ? SPW__CLASS_MEDIUM : SPW__CLASS_LARGE;
}

static spw__entry_list *list_of(spw__eviction_order *order, const spw_entry *entry)
{
    spw__size_class of = class_of(order, entry);
    return entry->forms.on_disk != NULL ? &order->classes[of].clean
                                        : &order->classes[of].others;
}

void spw__order_add(spw__eviction_order *order, spw_entry *entry)
{
    entry->last_use = ++order->uses;
    spw__entry_list_add(list_of(order, entry), SPW__LINK_TURN, entry);
    order->classes[class_of(order, entry)].weight += entry->weight;
}

void spw__order_remove(spw__eviction_order *order, spw_entry *entry)
{
    spw__entry_list_remove(list_of(order, entry), SPW__LINK_TURN, entry);
    order->classes[class_of(order, entry)].weight -= entry->weight;
}

static uint64_t age(const spw__eviction_order *order, const spw_entry *entry)
{
    return order->uses - entry->last_use;
}

/* Either may be NULL. */
static spw_entry *longest_unused(spw_entry *a, spw_entry *b)
{
    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    return a->last_use < b->last_use ? a : b;
}

spw_entry *spw__order_first(const spw__eviction_order *order, spw__size_class of,
                            bool only_clean)
{
    spw_entry *clean = order->classes[of].clean.first;
    spw_entry *other = order->classes[of].others.first;
    if (only_clean || clean == NULL || other == NULL)
        return only_clean || clean != NULL ? clean : other;
    return age(order, clean) * CLEAN_BEFORE >= age(order, other) ? clean : other;
}

spw_entry *spw__order_next(const spw__eviction_order *order, bool with_ahead,
                           bool only_clean, spw__size_class *ret_class)
{
    spw_entry *oversize = spw__order_first(order, SPW__CLASS_OVERSIZE, only_clean);
    if (oversize != NULL) {
        *ret_class = SPW__CLASS_OVERSIZE;
        return oversize;
    }
    spw_entry *ahead = spw__order_first(order, SPW__CLASS_AHEAD, only_clean);
    if (ahead != NULL && with_ahead) {
        *ret_class = SPW__CLASS_AHEAD;
        return ahead;
    }
    spw_entry *large = spw__order_first(order, SPW__CLASS_LARGE, only_clean);
    spw_entry *next =
        longest_unused(large, spw__order_first(order, SPW__CLASS_MEDIUM, only_clean));
    if (next != NULL) {
        *ret_class = next == large ? SPW__CLASS_LARGE : SPW__CLASS_MEDIUM;
        return next;
    }
    *ret_class = SPW__CLASS_SMALL;
    return spw__order_first(order, SPW__CLASS_SMALL, only_clean);
}
