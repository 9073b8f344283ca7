/* Spill files, on the file system of /tmp and on one that can less, moves less in a
 * call, and is interrupted. */
#include "platform/spill_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io_fault.h"
#include "platform/regular_file.h"
#include "private_place.h"
#include "testing.h"

static struct {
    int refuses_nameless; /* errno; 0: no */
    size_t most_bytes;    /* a call moves; 0: all */
    bool interrupts;      /* every other call */
    int fails_write_with; /* errno, or -1: nothing is written; 0: no */
    unsigned writes, reads, opens;
    size_t largest_call;
    int most_pieces;
} files;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode =
        (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : (mode_t)0;
    va_end(rest);
    files.opens++;
    if ((flags & O_TMPFILE) == O_TMPFILE && files.refuses_nameless != 0) {
        errno = files.refuses_nameless;
        return -1;
    }
    return __real_open(path, flags, mode);
}

static bool is_interrupted(unsigned calls)
{
    errno = EINTR;
    return files.interrupts && calls % 2 == 1;
}

static void note_call(size_t bytes, int pieces)
{
    files.largest_call = bytes > files.largest_call ? bytes : files.largest_call;
    files.most_pieces = pieces > files.most_pieces ? pieces : files.most_pieces;
}

ssize_t __real_pwritev(int descriptor, const struct iovec *pieces, int count,
                       off_t offset);
ssize_t __wrap_pwritev(int descriptor, const struct iovec *pieces, int count,
                       off_t offset);
ssize_t __wrap_pwritev(int descriptor, const struct iovec *pieces, int count,
                       off_t offset)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += pieces[i].iov_len;
    note_call(total, count);
    if (is_interrupted(++files.writes))
        return -1;
    if (files.fails_write_with != 0) {
        errno = files.fails_write_with;
        return files.fails_write_with < 0 ? 0 : -1;
    }
    struct iovec first = pieces[0];
    if (files.most_bytes == 0 || total <= files.most_bytes)
        return __real_pwritev(descriptor, pieces, count, offset);
    if (first.iov_len > files.most_bytes)
        first.iov_len = files.most_bytes;
    return __real_pwritev(descriptor, &first, 1, offset);
}

ssize_t __real_pread(int descriptor, void *data, size_t size, off_t offset);
ssize_t __wrap_pread(int descriptor, void *data, size_t size, off_t offset);
ssize_t __wrap_pread(int descriptor, void *data, size_t size, off_t offset)
{
    note_call(size, 1);
    if (is_interrupted(++files.reads))
        return -1;
    if (files.most_bytes > 0 && size > files.most_bytes)
        size = files.most_bytes;
    return __real_pread(descriptor, data, size, offset);
}

static int set_up(void **state)
{
    private_place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    private_place_open(place);
    memset(&files, 0, sizeof files);
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    private_place *place = *state;
    private_place_close(place); /* fails unless it is empty */
    free(place);
    assert_int_equal(io_fault_open_descriptors(), 0);
    return 0;
}

/* ---- making one ---- */

static void check_one(const private_place *place)
{
    mode_t before = umask(0);
    int file = spw__spill_file_create(place->directory);
    umask(before);
    assert_true(file >= 0);
    struct stat about;
    assert_int_equal(fstat(file, &about), 0);
    assert_true(S_ISREG(about.st_mode));
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(about.st_nlink, 0);
    assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fcntl(file, F_GETFL) & O_ACCMODE, O_RDWR);
    assert_int_equal(private_place_count_entries(place->directory), 0);
    char name[64], again[96];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    snprintf(again, sizeof again, "%s/again", place->directory);
    assert_int_equal(linkat(AT_FDCWD, name, AT_FDCWD, again, AT_SYMLINK_FOLLOW), -1);
    assert_int_equal(io_fault_open_descriptors(), 1);
    spw__regular_file_close(file);
    assert_int_equal(io_fault_open_descriptors(), 0);
}

static void nobody_else_can_open_it(void **state)
{
    check_one(*state);
}

static void where_files_need_names_it_has_none_for_long(void **state)
{
    static const int REFUSALS[] = {EOPNOTSUPP, EISDIR, ENOENT, EINVAL, ENOSYS};
    for (size_t i = 0; i < COUNT_OF(REFUSALS); i++) {
        files.refuses_nameless = REFUSALS[i];
        check_one(*state);
    }
}

static void what_cannot_be_made_is_told(void **state)
{
    private_place *place = *state;
    char link_path[96], file_path[96];
    snprintf(link_path, sizeof link_path, "%s/link", place->directory);
    snprintf(file_path, sizeof file_path, "%s/file", place->directory);
    assert_int_equal(symlink(place->directory, link_path), 0);
    int file = open(file_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
    for (int named = 0; named < 2; named++) {
        files.refuses_nameless = named ? EOPNOTSUPP : 0;
        assert_int_equal(spw__spill_file_create("/nowhere/at/all"), -ENOENT);
        assert_int_equal(spw__spill_file_create(file_path), -ENOTDIR);
        int answer = spw__spill_file_create(link_path);
        assert_true(answer == -ENOTDIR || answer == -ELOOP);
    }
    files.opens = 0;
    files.refuses_nameless = ENOSPC;
    assert_int_equal(spw__spill_file_create(place->directory), -ENOSPC);
    assert_int_equal(files.opens, 1); /* it is no use to try by a name */
    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(unlink(file_path), 0);
}

static void without_a_random_name_there_is_none(void **state)
{
    private_place *place = *state;
    files.refuses_nameless = EOPNOTSUPP;
    io_fault_arm_call("random", 1, EAGAIN);
    assert_int_equal(spw__spill_file_create(place->directory), -EAGAIN);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
}

/* ---- writing and reading ---- */

enum { PARTS = 700, PART_BYTES = 50 };

/* Parts of all sizes, some of them empty. Returns: their bytes together. */
static size_t make_parts(unsigned char *data, spw__spill_part *parts)
{
    size_t used = 0;
    for (size_t i = 0; i < PARTS; i++) {
        size_t size = i * 7 % (PART_BYTES + 1);
        parts[i] = (spw__spill_part){.data = data + used, .size = size};
        used += size;
    }
    for (size_t i = 0; i < used; i++)
        data[i] = (unsigned char)(i * 31 + i / 251);
    return used;
}

static void check_round_trip(const private_place *place)
{
    static unsigned char data[PARTS * PART_BYTES], back[PARTS * PART_BYTES];
    spw__spill_part parts[PARTS];
    size_t size = make_parts(data, parts);
    int file = spw__spill_file_create(place->directory);
    memset(back, 0, sizeof back);
    assert_int_equal(spw__spill_file_write(file, parts, PARTS, 4096), 0);
    assert_int_equal(spw__spill_file_read(file, back, size, 4096), 0);
    assert_memory_equal(data, back, size);
    assert_int_equal(lseek(file, 0, SEEK_CUR), 0);
    assert_int_equal(lseek(file, 0, SEEK_END), 4096 + (off_t)size);
    spw__regular_file_close(file);
}

static void what_was_written_is_read(void **state)
{
    check_round_trip(*state);
    assert_in_range(files.most_pieces, 2, IOV_MAX);
}

static void calls_that_move_little_are_repeated(void **state)
{
    static const size_t MOST[] = {1, 13, 4095};
    files.interrupts = true;
    for (size_t i = 0; i < COUNT_OF(MOST); i++) {
        files.most_bytes = MOST[i];
        check_round_trip(*state);
    }
}

static void no_call_is_larger_than_some_mebibytes(void **state)
{
    enum { MIB = 1 << 20 };
    private_place *place = *state;
    size_t size = 20 * MIB + 5;
    unsigned char *data = malloc(size), *back = malloc(size);
    assert_true(data != NULL && back != NULL);
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 31 + i / 251);
    int file = spw__spill_file_create(place->directory);
    spw__spill_part parts[] = {{data, 3 * MIB}, {data + 3 * MIB, size - 3 * MIB}};
    assert_int_equal(spw__spill_file_write(file, parts, 2, 1), 0);
    assert_int_equal(spw__spill_file_read(file, back, size, 1), 0);
    assert_memory_equal(data, back, size);
    assert_in_range(files.largest_call, 2 * MIB, 10 * MIB);
    spw__regular_file_close(file);
    free(data);
    free(back);
}

static void nothing_needs_no_call(void **state)
{
    private_place *place = *state;
    int file = spw__spill_file_create(place->directory);
    spw__spill_part parts[2] = {{0}};
    assert_int_equal(spw__spill_file_write(file, parts, 2, 0), 0);
    assert_int_equal(spw__spill_file_write(file, NULL, 0, 0), 0);
    assert_int_equal(spw__spill_file_read(file, NULL, 0, 0), 0);
    assert_int_equal(files.writes + files.reads, 0);
    spw__regular_file_close(file);
}

static void a_file_that_ends_before_is_told(void **state)
{
    private_place *place = *state;
    char back[10];
    int file = spw__spill_file_create(place->directory);
    spw__spill_part part = {"1234567", 7};
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), 0);
    assert_int_equal(spw__spill_file_read(file, back, 7, 0), 0);
    assert_int_equal(spw__spill_file_read(file, back, 8, 0), -ENODATA);
    assert_int_equal(spw__spill_file_read(file, back, 1, 7), -ENODATA);
    spw__regular_file_close(file);
}

static void a_file_that_may_not_grow_is_told(void **state)
{
    private_place *place = *state;
    struct rlimit before, small;
    static const char data[5000];
    char back[5000];
    int file = spw__spill_file_create(place->directory);
    spw__spill_part part = {data, sizeof data};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 3000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int answer = spw__spill_file_write(file, &part, 1, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(answer, -EFBIG);
    /* What was written before stays. */
    assert_int_equal(spw__spill_file_read(file, back, 3000, 0), 0);
    spw__regular_file_close(file);
}

static void a_file_is_cut(void **state)
{
    private_place *place = *state;
    char back[3];
    int file = spw__spill_file_create(place->directory);
    spw__spill_part part = {"abcdef", 6};
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), 0);
    assert_int_equal(spw__spill_file_cut(file, 3), 0);
    assert_int_equal(spw__spill_file_read(file, back, 3, 0), 0);
    assert_memory_equal(back, "abc", 3);
    assert_int_equal(spw__spill_file_read(file, back, 1, 3), -ENODATA);
    spw__regular_file_close(file);
    assert_int_equal(spw__spill_file_cut(-1, 3), -EBADF);
}

/* Where the file system can; ends and neighbours stay. */
static void whole_blocks_of_a_file_are_punched(void **state)
{
    enum { SIZE = 6 * SPW__DIRECT_BYTES };
    private_place *place = *state;
    static char bytes[SIZE], back[SIZE];
    struct stat before, after;
    uint64_t room = 0;
    memset(bytes, 7, SIZE);
    spw__spill_part part = {bytes, SIZE};
    int file = spw__spill_file_create(place->directory);
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), 0);
    assert_int_equal(fsync(file), 0);
    assert_int_equal(fstat(file, &before), 0);
    int answer = spw__spill_file_punch(file, SPW__DIRECT_BYTES, 4 * SPW__DIRECT_BYTES);
    if (answer == 0) {
        memset(bytes + SPW__DIRECT_BYTES, 0, 4 * SPW__DIRECT_BYTES);
        assert_int_equal(fstat(file, &after), 0);
        assert_true(after.st_blocks < before.st_blocks);
        assert_int_equal(after.st_size, SIZE);
    } else {
        assert_int_equal(answer, -EOPNOTSUPP);
    }
    assert_int_equal(spw__spill_file_read(file, back, SIZE, 0), 0);
    assert_memory_equal(back, bytes, SIZE);
    assert_int_equal(spw__spill_file_room(file, &room), 0);
    assert_true(room > 0);
    spw__regular_file_close(file);
    assert_int_equal(spw__spill_file_punch(file, 0, SIZE), -EBADF);
    assert_int_equal(spw__spill_file_room(file, &room), -EBADF);
}

static void who_holds_a_file_is_seen_in_another_way_to_it(void **state)
{
    private_place *place = *state;
    char back[3];
    spw__spill_part part = {"abc", 3};
    int file = spw__spill_file_create(place->directory);
    int again = spw__spill_file_reopen(file), third = spw__spill_file_reopen(again);
    assert_true(file >= 0 && again >= 0 && third >= 0);
    assert_int_equal(fcntl(again, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_true(fcntl(again, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(spw__spill_file_is_held(again), 0);
    assert_int_equal(spw__spill_file_hold(file), 0);
    assert_int_equal(spw__spill_file_hold(file), 0);
    assert_int_equal(spw__spill_file_is_held(again), 1);
    assert_int_equal(spw__spill_file_is_held(third), 1);
    assert_int_equal(spw__spill_file_is_held(file), 0); /* by another */
    /* That some other descriptor goes says nothing; one that was passed on holds. */
    spw__regular_file_close(third);
    assert_int_equal(spw__spill_file_is_held(again), 1);
    int passed = fcntl(file, F_DUPFD_CLOEXEC, 0);
    assert_true(passed >= 0);
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), 0);
    spw__regular_file_close(file);
    assert_int_equal(spw__spill_file_is_held(again), 1);
    spw__regular_file_close(passed);
    assert_int_equal(spw__spill_file_is_held(again), 0);
    assert_int_equal(spw__spill_file_read(again, back, 3, 0), 0);
    assert_memory_equal(back, "abc", 3);
    spw__regular_file_close(again);
    assert_int_equal(spw__spill_file_hold(again), -EBADF);
    assert_int_equal(spw__spill_file_is_held(again), -EBADF);
    assert_true(spw__spill_file_reopen(again) < 0);
}

static void what_fails_is_told(void **state)
{
    private_place *place = *state;
    char back[4];
    spw__spill_part part = {"1234", 4};
    int file = spw__spill_file_create(place->directory);
    files.fails_write_with = EDQUOT;
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), -EDQUOT);
    files.fails_write_with = -1;
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), -EIO);
    files.fails_write_with = 0;
    assert_int_equal(spw__spill_file_write(file, &part, 1, UINT64_MAX), -EINVAL);
    spw__regular_file_close(file);
    assert_int_equal(spw__spill_file_write(file, &part, 1, 0), -EBADF);
    assert_int_equal(spw__spill_file_read(file, back, 4, 0), -EBADF);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(nobody_else_can_open_it),
        TEST_AT(where_files_need_names_it_has_none_for_long),
        TEST_AT(what_cannot_be_made_is_told),
        TEST_AT(without_a_random_name_there_is_none),
        TEST_AT(what_was_written_is_read),
        TEST_AT(calls_that_move_little_are_repeated),
        TEST_AT(no_call_is_larger_than_some_mebibytes),
        TEST_AT(nothing_needs_no_call),
        TEST_AT(a_file_that_ends_before_is_told),
        TEST_AT(a_file_that_may_not_grow_is_told),
        TEST_AT(a_file_is_cut),
        TEST_AT(whole_blocks_of_a_file_are_punched),
        TEST_AT(who_holds_a_file_is_seen_in_another_way_to_it),
        TEST_AT(what_fails_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
