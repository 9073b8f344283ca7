/* Reading ahead of what is expected.
 *
 * Invariant: first, windows and count are the thread's while READING, and otherwise of
 * whoever has the lock. */
#include "shuffle/partitions_ahead.h"

#include <stddef.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/process.h"
#include "threads/worker_pool.h"

/* After so many wrong guesses more than right ones, what is there stays until it is
 * asked for. */
enum { WRONG_MOST = 4 };

typedef enum ahead_state {
    AHEAD_NONE = 0,
    AHEAD_WANTED = 1, /* a job waits */
    AHEAD_READING = 2,
    AHEAD_READY = 3
} ahead_state;

/* A chunk whose first window is read, and its reader. */
typedef struct window {
    spw__chunk chunk;
    spw__chunk_reader reader;
} window;

struct spw__ahead {
    spw_partitions *all;
    spw__worker_pool *pool;
    uint32_t fork_count;
    spw__job job;
    /* With the lock of all held. */
    bool is_queued; /* job */
    ahead_state state;
    uint32_t expected; /* what somebody said; UINT32_MAX: nothing */
    uint32_t partition;
    uint32_t count;
    window *windows;
    unsigned wrong;    /* guesses, less the right ones */
    uint32_t releases; /* that wait or run */
};

/* Chunks whose space is given back. */
typedef struct release {
    spw__job job;
    spw_partitions *all;
    spw__chunk *chunks;
    uint32_t count;
    size_t room;
} release;

/* A forked child has no thread that would do it. */
static spw__ahead *ahead_of(const spw_partitions *all)
{
    spw__ahead *ahead = all->ahead;
    return ahead != NULL && ahead->fork_count == spw__process_fork_count() ? ahead
                                                                           : NULL;
}

/* ----- reading ----- */

static void free_windows(spw_context *context, window *windows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        spw__chunk_reader_clear(&windows[i].reader);
    spw__release(context, windows, count * sizeof *windows, _Alignof(window));
}

/* Note the chunks of the partition, which may get more. With the lock held. Returns:
 * false if there is nothing to read, or no memory to note it. */
static bool note_chunks(spw__ahead *ahead)
{
    spw_partitions *all = ahead->all;
    const spw__partition *p = &all->partitions[ahead->partition];
    if (all->is_closed || p->state != SPW__PARTITION_UNREAD || p->chunk_count == 0)
        return false;
    size_t bytes = p->chunk_count * sizeof *ahead->windows;
    ahead->windows = spw__allocate(all->context, bytes, _Alignof(window));
    if (ahead->windows == NULL)
        return false;
    memset(ahead->windows, 0, bytes);
    ahead->count = p->chunk_count;
    for (uint32_t i = 0; i < ahead->count; i++) {
        ahead->windows[i].chunk = p->chunks[i];
        ahead->windows[i].reader.chunk = &ahead->windows[i].chunk;
    }
    return true;
}

/* Read what the reader of a chunk would read first. What fails is not there: who needs
 * it reads it again, and is told. Returns: how many bytes. */
static uint64_t read_window(spw__ahead *ahead, window *w, uint64_t bytes)
{
    spw_partitions *all = ahead->all;
    spw__partitions_lock(all);
    bool is_closed = all->is_closed;
    spw__partitions_unlock(all);
    if (is_closed)
        return 0;
    if (spw__chunk_reader_fill(&w->reader, all->context, all->files, bytes, NULL) ==
        SPW_STATUS_OK)
        return bytes;
    spw__chunk_reader_clear(&w->reader);
    w->reader = (spw__chunk_reader){.chunk = &w->chunk};
    return 0;
}

static void read_windows(spw__ahead *ahead)
{
    uint64_t most = spw__window_bytes(ahead->count), left = SPW__WINDOWS_BYTES;
    for (uint32_t i = 0; i < ahead->count; i++) {
        window *w = &ahead->windows[i];
        uint64_t bytes = w->chunk.first > most ? w->chunk.first : most;
        bytes = bytes < w->chunk.size ? bytes : w->chunk.size;
        if (bytes <= left)
            left -= read_window(ahead, w, bytes);
    }
}

static void run(spw__job *job)
{
    spw__ahead *ahead = (spw__ahead *)(void *)((char *)job - offsetof(spw__ahead, job));
    spw_partitions *all = ahead->all;
    spw__partitions_lock(all);
    ahead->is_queued = false;
    if (ahead->state == AHEAD_WANTED)
        ahead->state = note_chunks(ahead) ? AHEAD_READING : AHEAD_NONE;
    bool is_wanted = ahead->state == AHEAD_READING;
    spw__partitions_unlock(all);
    if (!is_wanted)
        return;
    read_windows(ahead);
    spw__partitions_lock(all);
    ahead->state = AHEAD_READY;
    (void)pthread_cond_broadcast(&all->changed);
    spw__partitions_unlock(all);
}

/* ----- expecting ----- */

void spw_partitions_expect(spw_partitions *partitions, uint32_t partition)
{
    spw__ahead *ahead = ahead_of(partitions);
    if (ahead == NULL)
        return;
    spw__partitions_lock(partitions);
    ahead->expected = partition;
    spw__partitions_unlock(partitions);
}

/* Whether what is expected may be read ahead. With the lock held. */
static bool is_candidate(const spw__ahead *ahead)
{
    const spw_partitions *all = ahead->all;
    if (all->is_closed || ahead->expected >= all->count)
        return false;
    const spw__partition *p = &all->partitions[ahead->expected];
    return p->state == SPW__PARTITION_UNREAD && p->chunk_count > 0;
}

/* Have nothing ahead, if that may be. With the lock held. Returns: false if there is
 * something that stays; or in ret_windows what is to be freed. */
static bool make_way(spw__ahead *ahead, uint32_t next, window **ret_windows)
{
    if (ahead->state == AHEAD_READING)
        return false;
    if (ahead->state == AHEAD_READY) {
        if (ahead->partition == next || ahead->wrong >= WRONG_MOST)
            return false;
        ahead->wrong++;
        *ret_windows = ahead->windows;
        ahead->windows = NULL;
    }
    ahead->state = AHEAD_NONE;
    return true;
}

void spw__ahead_begin(spw_partitions *all)
{
    spw__ahead *ahead = ahead_of(all);
    window *windows = NULL;
    bool is_new = false;
    uint32_t count = 0;
    if (ahead == NULL)
        return;
    spw__partitions_lock(all);
    if (is_candidate(ahead)) {
        count = ahead->count;
        if (make_way(ahead, ahead->expected, &windows)) {
            ahead->state = AHEAD_WANTED;
            ahead->partition = ahead->expected;
            is_new = !ahead->is_queued;
            ahead->is_queued = true;
        }
    }
    spw__partitions_unlock(all);
    if (windows != NULL)
        free_windows(all->context, windows, count);
    if (is_new)
        spw__worker_pool_add(ahead->pool, &ahead->job, SPW__JOB_URGENT);
}

/* ----- taking ----- */

/* Take what is there, of a partition or of any. With the lock held. */
static window *take(spw__ahead *ahead, uint32_t *ret_count)
{
    window *windows = ahead->state == AHEAD_READY ? ahead->windows : NULL;
    *ret_count = ahead->count;
    ahead->windows = NULL;
    ahead->state = AHEAD_NONE;
    return windows;
}

void spw__ahead_take(spw_partitions *all, uint32_t partition,
                     spw__chunk_reader *readers, uint32_t count)
{
    spw__ahead *ahead = ahead_of(all);
    window *windows = NULL;
    uint32_t found = 0;
    if (ahead == NULL)
        return;
    spw__partitions_lock(all);
    while (ahead->state == AHEAD_READING && ahead->partition == partition)
        (void)pthread_cond_wait(&all->changed, &all->lock);
    if (ahead->state != AHEAD_NONE && ahead->partition == partition)
        windows = take(ahead, &found);
    if (windows != NULL && ahead->wrong > 0)
        ahead->wrong--;
    spw__partitions_unlock(all);
    if (windows == NULL)
        return;
    /* A write may have added chunks since. */
    for (uint32_t i = 0; i < found && i < count; i++) {
        const spw__chunk *chunk = readers[i].chunk;
        readers[i] = windows[i].reader;
        readers[i].chunk = chunk;
        windows[i].reader.window = NULL;
    }
    free_windows(all->context, windows, found);
}

bool spw__ahead_drop(spw_partitions *all)
{
    spw__ahead *ahead = ahead_of(all);
    uint32_t count = 0;
    if (ahead == NULL)
        return false;
    spw__partitions_lock(all);
    while (ahead->state == AHEAD_READING)
        (void)pthread_cond_wait(&all->changed, &all->lock);
    window *windows = take(ahead, &count);
    spw__partitions_unlock(all);
    if (windows == NULL)
        return false;
    free_windows(all->context, windows, count);
    return true;
}

/* ----- giving back ----- */

static void release_chunks(spw_partitions *all, spw__chunk *chunks, uint32_t count,
                           size_t room)
{
    for (uint32_t i = 0; i < count; i++)
        spw__chunk_files_release(all->files, chunks[i].batch, chunks[i].offset,
                                 chunks[i].size);
    spw__release(all->context, chunks, room * sizeof *chunks, sizeof(void *));
}

static void run_release(spw__job *job)
{
    release *r = (release *)(void *)job;
    spw_partitions *all = r->all;
    release_chunks(all, r->chunks, r->count, r->room);
    spw__release(all->context, r, sizeof *r, _Alignof(release));
    spw__partitions_lock(all);
    all->ahead->releases--;
    (void)pthread_cond_broadcast(&all->changed);
    spw__partitions_unlock(all);
}

void spw__ahead_release(spw_partitions *all, spw__chunk *chunks, uint32_t count,
                        size_t room)
{
    spw__ahead *ahead = ahead_of(all);
    release *r = NULL;
    if (ahead != NULL && count > 0)
        r = spw__allocate(all->context, sizeof *r, _Alignof(release));
    if (r == NULL) {
        release_chunks(all, chunks, count, room);
        return;
    }
    *r = (release){{.run = run_release}, all, chunks, count, room};
    spw__partitions_lock(all);
    ahead->releases++;
    spw__partitions_unlock(all);
    spw__worker_pool_add(ahead->pool, &r->job, SPW__JOB_PATIENT);
}

void spw__ahead_wait_released(spw_partitions *all)
{
    const spw__ahead *ahead = ahead_of(all);
    while (ahead != NULL && ahead->releases > 0)
        (void)pthread_cond_wait(&all->changed, &all->lock);
}

/* ----- life ----- */

spw_status spw__ahead_create(spw_partitions *all, spw__ahead **ret_ahead,
                             spw_error *error)
{
    spw__ahead *ahead =
        spw__allocate(all->context, sizeof *ahead, _Alignof(spw__ahead));
    if (ahead == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory to read partitions ahead");
    *ahead = (spw__ahead){.all = all,
                          .fork_count = spw__process_fork_count(),
                          .job = {.run = run},
                          .expected = UINT32_MAX};
    spw_status status = spw__worker_pool_create(all->context, 1, &ahead->pool, error);
    if (status != SPW_STATUS_OK) {
        spw__release(all->context, ahead, sizeof *ahead, _Alignof(spw__ahead));
        return status;
    }
    *ret_ahead = ahead;
    return SPW_STATUS_OK;
}

void spw__ahead_free(spw__ahead *ahead)
{
    if (ahead == NULL)
        return;
    spw_context *context = ahead->all->context;
    if (ahead_of(ahead->all) != NULL) {
        spw__partitions_lock(ahead->all);
        if (ahead->state == AHEAD_WANTED)
            ahead->state = AHEAD_NONE;
        spw__partitions_unlock(ahead->all);
    }
    spw__worker_pool_free(ahead->pool);
    if (ahead->windows != NULL && ahead->state == AHEAD_READY)
        free_windows(context, ahead->windows, ahead->count);
    spw__release(context, ahead, sizeof *ahead, _Alignof(spw__ahead));
}
