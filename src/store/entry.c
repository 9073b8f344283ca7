/* Entries: what one has, who is at it, and where it stands among those that may leave.
 *
 * Invariant, whenever the lock is free: an entry is in the store's order if and only if
 * it may leave; it counts in figures exactly where its forms say. */
#include <assert.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "store/adopt.h"
#include "store/arrival.h"

static size_t entry_bytes(const spw_entry *entry)
{
    return sizeof *entry + entry->key_size + 1;
}

static bool is_in_memory(const spw__forms *forms)
{
    return forms->object != NULL || forms->packed != NULL;
}

bool spw__entry_has_any(const spw_entry *entry)
{
    return is_in_memory(&entry->forms) || entry->forms.on_disk != NULL;
}

bool spw__entry_is_in_use(const spw_entry *entry)
{
    return entry->pins > 0 || entry->is_coming || entry->is_leaving;
}

static bool may_leave(const spw_entry *entry)
{
    return is_in_memory(&entry->forms) && !spw__entry_is_in_use(entry) &&
           !entry->is_removed && !entry->cannot_leave && entry->store->segments != NULL;
}

static bool stands_apart(const spw_entry *entry)
{
    return entry->is_ahead ||
           spw__order_is_oversize(&entry->store->order, entry->weight);
}

uint64_t spw__entry_counted_weight(const spw_entry *entry)
{
    return stands_apart(entry) ? 0 : entry->weight;
}

void spw__entry_settle(spw_entry *entry)
{
    spw__eviction_order *order = &entry->store->order;
    bool is_waiting = entry->turn == SPW__TURN_WAITING;
    if (may_leave(entry) == is_waiting)
        return;
    if (is_waiting)
        spw__order_remove(order, entry);
    else
        spw__order_add(order, entry);
    entry->turn = is_waiting ? SPW__TURN_NONE : SPW__TURN_WAITING;
}

/* ----- what it has ----- */

static void tier_add(spw_store_tier *tier, uint64_t sign, uint64_t weight,
                     uint64_t bytes)
{
    tier->count += sign;
    tier->weight += sign * weight;
    tier->bytes += sign * bytes;
}

/* sign: 1, or the number that added to it makes 0. */
static void count(spw_entry *entry, uint64_t sign)
{
    spw_store_figures *figures = &entry->store->figures;
    const spw__forms *forms = &entry->forms;
    uint64_t weight = entry->weight;
    if (forms->object != NULL)
        tier_add(&figures->live, sign, weight, weight);
    else if (forms->packed != NULL)
        tier_add(&figures->packed, sign, weight, spw_payload_bytes(forms->packed));
    else if (forms->on_disk != NULL)
        tier_add(&figures->on_disk, sign, weight, forms->range.bytes);
    if (is_in_memory(forms) && stands_apart(entry))
        entry->store->apart_weight += sign * weight;
    if (is_in_memory(forms) && forms->on_disk != NULL)
        tier_add(&figures->clean, sign, weight, forms->range.bytes);
}

void spw__entry_count(spw_entry *entry)
{
    count(entry, 1);
}

void spw__entry_uncount(spw_entry *entry)
{
    count(entry, UINT64_MAX);
}

void spw__entry_detach(spw_entry *entry, bool is_to_leave, spw__forms *ret_forms)
{
    *ret_forms = (spw__forms){0};
    if (spw__entry_is_in_use(entry))
        return;
    if (!entry->is_removed && !(is_to_leave && entry->forms.on_disk != NULL))
        return;
    spw__entry_uncount(entry);
    spw__read_ahead_end(entry, false);
    if (entry->is_removed) {
        *ret_forms = entry->forms;
        entry->forms = (spw__forms){0};
    } else {
        ret_forms->object = entry->forms.object;
        ret_forms->packed = entry->forms.packed;
        entry->forms.object = NULL;
        entry->forms.packed = NULL;
    }
    spw__entry_count(entry);
}

bool spw__entry_goes_by_work(const spw_entry *entry)
{
    return entry->is_removed && is_in_memory(&entry->forms) &&
           entry->weight >= SPW__LARGE_BYTES && !spw__entry_is_in_use(entry) &&
           !entry->store->is_closed;
}

void spw__forms_clear(spw_store *store, spw__forms *forms)
{
    if (forms->object != NULL)
        store->ops.unref(store->self, forms->object);
    spw_payload_free(forms->packed);
    spw_payload_free(forms->on_disk);
    if (forms->range.segment != NULL &&
        spw__segments_release(store->segments, &forms->range)) {
        spw__store_lock(store);
        spw__store_collect_later(store);
        spw__store_unlock(store);
    }
    *forms = (spw__forms){0};
}

spw_status spw__payload_share(spw_store *store, const spw_payload *payload,
                              spw_payload **ret_payload, spw_error *error)
{
    size_t slices = spw_payload_count(payload);
    spw_payload *shared;
    spw_status status = spw_payload_create(store->context, slices, &shared, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; i < slices; i++) {
        spw_slice slice = spw_payload_slices(payload)[i];
        if (slice.kind == SPW_MEMORY_FILE)
            (void)spw_file_ref(slice.file);
        else
            (void)spw_buffer_ref(slice.buffer);
        status = spw_payload_append(shared, &slice, error);
        assert(status == SPW_STATUS_OK); /* it was made with room for all of them */
    }
    *ret_payload = shared;
    return SPW_STATUS_OK;
}

spw_status spw__entry_say_lost(const spw_entry *entry, spw_error *error)
{
    return spw__error_set(error, entry->lost, 0,
                          "what was on disk of %.100s could not be read; it has to be "
                          "made again",
                          entry->key);
}

/* ----- its life ----- */

spw_status spw__entry_create(spw_store *store, const char *key, size_t key_size,
                             uint64_t weight, spw_entry **ret_entry, spw_error *error)
{
    if (key_size > SPW_STORE_KEY_MAX)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a key of %zu bytes: at most %d are allowed", key_size,
                              SPW_STORE_KEY_MAX);
    spw_entry *entry = spw__allocate(store->context, sizeof *entry + key_size + 1,
                                     _Alignof(spw_entry));
    if (entry == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for an entry");
    *entry = (spw_entry){
        .references = 1, .store = store, .weight = weight, .key_size = key_size};
    memcpy(entry->key, key, key_size);
    entry->key[key_size] = '\0';
    atomic_fetch_add(&store->references, 1);
    *ret_entry = entry;
    return SPW_STATUS_OK;
}

void spw__entry_enter(spw_entry *entry, const spw__forms *forms)
{
    entry->forms = *forms;
    spw__entry_list_add(&entry->store->all, SPW__LINK_ALL, entry);
    spw__entry_count(entry);
    spw__entry_settle(entry);
}

/* With the lock. */
static void enter(spw_entry *entry, const spw__forms *forms)
{
    spw_store *store = entry->store;
    spw__entry_enter(entry, forms);
    spw__store_settle(store);
}

spw_status spw_store_put(spw_store *store, const char *key, size_t key_size,
                         void *object, uint64_t weight, spw_entry **ret_entry,
                         spw_error *error)
{
    spw_status status =
        spw__entry_create(store, key, key_size, weight, ret_entry, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__store_lock(store);
    enter(*ret_entry, &(spw__forms){.object = object});
    spw__store_unlock(store);
    return SPW_STATUS_OK;
}

/* What was received, to this store's disk or memory. */
static spw_status enter_arrived(spw_entry *entry, spw_payload *payload,
                                spw_error *error)
{
    spw_store *store = entry->store;
    spw__forms forms = {0};
    spw__store_lock(store);
    spw_status status = spw__arrival_take(store, payload, &forms, error);
    if (status == SPW_STATUS_OK)
        enter(entry, &forms);
    spw__store_unlock(store);
    if (status == SPW_STATUS_OK && forms.packed != payload)
        spw_payload_free(payload);
    return status;
}

/* What is in a file of a peer's. */
static spw_status enter_adopted(spw_entry *entry, spw_payload *payload,
                                spw_error *error)
{
    spw_store *store = entry->store;
    spw__forms forms;
    spw_status status = spw__payload_adopt(store, payload, &forms, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__store_lock(store);
    store->figures.adopted++;
    store->figures.adopted_bytes += forms.range.bytes;
    enter(entry, &forms);
    spw__store_unlock(store);
    return SPW_STATUS_OK;
}

spw_status spw_store_put_packed(spw_store *store, const char *key, size_t key_size,
                                spw_payload *payload, uint64_t weight,
                                spw_entry **ret_entry, spw_error *error)
{
    spw_entry *entry;
    bool is_foreign = spw__payload_is_foreign(payload);
    spw_status status =
        is_foreign ? SPW_STATUS_OK : spw__arrival_check(store, payload, error);
    if (status == SPW_STATUS_OK)
        status = spw__entry_create(store, key, key_size, weight, &entry, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = is_foreign ? enter_adopted(entry, payload, error)
                        : enter_arrived(entry, payload, error);
    if (status != SPW_STATUS_OK) {
        spw_entry_unref(entry);
        return status;
    }
    *ret_entry = entry;
    return SPW_STATUS_OK;
}

void spw_store_remove(spw_entry *entry)
{
    spw_store *store = entry->store;
    spw__forms forms = {0};
    spw__store_lock(store);
    assert(!entry->is_removed || store->is_freed);
    if (!entry->is_removed)
        spw__entry_list_remove(&store->all, SPW__LINK_ALL, entry);
    entry->is_removed = true;
    spw__entry_settle(entry);
    bool is_for_work = spw__entry_goes_by_work(entry);
    if (is_for_work)
        spw__leaving_add(entry); /* with our reference */
    else
        spw__entry_detach(entry, false, &forms);
    spw__store_unlock(store);
    spw__forms_clear(store, &forms);
    if (!is_for_work)
        spw_entry_unref(entry);
}

spw_entry *spw_entry_ref(spw_entry *entry)
{
    atomic_fetch_add_explicit(&entry->references, 1, memory_order_relaxed);
    return entry;
}

void spw_entry_unref(spw_entry *entry)
{
    if (entry == NULL ||
        atomic_fetch_sub_explicit(&entry->references, 1, memory_order_acq_rel) != 1)
        return;
    spw_store *store = entry->store;
    assert(!spw__entry_has_any(entry) && !spw__entry_is_in_use(entry));
    spw__release(store->context, entry, entry_bytes(entry), _Alignof(spw_entry));
    spw__store_unref(store);
}

/* ----- what it tells ----- */

spw_status spw_entry_payload(spw_entry *entry, spw_payload **ret_payload,
                             spw_error *error)
{
    spw_store *store = entry->store;
    const spw__forms *forms = &entry->forms;
    spw_status status;
    spw__store_lock(store);
    const spw_payload *bytes = forms->packed != NULL ? forms->packed : forms->on_disk;
    if (bytes != NULL)
        status = spw__payload_share(store, bytes, ret_payload, error);
    else if (entry->lost != SPW_STATUS_OK)
        status = spw__entry_say_lost(entry, error);
    else if (entry->forms.object == NULL)
        status = spw__error_set(error, SPW_STATUS_CLOSED, 0, "%.100s was removed",
                                entry->key);
    else
        status = spw__error_set(error, SPW_STATUS_UNSUPPORTED, 0,
                                "%.100s is live, and has not been packed", entry->key);
    spw__store_unlock(store);
    return status;
}

const char *spw_entry_key(const spw_entry *entry, size_t *ret_size)
{
    *ret_size = entry->key_size;
    return entry->key;
}

uint64_t spw_entry_weight(const spw_entry *entry)
{
    return entry->weight;
}

unsigned spw_entry_forms(const spw_entry *entry)
{
    spw_store *store = entry->store;
    spw__store_lock(store);
    unsigned forms = (entry->forms.object != NULL ? SPW_ENTRY_LIVE : 0u) |
                     (entry->forms.packed != NULL ? SPW_ENTRY_PACKED : 0u) |
                     (entry->forms.on_disk != NULL ? SPW_ENTRY_ON_DISK : 0u) |
                     (entry->lost != SPW_STATUS_OK ? SPW_ENTRY_LOST : 0u);
    spw__store_unlock(store);
    return forms;
}
