/* The order of eviction: a list for each size class, in which age grows towards the
 * front. Invariant: what an entry's class follows from does not change while it is in a
 * list, and a class's weight is the sum of its entries'. */
#include "store/eviction_order.h"

#include "store/store_state.h"

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

void spw__order_add(spw__eviction_order *order, spw_entry *entry)
{
    entry->last_use = ++order->uses;
    spw__size_class of = class_of(order, entry);
    spw__entry_list_add(&order->classes[of].entries, SPW__LINK_TURN, entry);
    order->classes[of].weight += entry->weight;
}

void spw__order_remove(spw__eviction_order *order, spw_entry *entry)
{
    spw__size_class of = class_of(order, entry);
    spw__entry_list_remove(&order->classes[of].entries, SPW__LINK_TURN, entry);
    order->classes[of].weight -= entry->weight;
}

spw_entry *spw__order_next(const spw__eviction_order *order, bool with_ahead,
                           spw__size_class *ret_class)
{
    spw_entry *oversize = order->classes[SPW__CLASS_OVERSIZE].entries.first;
    spw_entry *ahead = order->classes[SPW__CLASS_AHEAD].entries.first;
    if (oversize != NULL) {
        *ret_class = SPW__CLASS_OVERSIZE;
        return oversize;
    }
    if (ahead != NULL && with_ahead) {
        *ret_class = SPW__CLASS_AHEAD;
        return ahead;
    }
    spw_entry *medium = order->classes[SPW__CLASS_MEDIUM].entries.first;
    spw_entry *large = order->classes[SPW__CLASS_LARGE].entries.first;
    if (large != NULL && (medium == NULL || large->last_use < medium->last_use)) {
        *ret_class = SPW__CLASS_LARGE;
        return large;
    }
    if (medium != NULL) {
        *ret_class = SPW__CLASS_MEDIUM;
        return medium;
    }
    *ret_class = SPW__CLASS_SMALL;
    return order->classes[SPW__CLASS_SMALL].entries.first;
}

spw_entry *spw__order_first(const spw__eviction_order *order, spw__size_class of)
{
    return order->classes[of].entries.first;
}
