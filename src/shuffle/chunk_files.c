/* Chunk files. Invariant: end of a directory's file is a multiple of SPW__DIRECT_BYTES,
 * and behind all batches; used_bytes is what they were reserved and has not been given
 * back, within the limit. */
#include "shuffle/chunk_files.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/past_cache.h"
#include "platform/clock.h"
#include "platform/private_directory.h"
#include "platform/process.h"
#include "platform/regular_file.h"

static const char PREFIX[] = "spillway-shuffle-";
enum { NAME_BYTES = sizeof PREFIX + 17 }; /* with a slash, 16 digits and the zero */

/* Beyond what any file can be, and no sum of it with another wraps. */
static const uint64_t BYTES_MAX = UINT64_C(1) << 62;

/* A file system takes as long for 4 KiB as for this: half of what reading costs, if
 * each chunk of 1 MiB is given back alone. Who reads partitions in order reads what
 * lies side by side. */
static const uint64_t PUNCH_BYTES = UINT64_C(4) << 20;

typedef struct directory {
    char *path; /* our own in the one that was named, whose path is its beginning */
    size_t path_bytes, named_length;
    int lock;             /* on it */
    uint64_t limit_bytes; /* BYTES_MAX: none */
    /* With the lock of all held. */
    /* Of the file, once it is made, until the end; negative: none. direct: past the
     * system's cache, for reading. */
    int descriptor, direct;
    uint64_t end, used_bytes;
    spw__disk_speed speed;
} directory;

struct spw__batch {
    directory *in;
    uint64_t offset, size; /* in the file; a multiple of SPW__DIRECT_BYTES */
    /* With the lock held. */
    uint32_t chunks;               /* not released */
    uint64_t given_bytes;          /* given back */
    uint64_t gone_begin, gone_end; /* chunks that are gone, and not given back */
};

struct spw__chunk_files {
    spw_context *context; /* one reference */
    uint32_t fork_count;
    size_t count;
    directory *directories;
    /* A leaf; held for no other call to the system than making a file. */
    pthread_mutex_t lock;
    uint64_t write_ns, read_ns;
};

/* A forked child would write over what its parent writes. */
static bool are_ours(const spw__chunk_files *files)
{
    return files->fork_count == spw__process_fork_count();
}

static uint64_t whole_pages(uint64_t size)
{
    return (size + SPW__DIRECT_BYTES - 1) & ~(uint64_t)(SPW__DIRECT_BYTES - 1);
}

/* ----- lifecycle ----- */

static spw_status open_directory(spw__chunk_files *files,
                                 const spw_partitions_directory *named, directory *in,
                                 spw_error *error)
{
    if (named->path == NULL || named->path[0] == '\0')
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a directory for partitions has no path");
    in->named_length = strlen(named->path);
    in->limit_bytes = named->limit_bytes > 0 && named->limit_bytes < BYTES_MAX
                          ? named->limit_bytes
                          : BYTES_MAX;
    in->path_bytes = in->named_length + NAME_BYTES;
    in->path = spw__allocate(files->context, in->path_bytes, 1);
    if (in->path == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for the name of a directory");
    (void)spw__private_directory_sweep(named->path, PREFIX, SPW__SPILL_FILE_PREFIX);
    in->lock =
        spw__private_directory_create(named->path, PREFIX, in->path, in->path_bytes);
    if (in->lock < 0)
        return spw__error_set(error, SPW_STATUS_IO, -in->lock,
                              "no directory for partitions can be made in %s; name one "
                              "that exists and may be written to",
                              named->path);
    return SPW_STATUS_OK;
}

static void close_directory(spw__chunk_files *files, directory *in)
{
    if (in->descriptor >= 0)
        spw__regular_file_close(in->descriptor);
    if (in->direct >= 0)
        spw__regular_file_close(in->direct);
    if (in->lock >= 0 && are_ours(files))
        spw__private_directory_remove(in->lock, in->path, SPW__SPILL_FILE_PREFIX);
    else if (in->lock >= 0)
        spw__private_directory_leave(in->lock);
    spw__release(files->context, in->path, in->path_bytes, 1);
}

spw_status spw__chunk_files_create(spw_context *context,
                                   const spw_partitions_directory *directories,
                                   size_t count, spw__chunk_files **ret_files,
                                   spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    if (directories == NULL || count == 0 || count > SIZE_MAX / sizeof(directory))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "no directory is named for partitions");
    spw__chunk_files *files =
        spw__allocate(context, sizeof *files, _Alignof(spw__chunk_files));
    directory *all =
        spw__allocate(context, count * sizeof(directory), _Alignof(directory));
    if (files == NULL || all == NULL) {
        spw__release(context, files, sizeof *files, _Alignof(spw__chunk_files));
        spw__release(context, all, count * sizeof(directory), _Alignof(directory));
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for what says where partitions are on disk");
    }
    *files = (spw__chunk_files){.context = spw_context_ref(context),
                                .fork_count = spw__process_fork_count(),
                                .count = count,
                                .directories = all};
    (void)pthread_mutex_init(&files->lock, NULL); /* plain ones cannot fail */
    for (size_t i = 0; i < count; i++)
        all[i] = (directory){.lock = -1, .descriptor = -1, .direct = -1};
    for (size_t i = 0; i < count && status == SPW_STATUS_OK; i++)
        status = open_directory(files, &directories[i], &all[i], error);
    if (status != SPW_STATUS_OK) {
        spw__chunk_files_free(files);
        return status;
    }
    *ret_files = files;
    return SPW_STATUS_OK;
}

void spw__chunk_files_free(spw__chunk_files *files)
{
    if (files == NULL)
        return;
    spw_context *context = files->context;
    for (size_t i = 0; i < files->count; i++)
        close_directory(files, &files->directories[i]);
    if (are_ours(files))
        (void)pthread_mutex_destroy(&files->lock);
    spw__release(context, files->directories, files->count * sizeof(directory),
                 _Alignof(directory));
    spw__release(context, files, sizeof *files, _Alignof(spw__chunk_files));
    spw_context_unref(context);
}

/* ----- writing ----- */

static spw_status tell_limit(const directory *in, uint64_t bytes, spw_error *error)
{
    return spw__error_set(
        error, SPW_STATUS_LIMIT_EXCEEDED, 0,
        "no room on disk for %" PRIu64 " bytes of partitions: %" PRIu64 " of %" PRIu64
        " bytes are used in %.*s; raise that limit or "
        "memory's, or name another directory",
        bytes, in->used_bytes, in->limit_bytes, (int)in->named_length, in->path);
}

static spw_status tell_fault(const directory *in, int descriptor, int os_errno,
                             uint64_t bytes, spw_error *error)
{
    uint64_t room;
    if (descriptor < 0 || spw__spill_file_room(descriptor, &room) < 0)
        return spw__error_set(error, SPW_STATUS_IO, os_errno,
                              "cannot make a file for %" PRIu64
                              " bytes of partitions in %.*s; is it still there, has it "
                              "room, are files left to be opened (ulimit -n)?",
                              bytes, (int)in->named_length, in->path);
    return spw__error_set(error, SPW_STATUS_IO, os_errno,
                          "cannot write %" PRIu64 " bytes of partitions in %.*s, where "
                          "%" PRIu64 " are free; free some space there, name another "
                          "directory, or raise the limit of memory",
                          bytes, (int)in->named_length, in->path, room);
}

/* Reserve the range of a batch. Returns: the descriptor of its file, or a negative
 * errno: EDQUOT where the limit has no room, and then error says so. */
static int reserve(spw__chunk_files *files, spw__batch *batch, uint64_t bytes,
                   bool *ret_is_limit, spw_error *error)
{
    directory *in = batch->in;
    *ret_is_limit = false;
    (void)pthread_mutex_lock(&files->lock);
    if (batch->size > in->limit_bytes ||
        in->used_bytes > in->limit_bytes - batch->size) {
        *ret_is_limit = true;
        (void)tell_limit(in, bytes, error);
    } else if (in->descriptor < 0) {
        in->descriptor = spw__spill_file_create(in->path);
        if (in->descriptor >= 0)
            in->direct = spw__spill_file_open_direct(in->descriptor);
    }
    int descriptor = in->descriptor;
    if (!*ret_is_limit && descriptor >= 0) {
        batch->offset = in->end;
        in->end += batch->size;
        in->used_bytes += batch->size;
    }
    (void)pthread_mutex_unlock(&files->lock);
    return descriptor;
}

/* What was written of a batch goes, and if nothing is behind it, its range too. */
static void take_back(spw__chunk_files *files, const spw__batch *batch)
{
    directory *in = batch->in;
    (void)pthread_mutex_lock(&files->lock);
    bool is_last = in->end == batch->offset + batch->size;
    int answer =
        is_last ? spw__spill_file_cut(in->descriptor, batch->offset)
                : spw__spill_file_punch(in->descriptor, batch->offset, batch->size);
    if (is_last)
        in->end -= batch->size; /* whatever is there will be written over */
    if (is_last || answer == 0)
        in->used_bytes -= batch->size;
    (void)pthread_mutex_unlock(&files->lock);
}

static int write_range(spw__chunk_files *files, const spw__batch *batch, int descriptor,
                       const spw__spill_part *parts, size_t count, uint64_t size)
{
    directory *in = batch->in;
    (void)pthread_mutex_lock(&files->lock);
    spw__disk_speed speed = in->speed;
    (void)pthread_mutex_unlock(&files->lock);
    uint64_t before = spw__clock_ns();
    bool is_direct =
        size >= SPW__DIRECT_FROM_BYTES && spw__disk_is_fast(&speed, spw__clock_ms());
    int answer = is_direct
                     ? spw__write_past_cache(files->context, descriptor, parts, count,
                                             batch->offset, &speed)
                     : spw__spill_file_write(descriptor, parts, count, batch->offset);
    uint64_t taken = spw__clock_ns() - before;
    (void)pthread_mutex_lock(&files->lock);
    if (is_direct)
        in->speed = speed;
    files->write_ns += taken;
    (void)pthread_mutex_unlock(&files->lock);
    return answer;
}

spw_status spw__chunk_files_write(spw__chunk_files *files, const spw__spill_part *parts,
                                  size_t count, uint64_t size, uint32_t chunks,
                                  spw__batch **ret_batch, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    if (!are_ours(files))
        return spw__error_set(error, SPW_STATUS_IO, 0,
                              "nothing leaves memory in a forked process");
    if (size > BYTES_MAX)
        return tell_limit(&files->directories[0], size, error);
    spw__batch *batch =
        spw__allocate(files->context, sizeof *batch, _Alignof(spw__batch));
    if (batch == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for what says where partitions are on disk");
    for (size_t i = 0; i < files->count; i++) {
        bool is_limit;
        directory *in = &files->directories[i];
        *batch = (spw__batch){.in = in, .size = size, .chunks = chunks};
        int descriptor = reserve(files, batch, size, &is_limit, error);
        if (is_limit) {
            status = SPW_STATUS_LIMIT_EXCEEDED;
            continue;
        }
        int answer = descriptor < 0
                         ? descriptor
                         : write_range(files, batch, descriptor, parts, count, size);
        if (answer >= 0) {
            *ret_batch = batch;
            return SPW_STATUS_OK;
        }
        status = tell_fault(in, descriptor, -answer, size, error);
        if (descriptor >= 0)
            take_back(files, batch);
    }
    spw__release(files->context, batch, sizeof *batch, _Alignof(spw__batch));
    return status;
}

/* ----- reading ----- */

spw_status spw__chunk_files_read(spw__chunk_files *files, const spw__batch *batch,
                                 uint64_t offset, void *data, size_t size,
                                 spw_error *error)
{
    directory *in = batch->in;
    int answer = -EINVAL;
    uint64_t before = spw__clock_ns(), at = batch->offset + offset;
    (void)pthread_mutex_lock(&files->lock);
    int descriptor = in->descriptor;
    int direct = spw__disk_is_fast(&in->speed, spw__clock_ms()) ? in->direct : -1;
    (void)pthread_mutex_unlock(&files->lock);
    /* Small ones too: nobody reads them again, and a page of the cache costs more. */
    if (direct >= 0)
        answer = spw__spill_file_read(direct, data, size, at);
    if (answer == -EINVAL) /* or the disk asks for more than we know of */
        answer = spw__spill_file_read(descriptor, data, size, at);
    uint64_t taken = spw__clock_ns() - before;
    (void)pthread_mutex_lock(&files->lock);
    files->read_ns += taken;
    (void)pthread_mutex_unlock(&files->lock);
    if (answer >= 0)
        return SPW_STATUS_OK;
    return spw__error_set(
        error, answer == -ENODATA ? SPW_STATUS_CORRUPT : SPW_STATUS_IO, -answer,
        "cannot read %zu bytes of a partition back from %.*s", size,
        (int)in->named_length, in->path);
}

/* Returns: how many bytes the disk has again. */
static uint64_t punch(const spw__batch *batch, uint64_t from, uint64_t to)
{
    if (from >= to || spw__spill_file_punch(batch->in->descriptor, batch->offset + from,
                                            to - from) < 0)
        return 0;
    return to - from;
}

/* Add a chunk to what of its batch is gone and not given back, which is one range.
 * Returns: whether some is to be given back now, in ret_from and ret_to: the range
 * where it is large, or what it was where the chunk is no neighbour. With the lock
 * held. */
static bool add_gone(spw__batch *batch, uint64_t offset, uint64_t size,
                     uint64_t *ret_from, uint64_t *ret_to)
{
    uint64_t end = offset + size;
    bool is_neighbour = offset == batch->gone_end || end == batch->gone_begin;
    *ret_from = batch->gone_begin;
    *ret_to = batch->gone_end;
    if (is_neighbour) {
        batch->gone_begin = offset < *ret_from ? offset : *ret_from;
        batch->gone_end = end > *ret_to ? end : *ret_to;
        *ret_from = batch->gone_begin;
        *ret_to = batch->gone_end;
        if (*ret_to - *ret_from < PUNCH_BYTES)
            return false;
        offset = end = batch->gone_end; /* the next one may go on there */
    }
    batch->gone_begin = offset;
    batch->gone_end = end;
    return true;
}

void spw__chunk_files_release(spw__chunk_files *files, spw__batch *batch,
                              uint64_t offset, uint64_t size)
{
    uint64_t from, to, given = 0;
    if (!are_ours(files)) { /* the lock may be held by a thread that is not there */
        if (--batch->chunks == 0)
            spw__release(files->context, batch, sizeof *batch, _Alignof(spw__batch));
        return;
    }
    (void)pthread_mutex_lock(&files->lock);
    bool is_due = add_gone(batch, offset, size, &from, &to);
    (void)pthread_mutex_unlock(&files->lock);
    /* Pages of which others have a part stay until the last of them goes. */
    if (is_due)
        given =
            punch(batch, whole_pages(from), to & ~(uint64_t)(SPW__DIRECT_BYTES - 1));
    (void)pthread_mutex_lock(&files->lock);
    batch->given_bytes += given;
    batch->in->used_bytes -= given;
    bool is_last = --batch->chunks == 0;
    (void)pthread_mutex_unlock(&files->lock);
    if (!is_last)
        return;
    if (batch->given_bytes < batch->size && punch(batch, 0, batch->size) > 0) {
        (void)pthread_mutex_lock(&files->lock);
        batch->in->used_bytes -= batch->size - batch->given_bytes;
        (void)pthread_mutex_unlock(&files->lock);
    }
    spw__release(files->context, batch, sizeof *batch, _Alignof(spw__batch));
}

void spw__chunk_files_read_figures(spw__chunk_files *files,
                                   spw__chunk_files_figures *ret_figures)
{
    *ret_figures = (spw__chunk_files_figures){0};
    if (!are_ours(files))
        return;
    (void)pthread_mutex_lock(&files->lock);
    ret_figures->write_ns = files->write_ns;
    ret_figures->read_ns = files->read_ns;
    for (size_t i = 0; i < files->count; i++)
        ret_figures->used_bytes += files->directories[i].used_bytes;
    (void)pthread_mutex_unlock(&files->lock);
}
