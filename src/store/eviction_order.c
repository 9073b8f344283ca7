/* The order of eviction: a list for each size class, in which age grows towards the
 * front. Invariant: an entry is in the list of the class that its weight had when it
 * was added, and a class's weight is the sum of its entries'. */
#include "store/eviction_order.h"

#include "store/store_state.h"

static spw__size_class class_of(const spw__eviction_order *order, uint64_t weight)
{
    if (weight < order->small_bytes)
        return SPW__CLASS_SMALL;
    return weight < SPW__LARGE_BYTES ? SPW__CLASS_MEDIUM : SPW__CLASS_LARGE;
}

void spw__order_add(spw__eviction_order *order, spw_entry *entry)
{
    entry->last_use = ++order->uses;
    spw__size_class of = class_of(order, entry->weight);
    spw__entry_list_add(&order->classes[of].entries, SPW__LINK_TURN, entry);
    order->classes[of].weight += entry->weight;
}

void spw__order_remove(spw__eviction_order *order, spw_entry *entry)
{
    spw__size_class of = class_of(order, entry->weight);
    spw__entry_list_remove(&order->classes[of].entries, SPW__LINK_TURN, entry);
    order->classes[of].weight -= entry->weight;
}

spw_entry *spw__order_next(const spw__eviction_order *order, spw__size_class *ret_class)
{
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
