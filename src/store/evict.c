/* What leaves memory, and when: more than the target, or what a memory monitor asks
 * for.
 *
 * An eviction only begins here. An object goes to the owner's thread, to be packed or
 * just dropped; a packed value goes to disk from here. How much is leaving is counted
 * by packed size, since the weight that an owner gives may be wrong by much: as long as
 * one is leaving whose packed size is not known, nothing else is begun for a monitor.
 */
#include <assert.h>

#include "context/shuffled.h"
#include "platform/clock.h"
#include "store/store_state.h"

enum {
    TOGETHER_MAX = 1024,  /* in one round */
    AHEAD_PAUSE_MS = 5000 /* from when memory was so short that it was for nothing */
};

void spw__leaving_count(spw_entry *entry)
{
    spw_store *store = entry->store;
    store->unpacked++;
    store->leaving_bytes += entry->weight;
    store->leaving_weight += spw__entry_counted_weight(entry);
}

void spw__leaving_add(spw_entry *entry)
{
    spw_store *store = entry->store;
    assert(entry->turn == SPW__TURN_NONE && !spw__entry_is_in_use(entry));
    spw__entry_uncount(entry);
    spw__read_ahead_end(entry, false);
    spw__entry_count(entry);
    entry->is_leaving = true;
    entry->turn = SPW__TURN_LEAVING;
    spw__entry_list_add(&store->leaving, SPW__LINK_TURN, entry);
    spw__leaving_count(entry);
    (void)pthread_cond_signal(&store->work);
}

void spw__leaving_remove(spw_entry *entry)
{
    spw_store *store = entry->store;
    assert(entry->turn == SPW__TURN_LEAVING && entry->is_leaving);
    spw__entry_list_remove(&store->leaving, SPW__LINK_TURN, entry);
    entry->turn = SPW__TURN_NONE;
    entry->is_leaving = false;
    spw__leaving_uncount(entry);
}

void spw__leaving_uncount(spw_entry *entry)
{
    spw_store *store = entry->store;
    store->unpacked--;
    store->leaving_bytes -= entry->weight;
    store->leaving_weight -= spw__entry_counted_weight(entry);
}

bool spw__store_is_in_trouble(spw_store *store)
{
    if (store->trouble_until_ms == 0)
        return false;
    if (spw__clock_ms() < store->trouble_until_ms)
        return true;
    store->trouble_until_ms = 0;
    return false;
}

/* Have an entry that is packed already written. Returns: false if there is no memory
 * for that. */
static bool add_packed(spw_store *store, spw__spill **spill, spw_entry *entry)
{
    spw_payload *shared;
    if (*spill == NULL &&
        spw__spill_create(store, TOGETHER_MAX, spill, NULL) != SPW_STATUS_OK)
        return false;
    if (spw__payload_share(store, entry->forms.packed, &shared, NULL) != SPW_STATUS_OK)
        return false;
    spw__spill_add(*spill, entry, shared);
    return true;
}

/* Returns: whether it is leaving now. */
static bool begin_one(spw_store *store, spw_entry *entry, spw__spill **spill)
{
    spw__order_remove(&store->order, entry);
    entry->turn = SPW__TURN_NONE;
    if (entry->is_ahead)
        store->ahead_from_ms = spw__clock_ms() + AHEAD_PAUSE_MS;
    if (entry->forms.on_disk != NULL || entry->forms.object != NULL) {
        spw__leaving_add(spw_entry_ref(entry));
        return true;
    }
    if (add_packed(store, spill, entry))
        return true;
    spw__entry_settle(entry);
    return false;
}

/* Begin with who was used longest ago, and its company: as many as make up the need,
 * but small ones as many as are worth a write. While the disk is in trouble that is who
 * is there already, and so is in nobody's way. Returns: the weight that is leaving, 0
 * if nothing can. */
static uint64_t begin(spw_store *store, uint64_t need, bool with_ahead)
{
    spw__size_class of;
    spw__spill *spill = NULL;
    uint64_t weight = 0;
    unsigned count = 0;
    bool only_clean = spw__store_is_in_trouble(store);
    spw_entry *entry = spw__order_next(&store->order, with_ahead, only_clean, &of);
    while (entry != NULL && count < TOGETHER_MAX && begin_one(store, entry, &spill)) {
        weight += entry->weight;
        count++;
        if (weight >= SPW__LARGE_BYTES || (of != SPW__CLASS_SMALL && weight >= need))
            break;
        entry = spw__order_first(&store->order, of, only_clean);
    }
    if (spill != NULL)
        spw__spill_start(spill);
    return weight;
}

uint64_t spw__store_staying(const spw_store *store)
{
    return store->figures.live.weight + store->figures.packed.weight -
           store->apart_weight - store->leaving_weight;
}

uint64_t spw__store_room(const spw_store *store)
{
    uint64_t shuffled = spw__budget_shuffled(spw_context_budget(store->context));
    return store->target_bytes > shuffled ? store->target_bytes - shuffled : 0;
}

/* How much has to leave. One that is oversize goes, if it can, whatever there is. */
static uint64_t need_of(spw_store *store)
{
    uint64_t staying = spw__store_staying(store);
    if (staying > store->target_bytes)
        return staying - store->target_bytes;
    return spw__order_first(&store->order, SPW__CLASS_OVERSIZE,
                            spw__store_is_in_trouble(store)) != NULL
               ? 1
               : 0;
}

void spw__store_settle(spw_store *store)
{
    if (store->target_bytes == 0 || store->is_closed)
        return;
    while (store->leaving_bytes < store->in_flight_bytes) {
        uint64_t need = need_of(store);
        if (need == 0 || begin(store, need, false) == 0)
            break;
    }
}

int64_t spw_store_evict(spw_store *store, uint64_t excess_bytes)
{
    uint64_t weight = 0;
    spw__store_lock(store);
    uint64_t enough =
        excess_bytes < store->in_flight_bytes ? excess_bytes : store->in_flight_bytes;
    if (!store->is_closed && store->unpacked == 0 &&
        (store->leaving_bytes == 0 || store->leaving_bytes < enough))
        weight =
            begin(store, 1, true); /* what it weighs may be far from what it frees */
    spw__store_unlock(store);
    return weight > 0 && weight <= INT64_MAX ? (int64_t)weight : -1;
}

bool spw_store_is_behind(spw_store *store)
{
    spw__store_lock(store);
    const spw_store_figures *figures = &store->figures;
    bool is_behind =
        !store->is_closed && store->target_bytes > 0 &&
        store->leaving_bytes >= store->in_flight_bytes &&
        figures->live.weight + figures->packed.weight > store->target_bytes;
    spw__store_unlock(store);
    return is_behind;
}
