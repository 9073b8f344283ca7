/* Reading ahead: the bytes of a value for which somebody is about to come, by a thread
 * that does nothing else at the time. They are packed then, and still on disk, so that
 * dropping them costs nothing. Who comes earlier reads for itself. */
#include "context/allocate.h"
#include "platform/clock.h"
#include "store/read_back.h"
#include "store/store_state.h"

struct spw__read_ahead {
    spw__job job;
    spw_entry *entry;     /* one reference */
    spw_payload *on_disk; /* references of its own, so that the files stay */
    uint64_t bytes;       /* charged in ahead_bytes, until it is recalled */
    bool is_recalled;     /* guarded by the store's lock */
    bool is_direct;       /* past the system's cache; once its turn has come */
};

static void run(spw__job *job);

static uint64_t bytes_in_memory(const spw_payload *on_disk)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < spw_payload_count(on_disk); i++) {
        const spw_slice *slice = &spw_payload_slices(on_disk)[i];
        bytes += slice->codec != SPW_CODEC_NONE ? slice->plain_size : slice->size;
    }
    return bytes;
}

/* Whether any may be begun with. With the lock. */
static bool is_time(const spw_store *store)
{
    return !store->is_closed && store->figures.on_disk.count > 0 &&
           store->ahead_bytes < store->read_ahead_bytes &&
           (store->target_bytes == 0 ||
            spw__store_staying(store) <= spw__store_room(store)) &&
           (store->ahead_from_ms == 0 || spw__clock_ms() >= store->ahead_from_ms);
}

static bool is_fit(const spw_entry *entry)
{
    const spw__forms *forms = &entry->forms;
    const spw__eviction_order *order = &entry->store->order;
    return forms->on_disk != NULL && forms->packed == NULL && forms->object == NULL &&
           !spw__entry_is_in_use(entry) && !entry->is_removed &&
           entry->weight >= order->small_bytes &&
           !spw__order_is_oversize(order, entry->weight);
}

/* With the lock. Returns: NULL if it is not to be. */
static spw__read_ahead *begin(spw_entry *entry)
{
    spw_store *store = entry->store;
    if (!is_time(store) || !is_fit(entry))
        return NULL;
    uint64_t bytes = bytes_in_memory(entry->forms.on_disk);
    if (bytes > store->read_ahead_bytes - store->ahead_bytes)
        return NULL;
    spw__read_ahead *self =
        spw__allocate(store->context, sizeof *self, _Alignof(spw__read_ahead));
    if (self == NULL)
        return NULL;
    *self = (spw__read_ahead){.job.run = run, .bytes = bytes};
    if (spw__payload_share(store, entry->forms.on_disk, &self->on_disk, NULL) !=
        SPW_STATUS_OK) {
        spw__release(store->context, self, sizeof *self, _Alignof(spw__read_ahead));
        return NULL;
    }
    self->entry = spw_entry_ref(entry);
    return self;
}

bool spw_store_reads_ahead(spw_store *store)
{
    spw__store_lock(store);
    bool is_it = is_time(store);
    spw__store_unlock(store);
    return is_it;
}

bool spw_entry_read_ahead(spw_entry *entry)
{
    spw_store *store = entry->store;
    spw__store_lock(store);
    spw__read_ahead *self = begin(entry);
    if (self != NULL) {
        entry->ahead = self;
        entry->is_coming = true;
        store->ahead_bytes += self->bytes;
        store->reading_ahead++;
        spw__store_run(store, &self->job, SPW__JOB_PATIENT);
    }
    spw__store_unlock(store);
    return self != NULL;
}

void spw__read_ahead_recall(spw_entry *entry)
{
    spw__read_ahead *self = entry->ahead;
    if (self == NULL)
        return;
    self->is_recalled = true;
    entry->ahead = NULL;
    entry->is_coming = false;
    entry->store->ahead_bytes -= self->bytes;
}

void spw__read_ahead_end(spw_entry *entry, bool is_used)
{
    if (!entry->is_ahead)
        return;
    spw_store_figures *figures = &entry->store->figures;
    spw__eviction_order *order = &entry->store->order;
    uint64_t bytes = spw_payload_bytes(entry->forms.packed);
    /* It is among others of its class, which is another one from now on. */
    bool is_waiting = entry->turn == SPW__TURN_WAITING;
    if (is_waiting)
        spw__order_remove(order, entry);
    entry->is_ahead = false;
    if (is_waiting)
        spw__order_add(order, entry);
    entry->store->ahead_bytes -= bytes;
    if (is_used)
        figures->ahead_used_bytes += bytes;
    else
        figures->ahead_dropped_bytes += bytes;
}

/* With the lock. Takes: packed, which is NULL if it could not be read: whoever comes
 * tries again, and is told. Returns: in ret_rest what has no place in the entry. */
static void finish(spw__read_ahead *self, spw_payload *packed, spw__forms *ret_rest)
{
    spw_entry *entry = self->entry;
    spw_store *store = entry->store;
    entry->is_coming = false;
    store->ahead_bytes -= self->bytes;
    if (packed != NULL) {
        spw__entry_uncount(entry);
        entry->forms.packed = packed;
        entry->is_ahead = true;
        spw__entry_count(entry);
        store->ahead_bytes += spw_payload_bytes(packed);
        store->figures.ahead_bytes += spw_payload_bytes(packed);
    }
    spw__entry_detach(entry, false, ret_rest); /* if it was removed meanwhile */
    spw__entry_settle(entry);
    (void)pthread_cond_broadcast(&store->changed);
}

/* Whether it is still to be read, now that its turn has come. */
static bool is_wanted(spw__read_ahead *self)
{
    spw_entry *entry = self->entry;
    spw_store *store = entry->store;
    spw__store_lock(store);
    if (!self->is_recalled)
        entry->ahead = NULL;
    self->is_direct = spw__disk_is_fast(&store->speed, spw__clock_ms());
    bool is_it = !self->is_recalled && !entry->is_removed && !store->is_closed;
    spw__store_unlock(store);
    return is_it;
}

static void run(spw__job *job)
{
    spw__read_ahead *self = (spw__read_ahead *)job;
    spw_entry *entry = self->entry;
    spw_store *store = entry->store;
    spw_payload *packed = NULL;
    spw__read_back_figures figures = {0};
    spw__forms rest = {0};
    bool is_read = is_wanted(self) &&
                   spw__read_back(store->context, self->on_disk, self->is_direct,
                                  &packed, &figures, NULL) == SPW_STATUS_OK;
    spw__store_lock(store);
    store->figures.reads += is_read;
    store->figures.read_bytes += figures.read_bytes;
    store->figures.read_ns += figures.read_ns;
    store->figures.decompress_ns += figures.decompress_ns;
    if (!self->is_recalled)
        finish(self, packed, &rest);
    spw__store_unlock(store);
    spw__forms_clear(store, &rest);
    spw_payload_free(self->on_disk);
    spw__release(store->context, self, sizeof *self, _Alignof(spw__read_ahead));
    spw__store_lock(store);
    store->reading_ahead--;
    (void)pthread_cond_broadcast(&store->changed);
    spw__store_unlock(store);
    spw_entry_unref(entry);
}
