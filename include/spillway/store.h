/* The store: values that change form only when somebody needs it. A value is live (an
 * object of the owner's), packed (a payload in memory) or on disk, and the store
 * decides which of them leaves memory when that is short.
 *
 * It has no table of keys: whoever has keys has one already, and keeps an spw_entry in
 * it. The key that an entry is given is for messages. Replacing a value is a new entry;
 * who still uses the old one holds a reference to it.
 *
 * Threads of the store read and write disks, compress and verify. They never call the
 * owner: pack, unpack and release run only on threads that call the functions that say
 * so, one of which the owner keeps in spw_store_work. */
#ifndef SPILLWAY_STORE_H
#define SPILLWAY_STORE_H

#include "spillway/sink.h"

typedef struct spw_store spw_store;
typedef struct spw_entry spw_entry;

/* What the store does with live objects. Called without a lock of the store. */
typedef struct spw_object_ops {
    /* Make a payload of an object, which stays as it is; its slices may be of the
     * object's own memory, and hold it. Returns: a payload of the store's. Errors: any;
     * it is not asked again for the same entry. */
    spw_status (*pack)(void *self, void *object, spw_payload **ret_payload,
                       spw_error *error);
    /* Make an object of a payload, whose slices are in memory and as they were packed.
     * Borrows: payload, during the call; what the object keeps of it, it references.
     * Returns: an object of the store's. Errors: any. */
    spw_status (*unpack)(void *self, const spw_payload *payload, void **ret_object,
                         spw_error *error);
    /* Takes one more reference to an object, for the caller of spw_entry_acquire. */
    void (*ref)(void *self, void *object);
    /* Takes: one reference. */
    void (*unref)(void *self, void *object);
} spw_object_ops;

/* Where values lie on disk. */
typedef struct spw_store_directory {
    const char *path;     /* exists; one of the store's own is made in it */
    uint64_t limit_bytes; /* 0: no limit but the disk's */
} spw_store_directory;

typedef struct spw_store_options {
    size_t struct_size; /* set by SPW_STORE_OPTIONS_INIT */
    spw_object_ops ops; /* required */
    void *self;         /* given to them; borrowed until the store is freed */
    const spw_store_directory *directories; /* in the order in which they are filled */
    size_t directory_count;                 /* 0: nothing leaves memory */
    uint64_t target_bytes;    /* weight in memory above which values leave; 0: never */
    uint64_t in_flight_bytes; /* written at once; 0: 256 MiB; one value always may be */
    uint64_t small_bytes;     /* lighter ones stay while there are others; 0: 4 KiB */
    uint32_t threads;         /* for disks and compression; 0: two */
    uint32_t codec;           /* spw_codec_id for what is written: NONE for as it is */
    uint64_t file_bytes;      /* of the first files; later ones are larger; 0: 64 MiB */
    uint64_t read_ahead_bytes; /* in memory at once by spw_entry_read_ahead; 0: none */
} spw_store_options;

#define SPW_STORE_OPTIONS_INIT                                                         \
    {                                                                                  \
        .struct_size = sizeof(spw_store_options)                                       \
    }

/* Make a store.
 * Borrows: options, during the call. Returns: a store to be freed by spw_store_free.
 * Thread: any; blocks on the disk. Errors: NO_MEMORY, INVALID_ARGUMENT (ops missing, a
 * codec that cannot be written), IO (a directory cannot be used; the message names it).
 */
SPW_EXPORT SPW_NODISCARD spw_status spw_store_create(spw_context *context,
                                                     const spw_store_options *options,
                                                     spw_store **ret_store,
                                                     spw_error *error);
/* Begin the end: nothing more is written, who waits for a disk gets CLOSED, and
 * spw_store_work answers CLOSED once it has let go of what was being written. Thread:
 * any. */
SPW_EXPORT void spw_store_close(spw_store *store);
/* Waits for its threads, and removes its directories.
 * Takes: store (NULL allowed), closed, in which nobody works or waits any more; entries
 * that are still referenced keep what they have in memory until they go, and nothing
 * else. Thread: any that may unref objects; blocks. */
SPW_EXPORT void spw_store_free(spw_store *store);

/* Put a live object into the store. weight: what it counts for in memory, in bytes, by
 * the owner's reckoning. May start that others leave.
 * Takes: object, on success only. Borrows: key, during the call. Returns: one
 * reference, to be given back by spw_store_remove or spw_entry_unref. Thread: any; does
 * not block. Errors: NO_MEMORY, INVALID_ARGUMENT (a key beyond SPW_STORE_KEY_MAX). */
SPW_EXPORT SPW_NODISCARD spw_status spw_store_put(spw_store *store, const char *key,
                                                  size_t key_size, void *object,
                                                  uint64_t weight,
                                                  spw_entry **ret_entry,
                                                  spw_error *error);
/* Put a payload into the store, as it was received: all its slices in memory; or, as a
 * sink of this store took it to disk, its header in memory and the others, all of them
 * and in order, where they are: it is on disk from then on. Room that was reserved for
 * it is its own from then on.
 *
 * Or it is adopted: its header is in memory, and the others that have bytes are ranges
 * of one file that another store of this host spilled to, and whose descriptor was
 * handed on (spw_file_take). Then, too, it is on disk from then on, in that file, of
 * which the store keeps one descriptor of its own however many values it adopts from
 * it. It counts against the limit of a directory, and is not refused for that. If it
 * cannot be read when somebody asks, it is lost as any other.
 * Takes: payload, on success only. Borrows: key, during the call. Returns: one
 * reference, as spw_store_put. Thread: any; does not block. Errors: NO_MEMORY,
 * INVALID_ARGUMENT (other ranges of files, or not all of a value's; a store without
 * directories; a key beyond SPW_STORE_KEY_MAX), CLOSED (the store, with what had been
 * received to its disk or is to be adopted), LIMIT_EXCEEDED and IO (of what is to be
 * adopted: for a copy of its header; a file that cannot be asked which it is). */
SPW_EXPORT SPW_NODISCARD spw_status spw_store_put_packed(
    spw_store *store, const char *key, size_t key_size, spw_payload *payload,
    uint64_t weight, spw_entry **ret_entry, spw_error *error);
enum { SPW_STORE_KEY_MAX = 1 << 20, SPW_STORE_ONLY_WITH_MAX = 31 };
/* Put a live object into the store straight to disk, without any other leaving memory
 * for it: for one that is larger than the target.
 * Takes: object, on success only. Borrows: key, during the call. Returns: one
 * reference, as spw_store_put. Thread: any on which pack may run; blocks. Errors: those
 * of spw_store_put and spw_entry_spill. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_store_put_spilled(spw_store *store, const char *key, size_t key_size, void *object,
                      uint64_t weight, spw_entry **ret_entry, spw_error *error);
/* Make a sink for the values of one message that are to be put into the store. A value
 * of 1 MiB and more that fits below the target, with all that is in memory, leaving it
 * or arriving, has room reserved there before it comes; one that does not fit goes
 * through a window of 1 MiB to disk, as it is, with checksums. Where there is no
 * target, no directory or no room on disk, and after the disk failed, all comes to
 * memory; a disk that fails in the middle ends the message with IO. What is not put is
 * given up with its last slice. only_with (NULL: none) is a text: of a message that has
 * it not in its first frame all comes to memory, as without a sink.
 * Borrows: only_with, during the call, and nothing else: the store may be closed and
 * freed before the sink, and then the value under way fails with CLOSED. Returns: a
 * sink, for one spw_connection_receive_values. Thread: any. Errors: NO_MEMORY,
 * INVALID_ARGUMENT (a text of more than SPW_STORE_ONLY_WITH_MAX bytes). */
SPW_EXPORT SPW_NODISCARD spw_status spw_store_create_sink(spw_store *store,
                                                          const char *only_with,
                                                          spw_value_sink **ret_sink,
                                                          spw_error *error);

/* Take an entry out of the store: its forms go, without reading any, once nobody uses
 * them. An entry that was removed stays valid for who has it pinned or reads it.
 * Takes: the reference of spw_store_put. Thread: any that may unref objects; does not
 * block. */
SPW_EXPORT void spw_store_remove(spw_entry *entry);
/* Takes one more reference. Returns: entry. Thread: any. */
SPW_EXPORT spw_entry *spw_entry_ref(spw_entry *entry);
/* Takes: one reference (NULL allowed). Thread: any that may unref objects. */
SPW_EXPORT void spw_entry_unref(spw_entry *entry);

/* Get the object of an entry: as it is, unpacked, or read from disk, verified and
 * unpacked, once however many ask at a time. It is pinned, so that it does not leave
 * memory, until spw_entry_unpin.
 * Returns: a reference to the object, taken by ops.ref. Thread: any on which unpack may
 * run; blocks on the disk and on others who unpack it. Errors: those of unpack; IO,
 * CORRUPT (what was on disk is lost: so is the entry, and this is the answer from now
 * on), NO_MEMORY, LIMIT_EXCEEDED, CLOSED (the store, or the entry was removed). */
SPW_EXPORT SPW_NODISCARD spw_status spw_entry_acquire(spw_entry *entry,
                                                      void **ret_object,
                                                      spw_error *error);
/* The same, of an object that is live, without waiting. Returns: a reference to it, or
 * NULL if it is not live. Thread: any. */
SPW_EXPORT void *spw_entry_try_acquire(spw_entry *entry);
/* End what acquire or try_acquire began; the caller's reference to the object is apart.
 * Thread: any; does not block. */
SPW_EXPORT void spw_entry_unpin(spw_entry *entry);
/* Give an entry, of which the object left memory and lives on elsewhere, its object
 * back, so that nothing needs to be read. Nothing happens if it has one.
 * Takes: object, also if it is not needed. Thread: any that may unref objects; does not
 * block. */
SPW_EXPORT void spw_entry_revive(spw_entry *entry, void *object);

/* Get an entry's bytes as they are, for sending: in memory or as ranges of files. Only
 * an entry that is packed or on disk has any. They stay as they are for as long as the
 * payload is, whatever becomes of the entry.
 * Returns: a payload of the caller's. Thread: any; does not block. Errors: UNSUPPORTED
 * (it is live only), NO_MEMORY, CLOSED (it was removed); those of a lost entry. */
SPW_EXPORT SPW_NODISCARD spw_status spw_entry_payload(spw_entry *entry,
                                                      spw_payload **ret_payload,
                                                      spw_error *error);
/* Write an entry to disk now, and free its memory unless it is pinned: for a value that
 * is larger than the target. Nothing happens if it is there already.
 * Thread: any on which pack may run; blocks. Errors: those of pack; IO, LIMIT_EXCEEDED
 * (the entry stays as it is), NO_MEMORY, UNSUPPORTED (no directory), CLOSED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_entry_spill(spw_entry *entry, spw_error *error);

/* Begin to read the bytes of an entry that is on disk only back into memory, because
 * somebody will ask for it soon. Until that one comes they count for nothing else, and
 * are the first that a memory monitor drops, without a write.
 * Returns: whether it began. Not if it is in use or in memory, or not worth it; if as
 * much has been read ahead as may be; while memory is above the target; and for a while
 * after something was dropped unused for a monitor. Thread: any; does not block. */
SPW_EXPORT bool spw_entry_read_ahead(spw_entry *entry);
/* Returns: whether any entry could be read ahead, as far as the store is concerned:
 * who is told no need not look for one. Thread: any; does not block. */
SPW_EXPORT bool spw_store_reads_ahead(spw_store *store);

/* Start that the value which was used longest ago leaves memory, as a memory monitor
 * asks for it: excess_bytes is what the process has too much, now.
 * Returns: the weight that is leaving, or -1: enough is leaving already, what is
 * leaving has not shown how large it is yet, or nothing can leave. Thread: any that may
 * unref objects; does not block. */
SPW_EXPORT int64_t spw_store_evict(spw_store *store, uint64_t excess_bytes);
/* Returns: whether somebody who makes new values should wait, because as much is being
 * written as may be at once and memory is above the target. Thread: any. */
SPW_EXPORT bool spw_store_is_behind(spw_store *store);

typedef enum spw_store_event_kind {
    SPW_STORE_NOTHING = 0, /* time is up */
    SPW_STORE_CLOSED = 1,  /* the last one */
    SPW_STORE_LEFT = 2,    /* values have left memory */
    SPW_STORE_FAILED = 3   /* an entry cannot leave memory: the error says why. Once for
                              an entry that cannot be packed, and for a disk that is full
                              or fails, until something was written again */
} spw_store_event_kind;

typedef struct spw_store_event {
    uint32_t kind;    /* spw_store_event_kind */
    spw_entry *entry; /* of FAILED: one reference of the caller's */
    spw_error error;  /* of FAILED */
} spw_store_event;

/* Do what only the owner's threads may: pack values that are to leave, unref objects of
 * those that have left, and hear of what happened.
 * Returns: an event, after timeout_ms at the latest (-1: without end). Thread: any on
 * which pack may run; blocks. Several may do it. */
SPW_EXPORT void spw_store_work(spw_store *store, int timeout_ms,
                               spw_store_event *ret_event);

/* Borrows: the key, as long as the entry is referenced. Returns: it, with its size.
 * Thread: any. */
SPW_EXPORT const char *spw_entry_key(const spw_entry *entry, size_t *ret_size);
/* Returns: what put was told. Thread: any. */
SPW_EXPORT uint64_t spw_entry_weight(const spw_entry *entry);

/* What an entry has, now. */
enum {
    SPW_ENTRY_LIVE = 1u << 0,
    SPW_ENTRY_PACKED = 1u << 1,
    SPW_ENTRY_ON_DISK = 1u << 2,
    SPW_ENTRY_LOST = 1u << 3
};
/* Returns: SPW_ENTRY_... . Thread: any. */
SPW_EXPORT unsigned spw_entry_forms(const spw_entry *entry);

typedef struct spw_store_tier {
    uint64_t count, weight, bytes; /* bytes: really held; of objects, the weight */
} spw_store_tier;

/* Each entry counts where it is found first, in this order. */
typedef struct spw_store_figures {
    spw_store_tier live, packed, on_disk;
    spw_store_tier clean;   /* of live and packed: what is on disk as well */
    uint64_t disk_bytes;    /* the files', with what nobody wants any more; of files of
                               peers, what is adopted */
    uint64_t files;         /* with those of peers */
    uint64_t leaving_bytes; /* being packed and written */
    /* Since the store was made: */
    uint64_t packs, unpacks, writes, reads; /* writes: values that came to disk */
    uint64_t drops; /* values that left memory without a write, for they were clean */
    uint64_t written_bytes, read_bytes, moved_bytes; /* moved: between segments */
    uint64_t pack_ns, unpack_ns, write_ns, read_ns, compress_ns, decompress_ns;
    uint64_t failures, losses;
    /* Of what was read ahead: all, what was used, what was dropped or removed unused.
     */
    uint64_t ahead_bytes, ahead_used_bytes, ahead_dropped_bytes;
    /* Now: room in memory of what is arriving, or has not been put. */
    uint64_t arriving_bytes;
    /* Since the store was made: values that came to disk, of which nothing else counts.
     */
    uint64_t received, received_bytes;
    /* Since the store was made: values that were adopted in files of peers. */
    uint64_t adopted, adopted_bytes;
} spw_store_figures;

/* Read all figures as one snapshot.
 * Returns: in ret_figures, of the caller's. Thread: any; does not block. */
SPW_EXPORT void spw_store_read_figures(spw_store *store,
                                       spw_store_figures *ret_figures);

#endif
