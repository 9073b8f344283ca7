/* The store's inside, for its own files.
 *
 * One lock guards the store and its entries. It is never held while a disk is waited
 * for, while a callback of the owner runs, or while memory of some size is given back;
 * what is to be done without it is detached under it first. Two locks are taken with it
 * held: those of the segments, and of the pool of threads.
 *
 * What an entry has (its forms) and who is at it:
 * - pins: callers of acquire, and of try_acquire. Its memory stays.
 * - is_coming: one of them unpacks it, from its packed form or from disk; or its bytes
 *   are read ahead.
 * - is_leaving: it waits for the owner's thread in `leaving`, or is packed there, or a
 *   spill writes it. Its forms stay until that ends.
 * An entry that was removed keeps its forms until nobody is at it any more.
 *
 * Some entries stand apart: they are in memory and count for nothing that others would
 * have to leave for. One that is alone larger than the target (it goes as soon as
 * nobody uses it, so that the rest need not), and what was read ahead, which has a
 * limit of its own. */
#ifndef SPW_STORE_STORE_STATE_H
#define SPW_STORE_STORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "platform/disk_speed.h"
#include "store/entry_list.h"
#include "store/eviction_order.h"
#include "store/segments.h"
#include "threads/worker_pool.h"

typedef struct spw__spill spw__spill;
typedef struct spw__read_ahead spw__read_ahead;
typedef struct spw__arrival spw__arrival; /* arrival.h */

typedef enum spw__turn {
    SPW__TURN_NONE = 0,    /* in no list of SPW__LINK_TURN */
    SPW__TURN_WAITING = 1, /* in the store's order: may be chosen to leave */
    SPW__TURN_LEAVING = 2  /* in the store's list leaving, until spw_store_work comes */
} spw__turn;

/* What an entry has, of which at least one is there unless it was lost or removed. */
typedef struct spw__forms {
    void *object;
    spw_payload *packed;  /* in memory */
    spw_payload *on_disk; /* slices of the range's file; of what was adopted, all but
                             its header, which is in memory of the store's */
    spw__range range;
} spw__forms;

struct spw_entry {
    _Atomic size_t references;
    spw_store *store; /* one of its references */
    uint64_t weight;  /* fixed */
    size_t key_size;  /* fixed */
    /* Guarded by the store's lock. */
    spw__forms forms;
    spw__link links[SPW__LINK_COUNT];
    uint64_t last_use;
    unsigned pins;
    spw__turn turn;
    spw_status lost; /* OK, or why what was on disk is gone */
    bool is_coming, is_leaving, is_removed;
    bool cannot_leave;      /* it could not be packed */
    bool is_ahead;          /* packed is what was read ahead, and nobody has used it */
    spw__read_ahead *ahead; /* it is to be read, and that has not begun; or NULL */
    char key[];             /* fixed; a zero behind it */
};

struct spw_store {
    _Atomic size_t references; /* the owner's, and one of each entry */
    spw_context *context;      /* one reference */
    /* Fixed at creation. */
    spw_object_ops ops;
    void *self;
    uint64_t target_bytes, in_flight_bytes, read_ahead_bytes;
    spw_codec_id codec;
    unsigned threads;
    spw__segments *segments; /* NULL: nothing leaves memory */
    spw__worker_pool *pool;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* for those who wait for an entry */
    pthread_cond_t work;    /* for spw_store_work */
    /* Guarded by lock. */
    bool is_closed;
    bool is_freed; /* entries have nothing any more */
    spw__entry_list all;
    spw__eviction_order order;
    spw__entry_list leaving;   /* the first is next */
    spw__spill *finished;      /* written or not; the first is next */
    spw__spill *finished_last; /* valid unless finished is NULL */
    uint64_t spills;           /* started and not finished */
    uint64_t unpacked;         /* that are leaving and not packed yet */
    uint64_t leaving_bytes;    /* packed size, or the weight as long as unpacked */
    uint64_t leaving_weight;   /* of all that are leaving and do not stand apart */
    uint64_t apart_weight;     /* of all in memory that stand apart */
    uint64_t ahead_bytes;      /* being read ahead, or there and not used */
    uint64_t reading_ahead;    /* jobs */
    uint64_t ahead_from_ms;    /* nothing is read ahead until then */
    uint64_t trouble_until_ms; /* the disk is full or fails: not asked until then */
    bool is_trouble_told;      /* by an event, and nothing was written since */
    bool is_trouble_logged;    /* the same of what arrives, by the log */
    spw__disk_speed speed;
    spw__job *due[SPW__URGENCY_COUNT]; /* jobs for the pool, once the lock is free */
    bool collects;                     /* collect is due, or in the pool */
    spw__job collect;
    bool is_collect_waiting;   /* and is to run again */
    spw__arrival *arrivals;    /* that have something here, which nobody put yet */
    uint64_t arriving_weight;  /* of those for which there is room in memory */
    uint64_t arriving_jobs;    /* that threads do, or are to do, for what arrives */
    spw_store_figures figures; /* all but those that read_figures asks others for */
};

/* One round of writing: entries that go to disk together. */
typedef struct spw__spill_item {
    spw_entry *entry;    /* one reference */
    spw_payload *packed; /* what is written: the spill's own */
    spw_payload *stored; /* the same, compressed, while it is written; or NULL */
    spw_payload *on_disk;
    spw__range range;
} spw__spill_item;

struct spw__spill {
    spw__job job;
    spw_store *store;
    spw__spill *next; /* in finished */
    uint64_t bytes;   /* charged as SPILLING, counted in leaving_bytes */
    uint64_t written_bytes, write_ns, compress_ns;
    spw__disk_speed speed; /* the store's, and then as it was found */
    bool is_waited_for;    /* fixed: by spw_entry_spill, which finishes it */
    bool is_done;          /* guarded by the store's lock */
    spw_status status;
    spw_error error;
    size_t count, capacity;
    spw__spill_item items[];
};

static inline void spw__store_lock(spw_store *store)
{
    (void)pthread_mutex_lock(&store->lock);
}

/* Jobs that became due under the lock begin now: one may run right here, where no
 * thread can be started. */
void spw__store_unlock(spw_store *store);

/* As spw_store_create with its options checked, and with that number of threads: with
 * 0, jobs run where somebody waits for one, or when the pool is told to. */
spw_status spw__store_create(spw_context *context, const spw_store_options *options,
                             unsigned threads, spw_store **ret_store, spw_error *error);
/* The job that gives space on disk back: store->collect. */
void spw__store_collect(spw__job *job);

/* All that follow: thread: with the lock held, unless they say otherwise. */

/* Drop a reference of an entry's to its store. Thread: any, without the lock. */
void spw__store_unref(spw_store *store);
/* Have a job run as soon as the lock is free. */
void spw__store_run(spw_store *store, spw__job *job, spw__urgency urgency);
/* Wait for a job or for somebody else: without threads, by running a job. */
void spw__store_wait(spw_store *store);
/* Whether jobs are due, which waiting would keep from beginning. */
bool spw__store_has_due(const spw_store *store);
/* Start that so much leaves that the weight in memory falls to the target, as far as
 * may leave at once. */
void spw__store_settle(spw_store *store);
/* Whether the disk was full or failed a while ago, and is not asked. */
bool spw__store_is_in_trouble(spw_store *store);
/* A disk answered a status. Returns: whether that is trouble. */
bool spw__store_note_disk(spw_store *store, spw_status status);
/* Have released segments closed, and what is sparse moved. */
void spw__store_collect_later(spw_store *store);

/* Returns: the weight in memory for which others may have to leave. */
uint64_t spw__store_staying(const spw_store *store);
/* Returns: up to where memory may be filled by what no task waits for: the target, less
 * what shuffles of the process hold. Values that are there do not leave for shuffles,
 * whose rows leave first. */
uint64_t spw__store_room(const spw_store *store);
/* Returns: the weight of an entry, 0 if it stands apart. */
uint64_t spw__entry_counted_weight(const spw_entry *entry);

/* An entry that was read ahead is just one of many from now on: somebody uses it, or it
 * goes. With its forms uncounted. */
void spw__read_ahead_end(spw_entry *entry, bool is_used);
/* Somebody wants an entry now: if it was to be read ahead and that has not begun, it is
 * not. */
void spw__read_ahead_recall(spw_entry *entry);

/* Put an entry that nobody is at into the list leaving, for the owner's thread. Takes:
 * one reference. */
void spw__leaving_add(spw_entry *entry);
/* Take it out again: somebody wants it. Drop the reference afterwards. */
void spw__leaving_remove(spw_entry *entry);
/* An entry counts as unpacked, and leaving by its weight. */
void spw__leaving_count(spw_entry *entry);
/* What was added to that list no longer counts as unpacked, and leaving by its weight:
 * it is packed, is let go of, or stays. */
void spw__leaving_uncount(spw_entry *entry);

/* Make an entry. Thread: any, without the lock. Returns: one reference. Errors:
 * NO_MEMORY, INVALID_ARGUMENT (the key is too long). */
spw_status spw__entry_create(spw_store *store, const char *key, size_t key_size,
                             uint64_t weight, spw_entry **ret_entry, spw_error *error);
/* Have it in the store, with what it has. Takes: forms. */
void spw__entry_enter(spw_entry *entry, const spw__forms *forms);
/* Put an entry where it belongs among those that may leave, after whatever changed. */
void spw__entry_settle(spw_entry *entry);
/* Before and after the forms of an entry change. */
void spw__entry_uncount(spw_entry *entry);
void spw__entry_count(spw_entry *entry);
bool spw__entry_is_in_use(const spw_entry *entry);
bool spw__entry_has_any(const spw_entry *entry);
/* Whether an entry is to go by the list leaving: removed, and with so much in memory
 * that giving it back takes a while. */
bool spw__entry_goes_by_work(const spw_entry *entry);
/* Take from an entry what it has in memory, all it has, or nothing, whichever may go:
 * all if it was removed, memory if is_to_leave and it is on disk as well.
 * Returns: in ret_forms, to be given to spw__forms_clear. */
void spw__entry_detach(spw_entry *entry, bool is_to_leave, spw__forms *ret_forms);
/* Thread: any that may unref objects, without the lock. Takes: what forms has. */
void spw__forms_clear(spw_store *store, spw__forms *forms);
/* A payload of the same slices, with references of its own. Errors: NO_MEMORY. */
spw_status spw__payload_share(spw_store *store, const spw_payload *payload,
                              spw_payload **ret_payload, spw_error *error);
/* What is said of an entry whose bytes are lost. Returns: its status. */
spw_status spw__entry_say_lost(const spw_entry *entry, spw_error *error);

/* Make a spill of at most capacity entries. Thread: any, without or with the lock.
 * Errors: NO_MEMORY. */
spw_status spw__spill_create(spw_store *store, size_t capacity, spw__spill **ret_spill,
                             spw_error *error);
/* Add an entry, which is leaving from now on if it was not. Takes: packed. */
void spw__spill_add(spw__spill *spill, spw_entry *entry, spw_payload *packed);
/* Have it written; it has entries. Takes: spill, which comes back in finished if it is
 * not waited for. */
void spw__spill_start(spw__spill *spill);
/* Give its entries what it wrote, and free what need not stay in memory. Takes: spill,
 * which is done. Thread: the owner's, without the lock. Returns: whether there is an
 * event, in ret_event. */
bool spw__spill_finish(spw__spill *spill, spw_store_event *ret_event);
/* Takes: spill, which was not started. Thread: the owner's. */
void spw__spill_free(spw__spill *spill);

#endif
