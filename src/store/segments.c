/* Segments: what is reserved goes behind what was reserved before, in the file that the
 * first directory with room has open.
 *
 * How large a file becomes: 64 MiB as long as there are fewer than 64, 128 MiB until
 * there are 128, and so on, up to 4 GiB; so 1,000 descriptors hold 2.5 TiB, while a
 * store of some GiB gives space back in small steps. What would fill more than half of
 * a new file, and does not fit where others are, gets one of exactly its size.
 *
 * Invariant: that of segments_state.h. An open one whose last range goes is dead at
 * once, since what was written to it is never rewritten. */
#include "store/segments.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/clock.h"
#include "platform/private_directory.h"
#include "platform/spill_file.h"
#include "store/segments_state.h"

static const char PREFIX[] = "spillway-store-";
enum { NAME_BYTES = sizeof PREFIX + 17 }; /* with a slash, 16 digits and the zero */

enum { FILES_PER_SIZE = 64, DOUBLINGS_MAX = 6 };

static const uint64_t REFUSED_MS = 30000;

/* ---- directories ---- */

static spw_status open_directory(spw__segments *segments,
                                 const spw_store_directory *named, spw__directory *in,
                                 spw_error *error)
{
    if (named->path == NULL || named->path[0] == '\0')
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a directory for what leaves memory has no path");
    in->named_length = strlen(named->path);
    in->limit_bytes =
        named->limit_bytes > 0 && named->limit_bytes < SPW__SEGMENT_BYTES_MAX
            ? named->limit_bytes
            : SPW__SEGMENT_BYTES_MAX;
    size_t bytes = in->named_length + NAME_BYTES;
    in->path = spw__allocate(segments->context, bytes, 1);
    if (in->path == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for the name of a directory");
    in->path_bytes = bytes;
    /* Nobody's directory is missed when there is nothing to sweep. */
    (void)spw__private_directory_sweep(named->path, PREFIX, SPW__SPILL_FILE_PREFIX);
    in->lock = spw__private_directory_create(named->path, PREFIX, in->path, bytes);
    if (in->lock < 0)
        return spw__error_set(error, SPW_STATUS_IO, -in->lock,
                              "values cannot leave memory for %s, where no directory "
                              "can be made; name one that exists and may be written to",
                              named->path);
    return SPW_STATUS_OK;
}

static void close_directory(spw__segments *segments, spw__directory *in)
{
    if (in->lock >= 0 && spw__segments_are_ours(segments))
        spw__private_directory_remove(in->lock, in->path, SPW__SPILL_FILE_PREFIX);
    else if (in->lock >= 0)
        spw__private_directory_leave(in->lock);
    spw__release(segments->context, in->path, in->path_bytes, 1);
}

spw_status spw__segments_create(spw_context *context,
                                const spw_store_directory *directories, size_t count,
                                uint64_t first_bytes, spw__segments **ret_segments,
                                spw_error *error)
{
    if (count == 0 || count > SIZE_MAX / sizeof(spw__directory))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "no directory is named for what leaves memory");
    spw__segments *segments =
        spw__allocate(context, sizeof *segments, _Alignof(spw__segments));
    spw__directory *all = spw__allocate(context, count * sizeof(spw__directory),
                                        _Alignof(spw__directory));
    if (segments == NULL || all == NULL) {
        spw__release(context, segments, sizeof *segments, _Alignof(spw__segments));
        spw__release(context, all, count * sizeof(spw__directory),
                     _Alignof(spw__directory));
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for what says where values are on disk");
    }
    *segments = (spw__segments){.context = spw_context_ref(context),
                                .fork_count = spw__process_fork_count(),
                                .count = count,
                                .first_bytes = first_bytes,
                                .directories = all};
    (void)pthread_mutex_init(&segments->lock, NULL); /* plain ones cannot fail */
    for (size_t i = 0; i < count; i++)
        all[i] = (spw__directory){.lock = -1};
    for (size_t i = 0; i < count; i++) {
        spw_status status = open_directory(segments, &directories[i], &all[i], error);
        if (status != SPW_STATUS_OK) {
            spw__segments_free(segments);
            return status;
        }
    }
    *ret_segments = segments;
    return SPW_STATUS_OK;
}

/* ---- segments ---- */

spw_status spw__segment_create(spw__segments *segments, spw_file *file,
                               spw__segment **ret_segment, spw_error *error)
{
    spw__segment *segment =
        spw__allocate(segments->context, sizeof *segment, _Alignof(spw__segment));
    if (segment == NULL) {
        spw_file_unref(file);
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a segment on disk");
    }
    *segment = (spw__segment){.file = file};
    *ret_segment = segment;
    return SPW_STATUS_OK;
}

static const char *hint_for(int os_errno)
{
    if (os_errno == EMFILE || os_errno == ENFILE)
        return "raise this process's limit of open files, ulimit -n";
    if (os_errno == ENOSPC || os_errno == EDQUOT)
        return "free some space there, or name another directory";
    return "is it still there, and may it be written to?";
}

/* Blocks: without the lock. Errors: IO, NO_MEMORY. */
static spw_status create_segment(spw__segments *segments, spw__directory *in,
                                 uint64_t capacity, spw__segment **ret_segment,
                                 spw_error *error)
{
    int descriptor = spw__spill_file_create(in->path);
    if (descriptor < 0)
        return spw__error_set(error, SPW_STATUS_IO, -descriptor,
                              "cannot make a file for what leaves memory in %.*s (%s)",
                              (int)in->named_length, in->path, hint_for(-descriptor));
    /* Where that fails, those who are given it never take it for one that was let go
     * of.
     */
    (void)spw__spill_file_hold(descriptor);
    spw_file *file;
    spw__segment *segment;
    spw_status status = spw_file_adopt(segments->context, descriptor, &file, error);
    if (status != SPW_STATUS_OK) {
        spw__regular_file_close(descriptor);
        return status;
    }
    status = spw__segment_create(segments, file, &segment, error);
    if (status != SPW_STATUS_OK)
        return status;
    segment->in = in;
    segment->capacity = capacity;
    *ret_segment = segment;
    return SPW_STATUS_OK;
}

void spw__segment_free(spw__segments *segments, spw__segment *segment)
{
    spw_file_unref(segment->file);
    spw__release(segments->context, segment, sizeof *segment, _Alignof(spw__segment));
}

/* What follows: with the lock held. */

static void seal(spw__segments *segments, spw__segment *segment)
{
    if (segment == NULL)
        return;
    segment->is_sealed = true;
    if (segment->in->open == segment)
        segment->in->open = NULL;
    spw__segment_note_if_sparse(segments, segment);
}

bool spw__directory_has_room(const spw__directory *in, uint64_t space)
{
    return in->file_bytes <= in->limit_bytes &&
           space <= in->limit_bytes - in->file_bytes;
}

/* Returns: whether the file that a directory has open has the room. */
static bool fits_open(const spw__directory *in, uint64_t space)
{
    return in->open != NULL && space <= in->open->capacity - in->open->used &&
           spw__directory_has_room(in, space);
}

static void take(spw__segments *segments, spw__segment *segment, uint64_t bytes,
                 spw__range *ret_range)
{
    uint64_t space = spw__segment_space(bytes);
    *ret_range =
        (spw__range){.segment = segment, .offset = segment->used, .bytes = bytes};
    segment->used += space;
    segment->wanted += space;
    assert(segment->used <= segment->capacity);
    segment->in->file_bytes += space;
    segments->own_used += space;
    segments->own_wanted += space;
    segments->figures.file_bytes += space;
    segments->figures.range_bytes += bytes;
    if (segment->used == segment->capacity)
        seal(segments, segment);
}

/* ---- reserving ---- */

/* Returns: into how many directories a write has failed of late. With the lock held. */
static size_t count_refused(const spw__segments *segments, uint64_t now_ms)
{
    size_t count = 0;
    for (size_t i = 0; i < segments->count; i++)
        count += segments->directories[i].refused_until_ms > now_ms;
    return count;
}

static bool is_any_refused(spw__segments *segments)
{
    uint64_t now_ms = spw__clock_ms();
    spw__segments_lock(segments);
    bool is = count_refused(segments, now_ms) > 0;
    spw__segments_unlock(segments);
    return is;
}

size_t spw__segments_directories(const spw__segments *segments)
{
    return segments->count;
}

bool spw__segments_refuse(spw__segments *segments, const spw__range *range)
{
    if (!spw__segments_are_ours(segments))
        return false;
    uint64_t now_ms = spw__clock_ms();
    spw__segments_lock(segments);
    range->segment->in->refused_until_ms = now_ms + REFUSED_MS;
    bool is_other = count_refused(segments, now_ms) < segments->count;
    spw__segments_unlock(segments);
    return is_other;
}

/* The first directory from *index on with room for bytes.
 * Returns: whether there is one, in *index; the range if its open file has the room,
 * else the capacity of the file that it needs. With the lock held. */
static bool find_room(spw__segments *segments, uint64_t bytes, bool takes_refused,
                      size_t *index, uint64_t *ret_capacity, spw__range *ret_range)
{
    uint64_t space = spw__segment_space(bytes);
    uint64_t trusted_ms = takes_refused ? UINT64_MAX : spw__clock_ms();
    for (; *index < segments->count; ++*index) {
        spw__directory *in = &segments->directories[*index];
        if (in->refused_until_ms > trusted_ms)
            continue;
        if (fits_open(in, space)) {
            take(segments, in->open, bytes, ret_range);
            return true;
        }
        if (!spw__directory_has_room(in, space))
            continue;
        uint64_t doublings = segments->figures.files / FILES_PER_SIZE;
        uint64_t usual = segments->first_bytes
                         << (doublings < DOUBLINGS_MAX ? doublings : DOUBLINGS_MAX);
        *ret_capacity = space > usual / 2 ? space : usual;
        return true;
    }
    return false;
}

/* Put a new segment to use, unless its directory got room, or lost it, meanwhile.
 * Returns: whether there is a range. Takes: segment, if it answers true by it. */
static bool use_segment(spw__segments *segments, spw__segment *segment, uint64_t bytes,
                        spw__range *ret_range)
{
    spw__directory *in = segment->in;
    uint64_t space = spw__segment_space(bytes), room = UINT64_MAX;
    bool is_own = segment->capacity == space;
    (void)spw__spill_file_room(spw_file_descriptor(segment->file), &room);
    spw__segments_lock(segments);
    in->is_tight = room < in->file_bytes;
    bool is_done = true;
    if (fits_open(in, space)) {
        take(segments, in->open, bytes, ret_range);
    } else if (spw__directory_has_room(in, space)) {
        segments->figures.files++;
        if (!is_own) {
            seal(segments, in->open);
            in->open = segment;
        }
        take(segments, segment, bytes, ret_range); /* which seals one of its own */
    } else {
        is_done = false;
    }
    spw__segments_unlock(segments);
    return is_done;
}

/* In the directories from *index on, which goes behind one where no file can be made.
 * Returns: OK with a range, or with none when there is no room. */
static spw_status try_reserve(spw__segments *segments, uint64_t bytes,
                              bool takes_refused, size_t *index, spw__range *ret_range,
                              spw_error *error)
{
    for (;;) {
        uint64_t capacity = 0;
        spw__segments_lock(segments);
        bool is_room =
            find_room(segments, bytes, takes_refused, index, &capacity, ret_range);
        spw__segments_unlock(segments);
        if (!is_room || ret_range->segment != NULL)
            return SPW_STATUS_OK;
        spw__segment *segment = NULL;
        spw_status status = create_segment(segments, &segments->directories[*index],
                                           capacity, &segment, error);
        if (status != SPW_STATUS_OK)
            return status;
        (void)use_segment(segments, segment, bytes, ret_range);
        if (ret_range->segment != segment)
            spw__segment_free(segments, segment);
        if (ret_range->segment != NULL)
            return SPW_STATUS_OK;
    }
}

static spw_status tell_limits(spw__segments *segments, uint64_t bytes, spw_error *error)
{
    char text[sizeof error->message] = "";
    size_t used = 0;
    spw__segments_lock(segments);
    for (size_t i = 0; i < segments->count && used < sizeof text; i++) {
        const spw__directory *in = &segments->directories[i];
        int added = snprintf(text + used, sizeof text - used,
                             "%s %" PRIu64 " of %" PRIu64 " are used in %.*s",
                             i == 0 ? "" : ",", in->file_bytes, in->limit_bytes,
                             (int)in->named_length, in->path);
        used += added > 0 ? (size_t)added : sizeof text;
    }
    spw__segments_unlock(segments);
    return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                          "no room on disk for %" PRIu64 " bytes (raise the limit, or "
                          "name another directory):%s",
                          bytes, text);
}

/* Errors: LIMIT_EXCEEDED, IO, NO_MEMORY. */
static spw_status reserve_somewhere(spw__segments *segments, uint64_t bytes,
                                    bool takes_refused, spw__range *ret_range,
                                    spw_error *error)
{
    spw_status failed = SPW_STATUS_OK;
    for (size_t index = 0; bytes <= SPW__SEGMENT_BYTES_MAX && index < segments->count;
         index++) {
        spw__range range = {0};
        spw_status status =
            try_reserve(segments, bytes, takes_refused, &index, &range, error);
        if (range.segment != NULL) {
            *ret_range = range;
            return SPW_STATUS_OK;
        }
        if (status == SPW_STATUS_NO_MEMORY)
            return status;
        if (status != SPW_STATUS_OK)
            failed = status;
    }
    return failed != SPW_STATUS_OK ? failed : tell_limits(segments, bytes, error);
}

spw_status spw__segments_reserve(spw__segments *segments, uint64_t bytes,
                                 spw__range *ret_range, spw_error *error)
{
    assert(bytes > 0);
    if (!spw__segments_are_ours(segments))
        return spw__error_set(error, SPW_STATUS_IO, 0,
                              "nothing leaves memory in a forked process");
    spw_status status = SPW_STATUS_OK;
    do {
        status = reserve_somewhere(segments, bytes, false, ret_range, error);
        if ((status == SPW_STATUS_IO || status == SPW_STATUS_LIMIT_EXCEEDED) &&
            is_any_refused(segments))
            status = reserve_somewhere(segments, bytes, true, ret_range, error);
        if (status != SPW_STATUS_IO && status != SPW_STATUS_LIMIT_EXCEEDED)
            return status;
    } while (spw__segments_collect(segments) > 0);
    return status;
}

/* ---- releasing ---- */

spw_file *spw__range_file(const spw__range *range)
{
    return range->segment->file;
}

/* Nothing is wanted of a segment any more. With the lock held. */
static void bury(spw__segments *segments, spw__segment *segment)
{
    seal(segments, segment);
    spw__sparse_forget(segments, segment);
    if (segment->is_foreign)
        spw__foreign_forget(segments, segment);
    else
        segments->own_used -= segment->used;
    segment->next = segments->dead;
    segments->dead = segment;
}

/* What a segment takes no more. With the lock held. */
static void uncharge(spw__segments *segments, spw__segment *segment, uint64_t space)
{
    segment->used -= space;
    segment->in->file_bytes -= space;
    segments->figures.file_bytes -= space;
}

/* What a range takes at the end of what its file was reserved for. With the lock held,
 * so that nobody writes there meanwhile. */
static void cut(spw__segments *segments, spw__segment *segment, const spw__range *range)
{
    uint64_t space = spw__segment_space(range->bytes);
    if (segment->is_sealed || range->offset + space != segment->used)
        return;
    /* If that fails, what comes next is written over it: nobody was given it. */
    (void)spw__spill_file_cut(spw_file_descriptor(segment->file), range->offset);
    uncharge(segments, segment, space);
    segments->own_used -= space;
}

static bool is_due(const spw__segments *segments)
{
    return segments->dead != NULL || segments->given_back_bytes > 0 ||
           spw__sparse_is_due(segments);
}

bool spw__segments_are_due(spw__segments *segments)
{
    if (!spw__segments_are_ours(segments))
        return false;
    spw__segments_lock(segments);
    bool is = is_due(segments);
    spw__segments_unlock(segments);
    return is;
}

static bool give_back(spw__segments *segments, spw__range *range, bool is_written)
{
    spw__segment *segment = range->segment;
    range->segment = NULL;
    if (segment == NULL || !spw__segments_are_ours(segments))
        return false;
    spw__segments_lock(segments);
    uint64_t space = spw__segment_space(range->bytes);
    assert(segment->wanted >= space);
    segment->wanted -= space;
    segments->figures.range_bytes -= range->bytes;
    if (segment->is_foreign) {
        uncharge(segments, segment, space);
        segments->given_back_bytes += space;
    } else {
        segments->own_wanted -= space;
        if (!is_written)
            cut(segments, segment, range);
    }
    spw__segment_note_if_sparse(segments, segment);
    if (segment->wanted == 0)
        bury(segments, segment);
    bool is_something = is_due(segments);
    spw__segments_unlock(segments);
    return is_something;
}

bool spw__segments_release(spw__segments *segments, spw__range *range)
{
    return give_back(segments, range, true);
}

bool spw__segments_give_up(spw__segments *segments, spw__range *range)
{
    return give_back(segments, range, false);
}

/* Returns: NULL when there is none. */
static spw__segment *next_dead(spw__segments *segments)
{
    spw__segments_lock(segments);
    spw__segment *segment = segments->dead;
    if (segment != NULL)
        segments->dead = segment->next;
    spw__segments_unlock(segments);
    return segment;
}

uint64_t spw__segments_collect(spw__segments *segments)
{
    if (!spw__segments_are_ours(segments))
        return 0;
    spw__segments_lock(segments);
    uint64_t bytes = segments->given_back_bytes;
    segments->given_back_bytes = 0;
    spw__segments_unlock(segments);
    for (spw__segment *segment; (segment = next_dead(segments)) != NULL;) {
        spw__directory *in = segment->in;
        uint64_t used = segment->used;
        bool is_foreign = segment->is_foreign;
        /* Where slices hold the file still, its space follows with the last of them;
         * nobody tells us when. */
        spw__segment_free(segments, segment);
        spw__segments_lock(segments);
        in->file_bytes -= used;
        in->refused_until_ms = 0; /* there is room again */
        segments->figures.file_bytes -= used;
        segments->figures.files -= !is_foreign;
        segments->figures.foreign_files -= is_foreign;
        spw__segments_unlock(segments);
        bytes += used;
    }
    return bytes;
}

void spw__segments_read(spw__segments *segments, spw__segments_figures *ret_figures)
{
    *ret_figures = (spw__segments_figures){0};
    if (!spw__segments_are_ours(segments))
        return;
    spw__segments_lock(segments);
    *ret_figures = segments->figures;
    spw__segments_unlock(segments);
}

void spw__segments_free(spw__segments *segments)
{
    if (segments == NULL)
        return;
    spw_context *context = segments->context;
    (void)spw__segments_collect(segments);
    for (size_t i = 0; i < segments->count; i++)
        close_directory(segments, &segments->directories[i]);
    if (spw__segments_are_ours(segments)) {
        assert(segments->figures.files == 0 && segments->figures.foreign_files == 0);
        (void)pthread_mutex_destroy(&segments->lock);
    }
    spw__release(context, segments->directories,
                 segments->count * sizeof(spw__directory), _Alignof(spw__directory));
    spw__release(context, segments, sizeof *segments, _Alignof(spw__segments));
    spw_context_unref(context);
}
