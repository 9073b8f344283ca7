/* Writing one entry while its owner waits, who has more time than memory. */
#include "context/error.h"
#include "platform/clock.h"
#include "store/store_state.h"

/* Wait until nobody else has the entry leave. With the lock. */
static spw_status wait_for_turn(spw_entry *entry, spw_error *error)
{
    spw_store *store = entry->store;
    while (entry->is_leaving && !store->is_closed) {
        if (entry->turn == SPW__TURN_LEAVING) {
            /* It only waits in the list: nobody need come for it. */
            spw__leaving_remove(entry);
            spw__store_unlock(store);
            spw_entry_unref(entry); /* the list's: the caller has one */
            spw__store_lock(store);
        } else {
            spw__store_wait(store);
        }
    }
    return store->is_closed
               ? spw__error_set(error, SPW_STATUS_CLOSED, 0,
                                "the store of %.100s was closed", entry->key)
               : SPW_STATUS_OK;
}

/* A payload of the entry, which is leaving: the lock is released while it is packed.
 * Returns: a payload of the caller's. */
static spw_status get_packed(spw_entry *entry, spw_payload **ret_packed,
                             spw_error *error)
{
    spw_store *store = entry->store;
    if (entry->lost != SPW_STATUS_OK)
        return spw__entry_say_lost(entry, error);
    if (!spw__entry_has_any(entry))
        return spw__error_set(error, SPW_STATUS_CLOSED, 0, "%.100s was removed",
                              entry->key);
    if (entry->forms.object == NULL)
        return spw__payload_share(store, entry->forms.packed, ret_packed, error);
    void *object = entry->forms.object; /* stays, since the entry is leaving */
    spw__store_unlock(store);
    uint64_t before = spw__clock_ns();
    spw_status status = store->ops.pack(store->self, object, ret_packed, error);
    uint64_t took = spw__clock_ns() - before;
    spw__store_lock(store);
    store->figures.pack_ns += took;
    store->figures.packs++;
    return status;
}

static void stop_leaving(spw_entry *entry, spw__forms *ret_forms)
{
    entry->is_leaving = false;
    spw__entry_detach(entry, false, ret_forms); /* if it was removed meanwhile */
    spw__entry_settle(entry);
    (void)pthread_cond_broadcast(&entry->store->changed);
}

/* With the lock. Returns: in ret_spill one that is written, or not: it says so. */
static spw_status write_now(spw_entry *entry, spw__spill **ret_spill, spw_error *error)
{
    spw_store *store = entry->store;
    spw_payload *packed;
    spw__spill *spill;
    spw_status status = spw__spill_create(store, 1, &spill, error);
    if (status != SPW_STATUS_OK)
        return status;
    spill->is_waited_for = true;
    status = get_packed(entry, &packed, error);
    if (status != SPW_STATUS_OK) {
        spw__spill_free(spill);
        return status;
    }
    spw__spill_add(spill, entry, packed);
    spw__spill_start(spill);
    while (!spill->is_done)
        spw__store_wait(store);
    *ret_spill = spill;
    return SPW_STATUS_OK;
}

static spw_status spill_entry(spw_entry *entry, spw_error *error)
{
    spw_store *store = entry->store;
    spw__forms forms = {0};
    spw__spill *spill;
    spw_store_event event;
    spw__store_lock(store);
    spw_status status = wait_for_turn(entry, error);
    if (status != SPW_STATUS_OK || entry->forms.on_disk != NULL) {
        spw__entry_settle(entry);
        spw__store_unlock(store);
        return status;
    }
    entry->is_leaving = true;
    spw__entry_settle(entry);
    status = write_now(entry, &spill, error);
    if (status != SPW_STATUS_OK) {
        stop_leaving(entry, &forms);
        spw__store_unlock(store);
        spw__forms_clear(store, &forms);
        return status;
    }
    spw__store_unlock(store);
    status = spill->status;
    if (status != SPW_STATUS_OK && error != NULL)
        *error = spill->error;
    if (spw__spill_finish(spill, &event))
        spw_entry_unref(event.entry);
    return status;
}

spw_status spw_entry_spill(spw_entry *entry, spw_error *error)
{
    if (entry->store->segments == NULL)
        return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                              "%.100s cannot leave memory: the store has no directory",
                              entry->key);
    return spill_entry(entry, error);
}
