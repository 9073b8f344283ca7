/* Getting the object of an entry, wherever it is: one thread unpacks it, and those who
 * come meanwhile wait for that. */
#include <assert.h>

#include "context/error.h"
#include "platform/clock.h"
#include "store/read_back.h"
#include "store/store_state.h"

/* Reading back, on a thread of the store. Lives on the stack of who waits for it. */
typedef struct reading {
    spw__job job;
    spw_store *store;
    spw_payload *on_disk; /* references of its own, so that the files stay */
    spw_payload *packed;  /* the result */
    spw__read_back_figures figures;
    bool is_direct;
    spw_status status;
    spw_error error;
    bool is_done; /* guarded by the store's lock */
} reading;

static void run(spw__job *job)
{
    reading *self = (reading *)job;
    spw_store *store = self->store;
    self->status = spw__read_back(store->context, self->on_disk, self->is_direct,
                                  &self->packed, &self->figures, &self->error);
    spw__store_lock(store);
    self->is_done = true;
    (void)pthread_cond_broadcast(&store->changed);
    spw__store_unlock(store);
}

/* With the lock, which is released meanwhile. Returns: in ret_packed a payload of the
 * caller's. */
static spw_status read_entry(spw_entry *entry, spw_payload **ret_packed,
                             spw_error *error)
{
    spw_store *store = entry->store;
    reading self = {.job.run = run,
                    .store = store,
                    .is_direct = spw__disk_is_fast(&store->speed, spw__clock_ms())};
    spw_status status =
        spw__payload_share(store, entry->forms.on_disk, &self.on_disk, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__store_run(store, &self.job, SPW__JOB_URGENT);
    while (!self.is_done)
        spw__store_wait(store);
    store->figures.reads++;
    store->figures.read_bytes += self.figures.read_bytes;
    store->figures.read_ns += self.figures.read_ns;
    store->figures.decompress_ns += self.figures.decompress_ns;
    spw__store_unlock(store);
    spw_payload_free(self.on_disk);
    spw__store_lock(store);
    if (self.status != SPW_STATUS_OK) {
        if (error != NULL)
            *error = self.error;
        return self.status;
    }
    *ret_packed = self.packed;
    return SPW_STATUS_OK;
}

/* What is on disk cannot be read, and there is nothing else: the entry is lost. */
static void lose(spw_entry *entry, spw_status status, spw__forms *ret_forms)
{
    assert(entry->forms.object == NULL && entry->forms.packed == NULL);
    spw__entry_uncount(entry);
    *ret_forms = entry->forms;
    entry->forms = (spw__forms){0};
    entry->lost = status;
    spw__entry_count(entry);
    entry->store->figures.losses++;
}

/* Give an entry its object. Returns: in ret_forms the packed one, which has served; or
 * the object, if somebody was faster. */
static void install(spw_entry *entry, void *object, spw__forms *ret_forms)
{
    if (entry->forms.object != NULL) {
        ret_forms->object = object;
        return;
    }
    spw__entry_uncount(entry);
    spw__read_ahead_end(entry, true);
    ret_forms->packed = entry->forms.packed;
    entry->forms.packed = NULL;
    entry->forms.object = object;
    spw__entry_count(entry);
}

static bool is_lost_by(spw_status status)
{
    return status == SPW_STATUS_IO || status == SPW_STATUS_CORRUPT;
}

/* Unpack an entry that we alone have coming. With the lock, which is released
 * meanwhile. */
static spw_status unpack(spw_entry *entry, spw_error *error)
{
    spw_store *store = entry->store;
    spw_payload *read = NULL;
    void *object = NULL;
    uint64_t took = 0;
    spw__forms rest = {0};
    spw_status status = SPW_STATUS_OK;
    if (entry->forms.packed == NULL) {
        status = read_entry(entry, &read, error);
        if (is_lost_by(status) && entry->forms.object == NULL)
            lose(entry, status, &rest);
    }
    const spw_payload *packed = read != NULL ? read : entry->forms.packed;
    spw__store_unlock(store);
    if (status == SPW_STATUS_OK) {
        uint64_t before = spw__clock_ns();
        status = store->ops.unpack(store->self, packed, &object, error);
        took = spw__clock_ns() - before;
        spw_payload_free(read);
    }
    spw__store_lock(store);
    if (object != NULL) {
        store->figures.unpacks++;
        store->figures.unpack_ns += took;
        install(entry, object, &rest);
    }
    spw__store_unlock(store);
    spw__forms_clear(store, &rest);
    spw__store_lock(store);
    return status;
}

static void pin(spw_entry *entry)
{
    entry->pins++;
    if (entry->turn == SPW__TURN_LEAVING) {
        spw__leaving_remove(entry);
        spw__store_unlock(entry->store);
        spw_entry_unref(entry); /* the list's; not the last, since the caller has one */
        spw__store_lock(entry->store);
    }
    spw__entry_settle(entry);
}

void spw_entry_unpin(spw_entry *entry)
{
    spw_store *store = entry->store;
    spw__forms forms = {0};
    spw__store_lock(store);
    assert(entry->pins > 0);
    entry->pins--;
    bool is_for_work = spw__entry_goes_by_work(entry);
    if (is_for_work)
        spw__leaving_add(spw_entry_ref(entry));
    else
        spw__entry_detach(entry, false, &forms);
    spw__entry_settle(entry);
    spw__store_settle(store);
    spw__store_unlock(store);
    spw__forms_clear(store, &forms);
}

/* With the lock, and pinned. */
static spw_status wait_for_object(spw_entry *entry, spw_error *error)
{
    spw_store *store = entry->store;
    while (entry->forms.object == NULL) {
        if (entry->lost != SPW_STATUS_OK)
            return spw__entry_say_lost(entry, error);
        if (!spw__entry_has_any(entry))
            return spw__error_set(error, SPW_STATUS_CLOSED, 0, "%.100s was removed",
                                  entry->key);
        if (store->is_closed)
            return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                                  "the store of %.100s was closed", entry->key);
        spw__read_ahead_recall(entry);
        if (entry->is_coming) {
            spw__store_wait(store);
            continue;
        }
        entry->is_coming = true;
        spw_status status = unpack(entry, error);
        entry->is_coming = false;
        (void)pthread_cond_broadcast(&store->changed);
        if (status != SPW_STATUS_OK)
            return status;
    }
    return SPW_STATUS_OK;
}

spw_status spw_entry_acquire(spw_entry *entry, void **ret_object, spw_error *error)
{
    spw_store *store = entry->store;
    spw__store_lock(store);
    pin(entry);
    spw_status status = wait_for_object(entry, error);
    void *object = entry->forms.object;
    spw__store_settle(store);
    spw__store_unlock(store);
    if (status != SPW_STATUS_OK) {
        spw_entry_unpin(entry);
        return status;
    }
    store->ops.ref(store->self, object); /* pinned, and so it is still there */
    *ret_object = object;
    return SPW_STATUS_OK;
}

void *spw_entry_try_acquire(spw_entry *entry)
{
    spw_store *store = entry->store;
    spw__store_lock(store);
    void *object = entry->forms.object;
    if (object != NULL)
        pin(entry);
    spw__store_unlock(store);
    if (object != NULL)
        store->ops.ref(store->self, object);
    return object;
}

void spw_entry_revive(spw_entry *entry, void *object)
{
    spw_store *store = entry->store;
    spw__forms rest = {.object = object};
    spw__store_lock(store);
    if (entry->forms.object == NULL && !entry->is_removed &&
        entry->lost == SPW_STATUS_OK && !store->is_closed && !entry->is_coming &&
        !entry->is_leaving) {
        rest = (spw__forms){0};
        install(entry, object, &rest);
        spw__entry_settle(entry);
        spw__store_settle(store);
    }
    spw__store_unlock(store);
    spw__forms_clear(store, &rest);
}
