/* Files without a name on Linux. */
#include "platform/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/peer_process.h"

/* Larger calls are no faster (on ext4 from 2 MiB on all are the same, 2 to 4 GB/s into
 * the page cache), and a file is locked during each, for whoever else writes to it. */
static const size_t BYTES_PER_CALL = 8 << 20;
enum { PIECES_PER_CALL = 256, ATTEMPTS = 8 };
_Static_assert((int)PIECES_PER_CALL <= IOV_MAX, "the system refuses more");

static const int FLAGS = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
static const mode_t OWNER = S_IRUSR | S_IWUSR;

/* A file that has a name until it is open. */
static int create_by_name(const char *directory)
{
    int at = open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return -errno;
    int answer = -EEXIST;
    for (int attempt = 0; answer == -EEXIST && attempt < ATTEMPTS; attempt++) {
        char name[sizeof SPW__SPILL_FILE_PREFIX + 16];
        unsigned long long number;
        answer = spw__random_bytes(&number, sizeof number);
        if (answer < 0)
            break;
        (void)snprintf(name, sizeof name, SPW__SPILL_FILE_PREFIX "%016llx", number);
        answer = openat(at, name, FLAGS | O_CREAT | O_EXCL, OWNER);
        if (answer < 0)
            answer = -errno;
        else if (unlinkat(at, name, 0) != 0) {
            int unlinked = -errno;
            (void)close(answer);
            answer = unlinked;
        }
    }
    (void)close(at);
    return answer;
}

int spw__spill_file_create(const char *directory)
{
    /* With O_EXCL it can never be given a name. */
    int descriptor = open(directory, FLAGS | O_TMPFILE | O_EXCL, OWNER);
    if (descriptor >= 0)
        return descriptor;
    switch (errno) {
    case EOPNOTSUPP: /* the file system cannot: NFS, some of FUSE */
    case EISDIR:     /* the kernel cannot, and takes it for a directory */
    case ENOENT:
    case EINVAL:
    case ENOSYS:
        return create_by_name(directory);
    default:
        return -errno;
    }
}

/* By the only name that it has. */
static int open_again(int descriptor, int flags)
{
    char name[sizeof "/proc/self/fd/" + 11];
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    int answer = open(name, flags | O_CLOEXEC);
    return answer >= 0 ? answer : -errno;
}

int spw__spill_file_open_direct(int descriptor)
{
    /* Memory that was read or written by two descriptors of one file in turn is the
     * same: the kernel sees to that, page by page. */
    int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 ? open_again(descriptor, (flags & O_ACCMODE) | O_DIRECT) : -errno;
}

/* A lock of the open file, not of the process: it goes neither when another descriptor
 * of the same file is closed, as open_direct's is all the time, nor as long as one that
 * was passed on is open. */
int spw__spill_file_hold(int descriptor)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

int spw__spill_file_reopen(int descriptor)
{
    return open_again(descriptor, O_RDONLY);
}

int spw__spill_file_is_held(int descriptor)
{
    /* What would be in the way of a lock that is never taken. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(descriptor, F_OFD_GETLK, &lock) != 0)
        return -errno;
    return lock.l_type != F_UNLCK ? 1 : 0;
}

/* The parts from *index on, of which skipped bytes of the first are written already, as
 * one call may move them. Returns: how many pieces; how many bytes they are. */
static int next_pieces(const spw__spill_part *parts, size_t count, size_t index,
                       size_t skipped, struct iovec pieces[PIECES_PER_CALL],
                       size_t *ret_bytes)
{
    int used = 0;
    size_t left = BYTES_PER_CALL;
    for (; index < count && used < PIECES_PER_CALL && left > 0; index++) {
        size_t size = parts[index].size - skipped;
        if (size > left)
            size = left;
        if (size > 0)
            pieces[used++] = (struct iovec){
                .iov_base = (char *)(uintptr_t)parts[index].data + skipped,
                .iov_len = size};
        left -= size;
        skipped = 0;
    }
    *ret_bytes = BYTES_PER_CALL - left;
    return used;
}

int spw__spill_file_write(int descriptor, const spw__spill_part *parts, size_t count,
                          uint64_t offset)
{
    size_t index = 0, skipped = 0;
    for (;;) {
        struct iovec pieces[PIECES_PER_CALL];
        size_t bytes;
        int used = next_pieces(parts, count, index, skipped, pieces, &bytes);
        if (used == 0)
            return 0;
        ssize_t written = pwritev(descriptor, pieces, used, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        if (written == 0)
            return -EIO; /* without it, this would not end */
        offset += (uint64_t)written;
        for (size_t left = (size_t)written; left > 0;) {
            size_t size = parts[index].size - skipped;
            size_t step = size < left ? size : left;
            skipped += step;
            left -= step;
            if (skipped == parts[index].size) {
                index++;
                skipped = 0;
            }
        }
    }
}

int spw__spill_file_cut(int descriptor, uint64_t size)
{
    while (ftruncate(descriptor, (off_t)size) != 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

int spw__spill_file_punch(int descriptor, uint64_t offset, uint64_t size)
{
    while (fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     (off_t)offset, (off_t)size) != 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

int spw__spill_file_room(int descriptor, uint64_t *ret_bytes)
{
    struct statvfs about;
    if (fstatvfs(descriptor, &about) != 0)
        return -errno;
    *ret_bytes = (uint64_t)about.f_bavail * about.f_frsize;
    return 0;
}

int spw__spill_file_read(int descriptor, void *data, size_t size, uint64_t offset)
{
    char *next = data;
    while (size > 0) {
        size_t step = size < BYTES_PER_CALL ? size : BYTES_PER_CALL;
        ssize_t got = pread(descriptor, next, step, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -ENODATA;
        next += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}
