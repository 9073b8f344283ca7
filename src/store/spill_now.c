/* Writing one entry while its owner waits, who has more time than memory. */
#include "context/error.h"
#include "platform/clock.h"
#include "store/store_state.h"

/* Wait until nobody else has the entry leave. With the lock. Returns: in ret_listed
 * whether the caller has the list's reference, to be given back without the lock. */
static spw_status wait_for_turn(spw_entry *entry, bool *ret_listed, spw_error *error)
{
    spw_store *store = entry->store;
    *ret_listed = false;
    while (entry->is_leaving && !store->is_closed) {
        if (entry->turn == SPW__TURN_LEAVING) {
            /* It only waits in the list: nobody need come for it. */
            spw__leaving_remove(entry);
            *ret_listed = true;
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

/* Pack an entry into a spill. It is leaving from the beginning, so that no other leaves
 * in its place. With the lock, which is released meanwhile. */
static spw_status pack_into(spw_entry *entry, spw__spill *spill, spw_error *error)
{
    spw_payload *packed;
    entry->is_leaving = true;
    spw__entry_settle(entry);
    spw__leaving_count(entry);
    spw_status status = get_packed(entry, &packed, error);
    spw__leaving_uncount(entry);
    if (status == SPW_STATUS_OK)
        spw__spill_add(spill, entry, packed);
    else
        entry->cannot_leave = true; /* nor for the store, which would ask again */
    return status;
}

/* Takes: the lock, and gives it back. */
static spw_status write_now(spw_entry *entry, spw_error *error)
{
    spw_store *store = entry->store;
    spw__forms forms = {0};
    spw__spill *spill;
    spw_store_event event;
    spw_status status = spw__spill_create(store, 1, &spill, error);
    if (status == SPW_STATUS_OK) {
        spill->is_waited_for = true;
        status = pack_into(entry, spill, error);
        if (status != SPW_STATUS_OK)
            spw__spill_free(spill);
    }
    if (status != SPW_STATUS_OK) {
        stop_leaving(entry, &forms);
        spw__store_settle(store);
        spw__store_unlock(store);
        spw__forms_clear(store, &forms);
        return status;
    }
    spw__spill_start(spill);
    while (!spill->is_done)
        spw__store_wait(store);
    spw__store_unlock(store);
    status = spill->status;
    if (status != SPW_STATUS_OK && error != NULL)
        *error = spill->error;
    if (spw__spill_finish(spill, &event))
        spw_entry_unref(event.entry);
    return status;
}

static spw_status check_directory(const spw_store *store, const char *key,
                                  spw_error *error)
{
    if (store->segments != NULL)
        return SPW_STATUS_OK;
    return spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                          "%.100s cannot leave memory: the store has no directory",
                          key);
}

spw_status spw_entry_spill(spw_entry *entry, spw_error *error)
{
    spw_store *store = entry->store;
    bool was_listed;
    spw_status status = check_directory(store, entry->key, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__store_lock(store);
    status = wait_for_turn(entry, &was_listed, error);
    if (status == SPW_STATUS_OK && entry->forms.on_disk == NULL) {
        status = write_now(entry, error);
    } else {
        spw__entry_settle(entry);
        spw__store_unlock(store);
    }
    if (was_listed)
        spw_entry_unref(entry); /* not the last: the caller has one */
    return status;
}

spw_status spw_store_put_spilled(spw_store *store, const char *key, size_t key_size,
                                 void *object, uint64_t weight, spw_entry **ret_entry,
                                 spw_error *error)
{
    spw_entry *entry;
    spw_status status = check_directory(store, key, error);
    if (status == SPW_STATUS_OK)
        status = spw__entry_create(store, key, key_size, weight, &entry, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__store_lock(store);
    entry->is_leaving = true; /* before anybody could choose it */
    spw__entry_enter(entry, &(spw__forms){.object = object});
    status = write_now(entry, error);
    if (status != SPW_STATUS_OK) {
        store->ops.ref(store->self, object); /* stays the caller's */
        spw_store_remove(entry);
        return status;
    }
    *ret_entry = entry;
    return SPW_STATUS_OK;
}
