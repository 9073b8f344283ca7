/* The store as a whole: its life, and its figures. */
#include <assert.h>
#include <time.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/options.h"
#include "spillway/codec.h"
#include "store/arrival.h"

static const uint64_t IN_FLIGHT_BYTES = 256 << 20;
static const uint64_t SMALL_BYTES = 4096;
enum { THREADS = 2 };

static spw_status check(const spw_store_options *options, spw_error *error)
{
    const spw_object_ops *ops = &options->ops;
    if (ops->pack == NULL || ops->unpack == NULL || ops->ref == NULL ||
        ops->unref == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a store needs all of the object operations");
    if (options->codec != SPW_CODEC_NONE &&
        spw_codec_bound((spw_codec_id)options->codec, 1) == 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a store cannot write with codec %u: there is none",
                              options->codec);
    return SPW_STATUS_OK;
}

static void init_sync(spw_store *store)
{
    pthread_condattr_t attributes;
    (void)pthread_mutex_init(&store->lock, NULL); /* these cannot fail on Linux */
    (void)pthread_cond_init(&store->changed, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&store->work, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

void spw__store_unref(spw_store *store)
{
    if (atomic_fetch_sub_explicit(&store->references, 1, memory_order_acq_rel) != 1)
        return;
    spw_context *context = store->context;
    (void)pthread_cond_destroy(&store->work);
    (void)pthread_cond_destroy(&store->changed);
    (void)pthread_mutex_destroy(&store->lock);
    spw__release(context, store, sizeof *store, _Alignof(spw_store));
    spw_context_unref(context);
}

spw_status spw__store_create(spw_context *context, const spw_store_options *options,
                             unsigned threads, spw_store **ret_store, spw_error *error)
{
    spw_store *store = spw__allocate(context, sizeof *store, _Alignof(spw_store));
    if (store == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a store");
    *store = (spw_store){
        .references = 1,
        .context = spw_context_ref(context),
        .ops = options->ops,
        .self = options->self,
        .target_bytes = options->target_bytes,
        .in_flight_bytes =
            options->in_flight_bytes > 0 ? options->in_flight_bytes : IN_FLIGHT_BYTES,
        .read_ahead_bytes = options->read_ahead_bytes,
        .codec = (spw_codec_id)options->codec,
        .threads = threads,
        .order.small_bytes =
            options->small_bytes > 0 ? options->small_bytes : SMALL_BYTES,
        .order.target_bytes = options->target_bytes,
        .collect.run = spw__store_collect,
    };
    init_sync(store);
    spw_status status = spw__worker_pool_create(context, threads, &store->pool, error);
    if (status == SPW_STATUS_OK && options->directory_count > 0)
        status = spw__segments_create(
            context, options->directories, options->directory_count,
            options->file_bytes > 0 ? options->file_bytes : SPW__SEGMENT_BYTES,
            &store->segments, error);
    if (status != SPW_STATUS_OK) {
        spw__worker_pool_free(store->pool);
        spw__store_unref(store);
        return status;
    }
    *ret_store = store;
    return SPW_STATUS_OK;
}

spw_status spw_store_create(spw_context *context, const spw_store_options *options,
                            spw_store **ret_store, spw_error *error)
{
    spw_store_options own;
    spw_status status = spw__options_read(options, "STORE", &own, sizeof own, error);
    if (status == SPW_STATUS_OK)
        status = check(&own, error);
    if (status != SPW_STATUS_OK)
        return status;
    return spw__store_create(context, &own, own.threads > 0 ? own.threads : THREADS,
                             ret_store, error);
}

void spw_store_close(spw_store *store)
{
    spw__store_lock(store);
    store->is_closed = true;
    (void)pthread_cond_broadcast(&store->changed);
    (void)pthread_cond_broadcast(&store->work);
    spw__store_unlock(store);
}

/* Take everything from an entry, of which nobody has anything any more. */
static void clear_entry(spw_store *store, spw_entry *entry)
{
    spw__forms forms;
    spw__store_lock(store);
    assert(!spw__entry_is_in_use(entry));
    spw__entry_list_remove(&store->all, SPW__LINK_ALL, entry);
    entry->is_removed = true;
    entry->lost = SPW_STATUS_CLOSED;
    spw__entry_settle(entry);
    spw__entry_detach(entry, false, &forms);
    spw__store_unlock(store);
    spw__forms_clear(store, &forms);
}

/* Until its threads do nothing more for entries. */
static void wait_for_threads(spw_store *store)
{
    spw__store_lock(store);
    while (store->collects || store->reading_ahead > 0 || store->arriving_jobs > 0 ||
           (store->spills > 0 && store->finished == NULL))
        spw__store_wait(store);
    spw__store_unlock(store);
}

void spw_store_free(spw_store *store)
{
    spw_store_event event;
    if (store == NULL)
        return;
    spw_store_close(store);
    wait_for_threads(store);
    spw__arrivals_clear(store);
    do {
        wait_for_threads(store);
        spw_store_work(store, 0, &event);
        spw_entry_unref(event.entry);
    } while (event.kind != SPW_STORE_CLOSED);
    while (store->all.first != NULL)
        clear_entry(store, store->all.first);
    store->is_freed = true;
    spw__worker_pool_free(store->pool);
    if (store->segments != NULL)
        (void)spw__segments_collect(store->segments);
    spw__segments_free(store->segments);
    store->pool = NULL;
    store->segments = NULL;
    spw__store_unref(store);
}

void spw__store_run(spw_store *store, spw__job *job, spw__urgency urgency)
{
    spw__job **link = &store->due[urgency];
    while (*link != NULL)
        link = &(*link)->next;
    job->next = NULL;
    *link = job;
}

bool spw__store_has_due(const spw_store *store)
{
    return store->due[SPW__JOB_URGENT] != NULL || store->due[SPW__JOB_PATIENT] != NULL;
}

static void begin(spw_store *store, spw__job *due, spw__urgency urgency)
{
    while (due != NULL) {
        spw__job *job = due;
        due = job->next;
        spw__worker_pool_add(store->pool, job, urgency);
    }
}

void spw__store_unlock(spw_store *store)
{
    spw__job *urgent = store->due[SPW__JOB_URGENT];
    spw__job *patient = store->due[SPW__JOB_PATIENT];
    store->due[SPW__JOB_URGENT] = store->due[SPW__JOB_PATIENT] = NULL;
    (void)pthread_mutex_unlock(&store->lock);
    begin(store, urgent, SPW__JOB_URGENT);
    begin(store, patient, SPW__JOB_PATIENT);
}

void spw__store_wait(spw_store *store)
{
    if (spw__store_has_due(store)) {
        spw__store_unlock(store);
        spw__store_lock(store);
        return;
    }
    if (store->threads > 0) {
        (void)pthread_cond_wait(&store->changed, &store->lock);
        return;
    }
    spw__store_unlock(store);
    bool is_one = spw__worker_pool_run_one(store->pool);
    assert(is_one); /* whoever waits has work in the pool, or waits for ever */
    (void)is_one;
    spw__store_lock(store);
}

void spw_store_read_figures(spw_store *store, spw_store_figures *ret_figures)
{
    spw__segments_figures segments = {0};
    if (store->segments != NULL)
        spw__segments_read(store->segments, &segments);
    spw__store_lock(store);
    *ret_figures = store->figures;
    ret_figures->leaving_bytes = store->leaving_bytes;
    ret_figures->arriving_bytes = store->arriving_weight;
    spw__store_unlock(store);
    ret_figures->disk_bytes = segments.file_bytes;
    ret_figures->files = segments.files + segments.foreign_files;
}
