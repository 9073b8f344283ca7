/* What only the owner's threads may do: pack, and let go of objects. */
#include <errno.h>
#include <time.h>

#include "context/error.h"
#include "platform/clock.h"
#include "store/store_state.h"

/* Entries that are packed, and then written, together. */
enum { TOGETHER_MAX = 256 };

/* Take the next one off the list. It goes on leaving, and counts as unpacked. Takes
 * over the list's reference. */
static spw_entry *take(spw_store *store)
{
    spw_entry *entry = store->leaving.first;
    spw__entry_list_remove(&store->leaving, SPW__LINK_TURN, entry);
    entry->turn = SPW__TURN_NONE;
    return entry;
}

/* Let an entry go that needs not be packed, since it is on disk, or was removed. The
 * lock is released meanwhile. */
static void let_go(spw_store *store, spw_entry *entry)
{
    spw__forms forms;
    entry->is_leaving = false;
    spw__entry_detach(entry, true, &forms);
    if (!entry->is_removed && (forms.object != NULL || forms.packed != NULL))
        store->figures.drops++;
    spw__store_unlock(store);
    spw__forms_clear(store, &forms);
    spw__store_lock(store);
    spw__leaving_uncount(entry);
    spw__entry_settle(entry);
    (void)pthread_cond_broadcast(&store->changed);
    spw__store_settle(store);
    spw__store_unlock(store);
    spw_entry_unref(entry);
    spw__store_lock(store);
}

static bool is_to_pack(const spw_entry *entry)
{
    return !entry->is_removed && entry->forms.on_disk == NULL &&
           entry->forms.object != NULL;
}

/* Pack one entry into a spill. The lock is released meanwhile. Returns: whether it
 * was packed; if not, in ret_event that it cannot be. */
static bool pack_one(spw_store *store, spw_entry *entry, spw__spill *spill,
                     spw_store_event *ret_event)
{
    spw_payload *packed = NULL;
    void *object = entry->forms.object; /* stays, since the entry is leaving */
    spw__store_unlock(store);
    uint64_t before = spw__clock_ns();
    spw_status status =
        store->ops.pack(store->self, object, &packed, &ret_event->error);
    uint64_t took = spw__clock_ns() - before;
    spw__store_lock(store);
    store->figures.pack_ns += took;
    store->figures.packs++;
    if (status == SPW_STATUS_OK) {
        spw__leaving_uncount(entry);
        spw__spill_add(spill, entry, packed);
        return true;
    }
    spw__forms forms;
    entry->is_leaving = false;
    entry->cannot_leave = true;
    store->figures.failures++;
    spw__entry_detach(entry, false, &forms); /* if it was removed meanwhile */
    spw__store_unlock(store);
    spw__forms_clear(store, &forms);
    spw__store_lock(store);
    spw__leaving_uncount(entry);
    (void)pthread_cond_broadcast(&store->changed);
    if (!entry->is_removed) {
        ret_event->kind = SPW_STORE_FAILED;
        ret_event->entry = spw_entry_ref(entry);
    }
    return false;
}

/* Pack those that are next and belong together, and have them written. The lock is
 * released meanwhile. Returns: whether there is an event. */
static bool pack_some(spw_store *store, spw_store_event *ret_event)
{
    spw__spill *spill;
    spw_error error;
    if (spw__spill_create(store, TOGETHER_MAX, &spill, &error) != SPW_STATUS_OK) {
        spw_entry *entry = take(store);
        entry->is_leaving = false;
        spw__leaving_uncount(entry);
        spw__entry_settle(entry);
        (void)pthread_cond_broadcast(&store->changed);
        *ret_event =
            (spw_store_event){.kind = SPW_STORE_FAILED, .entry = entry, .error = error};
        return true;
    }
    bool is_well = true;
    while (is_well && spill->count < TOGETHER_MAX && spill->bytes < SPW__LARGE_BYTES &&
           store->leaving.first != NULL && is_to_pack(store->leaving.first)) {
        spw_entry *entry = take(store);
        is_well = pack_one(store, entry, spill, ret_event);
        spw__store_unlock(store);
        spw_entry_unref(entry);
        spw__store_lock(store);
    }
    if (spill->count > 0)
        spw__spill_start(spill);
    else
        spw__spill_free(spill);
    return ret_event->kind != SPW_STORE_NOTHING;
}

/* Returns: whether there is an event. The lock is released meanwhile. */
static bool leave(spw_store *store, spw_store_event *ret_event)
{
    if (is_to_pack(store->leaving.first) && !store->is_closed)
        return pack_some(store, ret_event);
    spw_entry *entry = take(store);
    bool is_removed = entry->is_removed;
    let_go(store, entry);
    ret_event->kind = SPW_STORE_LEFT;
    return !is_removed;
}

static bool finish_one(spw_store *store, spw_store_event *ret_event)
{
    spw__spill *spill = store->finished;
    store->finished = spill->next;
    spw__store_unlock(store);
    bool is_event = spw__spill_finish(spill, ret_event);
    spw__store_lock(store);
    return is_event;
}

/* Returns: false when time is up. */
static bool wait_until(spw_store *store, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    return pthread_cond_timedwait(&store->work, &store->lock, &until) != ETIMEDOUT;
}

void spw_store_work(spw_store *store, int timeout_ms, spw_store_event *ret_event)
{
    uint64_t deadline_ns =
        timeout_ms < 0 ? 0 : spw__clock_ns() + (uint64_t)timeout_ms * 1000000;
    bool is_event = false;
    *ret_event = (spw_store_event){0};
    spw__store_lock(store);
    while (!is_event) {
        if (spw__store_has_due(store)) {
            spw__store_unlock(store);
            spw__store_lock(store);
        } else if (store->finished != NULL) {
            is_event = finish_one(store, ret_event);
        } else if (store->leaving.first != NULL) {
            is_event = leave(store, ret_event);
        } else if (store->is_closed && store->spills == 0) {
            ret_event->kind = SPW_STORE_CLOSED;
            is_event = true;
        } else if (timeout_ms < 0) {
            (void)pthread_cond_wait(&store->work, &store->lock);
        } else if (timeout_ms == 0 || !wait_until(store, deadline_ns)) {
            break;
        }
    }
    spw__store_unlock(store);
}
