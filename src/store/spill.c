/* Spills: rounds of writing. One is made where an eviction begins, written on a thread
 * of the store, and finished on the owner's, where what has left memory is let go of.
 */
#include <assert.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/reclaim.h"
#include "platform/clock.h"
#include "store/spill_writer.h"
#include "store/store_state.h"

/* After a disk was full or failed, it is asked again when space was given back, or
 * then: others use it too. */
static const uint64_t TROUBLE_MS = 30000;

static void run(spw__job *job);

static size_t spill_bytes(size_t capacity)
{
    return sizeof(spw__spill) + capacity * sizeof(spw__spill_item);
}

spw_status spw__spill_create(spw_store *store, size_t capacity, spw__spill **ret_spill,
                             spw_error *error)
{
    spw__spill *spill =
        spw__allocate(store->context, spill_bytes(capacity), _Alignof(spw__spill));
    if (spill == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory to spill");
    *spill = (spw__spill){.job.run = run, .store = store, .capacity = capacity};
    *ret_spill = spill;
    return SPW_STATUS_OK;
}

void spw__spill_add(spw__spill *spill, spw_entry *entry, spw_payload *packed)
{
    spw_store *store = spill->store;
    assert(spill->count < spill->capacity && entry->turn == SPW__TURN_NONE);
    uint64_t bytes = spw_payload_bytes(packed);
    spill->items[spill->count++] =
        (spw__spill_item){.entry = spw_entry_ref(entry), .packed = packed};
    spill->bytes += bytes;
    entry->is_leaving = true;
    store->leaving_bytes += bytes;
    store->leaving_weight += spw__entry_counted_weight(entry);
}

void spw__spill_free(spw__spill *spill)
{
    for (size_t i = 0; i < spill->count; i++) {
        spw_payload_free(spill->items[i].packed);
        spw_entry_unref(spill->items[i].entry);
    }
    spw__release(spill->store->context, spill, spill_bytes(spill->capacity),
                 _Alignof(spw__spill));
}

void spw__spill_start(spw__spill *spill)
{
    spw_store *store = spill->store;
    assert(spill->count > 0);
    store->spills++;
    spw__budget_add(spw_context_budget(store->context), SPW_CHARGE_SPILLING,
                    spill->bytes);
    spw__store_run(store, &spill->job, SPW__JOB_PATIENT);
}

static void run(spw__job *job)
{
    spw__spill *spill = (spw__spill *)job;
    spw_store *store = spill->store;
    spw__store_lock(store);
    bool is_closed = store->is_closed;
    spill->speed = store->speed;
    spw__store_unlock(store);
    if (is_closed)
        spill->status =
            spw__error_set(&spill->error, SPW_STATUS_CLOSED, 0, "the store was closed");
    else
        spill->status = spw__spill_write(spill, &spill->error);
    spw__store_lock(store);
    store->speed = spill->speed; /* that of two at a time will do */
    spill->is_done = true;
    if (!spill->is_waited_for) {
        if (store->finished != NULL)
            store->finished_last->next = spill;
        else
            store->finished = spill;
        store->finished_last = spill;
        (void)pthread_cond_signal(&store->work);
    }
    (void)pthread_cond_broadcast(&store->changed);
    spw__store_unlock(store);
}

/* Give an entry what was written of it, if anything was, and take from it what may go.
 */
static void finish_item(spw_store *store, spw__spill_item *item, spw__forms *ret_forms)
{
    spw_entry *entry = item->entry;
    entry->is_leaving = false;
    store->leaving_weight -= spw__entry_counted_weight(entry);
    if (item->on_disk != NULL) {
        assert(entry->forms.on_disk == NULL);
        spw__entry_uncount(entry);
        entry->forms.on_disk = item->on_disk;
        entry->forms.range = item->range;
        item->on_disk = NULL;
        spw__entry_count(entry);
        store->figures.writes++;
    }
    spw__entry_detach(entry, true, ret_forms);
    spw__entry_settle(entry);
}

bool spw__store_note_disk(spw_store *store, spw_status status)
{
    if (status == SPW_STATUS_OK)
        store->is_trouble_told = store->is_trouble_logged = false;
    if (status == SPW_STATUS_OK || status == SPW_STATUS_CLOSED)
        return false;
    store->trouble_until_ms = spw__clock_ms() + TROUBLE_MS;
    store->figures.failures++;
    return true;
}

bool spw__spill_finish(spw__spill *spill, spw_store_event *ret_event)
{
    spw_store *store = spill->store;
    spw_status status = spill->status;
    spw__store_lock(store);
    /* Who waits is told by the answer, and says it of one value, not of the disk. */
    bool is_news = spw__store_note_disk(store, status) && !spill->is_waited_for &&
                   !store->is_trouble_told;
    if (is_news)
        store->is_trouble_told = true;
    store->figures.written_bytes += spill->written_bytes;
    store->figures.write_ns += spill->write_ns;
    store->figures.compress_ns += spill->compress_ns;
    if (status != SPW_STATUS_OK || spw__segments_are_due(store->segments))
        spw__store_collect_later(store); /* what was reserved in vain; or crowds */
    spw__store_unlock(store);
    for (size_t i = 0; i < spill->count; i++) {
        spw__forms forms;
        spw__store_lock(store);
        finish_item(store, &spill->items[i], &forms);
        spw__store_unlock(store);
        spw__forms_clear(store, &forms);
    }
    *ret_event = (spw_store_event){.kind = SPW_STORE_LEFT};
    if (is_news) {
        ret_event->kind = SPW_STORE_FAILED;
        ret_event->entry = spw_entry_ref(spill->items[0].entry);
        ret_event->error = spill->error;
    }
    spw_budget_release(spw_context_budget(store->context), SPW_CHARGE_SPILLING,
                       spill->bytes);
    uint64_t bytes = spill->bytes;
    spw__spill_free(spill);
    /* Only now has memory been given back. */
    spw__store_lock(store);
    store->leaving_bytes -= bytes;
    store->spills--;
    (void)pthread_cond_broadcast(&store->changed);
    if (store->is_closed)
        (void)pthread_cond_broadcast(&store->work);
    spw__store_settle(store);
    spw__store_unlock(store);
    return status == SPW_STATUS_OK || is_news;
}
