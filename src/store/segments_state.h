/* The inside of segments, shared by their files: segments.c (our own),
 * sparse_segments.c (those of which little is wanted) and foreign_segments.c (files of
 * peers).
 *
 * Invariant of a segment of our own: used <= capacity; wanted <= used is what the
 * ranges take that are not released; it is open in one directory, or sealed, or dead,
 * which is sealed with nothing wanted. Of a foreign one: it is sealed from the start;
 * used == wanted, so that what is released counts for nothing at once; it is among the
 * foreign ones until it is dead. A directory's file_bytes is the sum of used, and
 * within its limit but for what is foreign. */
#ifndef SPW_STORE_SEGMENTS_STATE_H
#define SPW_STORE_SEGMENTS_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "platform/process.h"
#include "platform/regular_file.h"
#include "store/segments.h"

/* Beyond what any file can be, and no sum of it with another wraps. */
#define SPW__SEGMENT_BYTES_MAX (UINT64_C(1) << 62)

typedef struct spw__directory {
    char *path; /* our own in the one that was named, whose path is its beginning */
    size_t path_bytes, named_length;
    int lock;             /* on it */
    uint64_t limit_bytes; /* SPW__SEGMENT_BYTES_MAX: none */
    /* With the lock held. */
    uint64_t file_bytes; /* reserved in its files */
    uint64_t refused_until_ms;
    bool is_tight; /* its file system had less room than its files when one was made */
    spw__segment *open; /* NULL: none */
} spw__directory;

struct spw__segment {
    spw__directory *in; /* where it counts; of a foreign one, with the lock held */
    spw_file *file;     /* one reference */
    /* With the lock held, but for the capacity of one of our own, which is fixed. */
    uint64_t capacity; /* of a foreign one: what its file had when it was let go of, 0
                          until then */
    uint64_t used, wanted;
    bool is_sealed, is_sparse, is_stuck; /* stuck: what is in it cannot be moved */
    uint64_t answered_in;                /* round, as a sparse one */
    spw__segment *next, *before; /* among the sparse ones; next among the dead ones */
    /* Of a foreign one. */
    bool is_foreign;            /* fixed */
    bool is_hold_seen;          /* fixed: so it will be seen when nobody holds it */
    uint64_t device, number;    /* fixed: which file it is */
    bool is_let_go;             /* nobody else wants it */
    uint64_t round;             /* in which it was asked for last */
    spw__segment *next_foreign; /* among the foreign ones */
};

struct spw__segments {
    spw_context *context; /* one reference */
    uint32_t fork_count;
    size_t count;
    uint64_t first_bytes; /* fixed */
    spw__directory *directories;
    /* Guards what follows and what the above say. A leaf: nothing is called under it.
     */
    pthread_mutex_t lock;
    spw__segment *sparse;
    size_t foreign_sparse; /* so many of them */
    spw__segment *dead;
    spw__segment *foreign;
    uint64_t round;                /* of looking */
    uint64_t given_back_bytes;     /* of foreign ones, and collect has not told */
    uint64_t own_used, own_wanted; /* of those of our own that are not dead, together */
    spw__segments_figures figures;
};

/* A forked child has the parent's descriptors, and would write over what the parent
 * writes; and the lock may be held by a thread that is not there. */
static inline bool spw__segments_are_ours(const spw__segments *segments)
{
    return segments->fork_count == spw__process_fork_count();
}

static inline void spw__segments_lock(spw__segments *segments)
{
    (void)pthread_mutex_lock(&segments->lock);
}

static inline void spw__segments_unlock(spw__segments *segments)
{
    (void)pthread_mutex_unlock(&segments->lock);
}

/* Make a segment of a file, in no directory. Takes: file, also on failure. Thread: any,
 * without the lock. Errors: NO_MEMORY. */
spw_status spw__segment_create(spw__segments *segments, spw_file *file,
                               spw__segment **ret_segment, spw_error *error);
/* Takes: segment, in which nothing is wanted. Thread: as create. */
void spw__segment_free(spw__segments *segments, spw__segment *segment);

/* What follows: thread: any, with the lock held. */

/* Returns: whether a directory's limit has the room. */
bool spw__directory_has_room(const spw__directory *in, uint64_t space);
/* Have next_sparse answer a segment, if it is to be. */
void spw__segment_note_if_sparse(spw__segments *segments, spw__segment *segment);
/* Returns: whether next_sparse(false) may have something to answer. */
bool spw__sparse_is_due(const spw__segments *segments);
/* A segment is dead, or stuck. */
void spw__sparse_forget(spw__segments *segments, spw__segment *segment);
/* A foreign segment is dead. */
void spw__foreign_forget(spw__segments *segments, spw__segment *segment);

#endif
