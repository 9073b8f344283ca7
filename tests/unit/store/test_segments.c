/* Segments: where ranges lie, when files go, and what is told where there is no room.
 */
#include "store/segments.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "platform/spill_file.h"
#include "private_place.h"
#include "torture.h"

enum { MIB = 1 << 20, PLACES = 2 };
static const uint64_t GIB = 1 << 30;

typedef struct fixture {
    private_place places[PLACES];
    spw_store_directory directories[PLACES];
    spw__segments *segments;
} fixture;

static void open_places(fixture *f, uint64_t limit_bytes)
{
    *f = (fixture){0};
    for (int i = 0; i < PLACES; i++) {
        private_place_open(&f->places[i]);
        f->directories[i] = (spw_store_directory){f->places[i].directory, limit_bytes};
    }
}

/* Fails unless nothing is left in them. */
static void close_places(fixture *f)
{
    spw__segments_free(f->segments);
    for (int i = 0; i < PLACES; i++)
        private_place_close(&f->places[i]);
}

static void open_all(torture *t, fixture *f, size_t count, uint64_t limit_bytes)
{
    open_places(f, limit_bytes);
    assert_ok(spw__segments_create(t->context, f->directories, count,
                                   SPW__SEGMENT_BYTES, &f->segments, NULL));
}

static spw__range reserve(fixture *f, uint64_t bytes)
{
    spw__range range = {0};
    assert_ok(spw__segments_reserve(f->segments, bytes, &range, NULL));
    assert_non_null(range.segment);
    assert_int_equal(range.bytes, bytes);
    assert_int_equal(range.offset % SPW__SEGMENT_ALIGNMENT, 0);
    return range;
}

static void release_all(fixture *f, spw__range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)spw__segments_release(f->segments, &ranges[i]);
}

static spw__segments_figures read_figures(fixture *f)
{
    spw__segments_figures figures;
    spw__segments_read(f->segments, &figures);
    return figures;
}

static void assert_figures(fixture *f, uint64_t files, uint64_t file_bytes,
                           uint64_t range_bytes)
{
    spw__segments_figures figures = read_figures(f);
    assert_int_equal(figures.files, files);
    assert_int_equal(figures.file_bytes, file_bytes);
    assert_int_equal(figures.range_bytes, range_bytes);
}

/* ---- where ranges lie ---- */

static void ranges_share_a_file(void **state)
{
    fixture f;
    open_all(*state, &f, 1, 0);
    assert_figures(&f, 0, 0, 0);
    spw__range ranges[] = {reserve(&f, 100), reserve(&f, 1), reserve(&f, 64),
                           reserve(&f, 5)};
    static const uint64_t OFFSETS[] = {0, 128, 192, 256};
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        assert_ptr_equal(ranges[i].segment, ranges[0].segment);
        assert_int_equal(ranges[i].offset, OFFSETS[i]);
    }
    assert_int_equal(io_fault_calls_of("spill_create"), 1);
    assert_figures(&f, 1, 320, 170);
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
}

static void a_full_file_is_followed_by_another(void **state)
{
    fixture f;
    open_all(*state, &f, 1, 0);
    /* Full to the last byte, and then one that what comes next does not fit into. */
    spw__range ranges[] = {reserve(&f, 32 * MIB), reserve(&f, 32 * MIB),
                           reserve(&f, 32 * MIB), reserve(&f, 31 * MIB),
                           reserve(&f, 2 * MIB),  reserve(&f, 1)};
    assert_ptr_equal(ranges[1].segment, ranges[0].segment);
    assert_ptr_not_equal(ranges[2].segment, ranges[0].segment);
    assert_ptr_equal(ranges[3].segment, ranges[2].segment);
    assert_ptr_not_equal(ranges[4].segment, ranges[2].segment);
    assert_ptr_equal(ranges[5].segment, ranges[4].segment);
    assert_int_equal(read_figures(&f).files, 3);
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
}

static void a_large_range_has_its_own_file(void **state)
{
    fixture f;
    open_all(*state, &f, 1, 0);
    spw__range ranges[] = {reserve(&f, 1), reserve(&f, 5 * GIB),
                           reserve(&f, 64 * (uint64_t)MIB), reserve(&f, 1)};
    assert_int_equal(ranges[1].offset, 0);
    assert_ptr_not_equal(ranges[1].segment, ranges[0].segment);
    assert_ptr_not_equal(ranges[2].segment, ranges[0].segment);
    assert_ptr_equal(ranges[3].segment, ranges[0].segment); /* it stays open */
    assert_int_equal(read_figures(&f).files, 3);
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
}

static void the_more_files_the_larger(void **state)
{
    static spw__range ranges[450];
    fixture f;
    size_t count = 0;
    open_all(*state, &f, 1, 0);
    while (count < 64) /* more than half: a file each */
        ranges[count++] = reserve(&f, 33 * MIB);
    assert_int_equal(read_figures(&f).files, 64);
    ranges[count++] = reserve(&f, 33 * MIB);
    ranges[count++] = reserve(&f, 33 * MIB);
    ranges[count++] = reserve(&f, 62 * MIB);
    assert_int_equal(read_figures(&f).files, 65);
    while (read_figures(&f).files < 400)
        ranges[count++] = reserve(&f, 5 * GIB);
    ranges[count++] = reserve(&f, 2 * GIB);
    ranges[count++] = reserve(&f, 2 * GIB);
    assert_ptr_equal(ranges[count - 1].segment, ranges[count - 2].segment);
    ranges[count++] = reserve(&f, 2 * GIB + 1);
    assert_ptr_not_equal(ranges[count - 1].segment, ranges[count - 2].segment);
    ranges[count++] = reserve(&f, 1);
    assert_ptr_not_equal(ranges[count - 1].segment, ranges[count - 2].segment);
    release_all(&f, ranges, count);
    close_places(&f);
}

static void what_is_written_to_a_range_is_read_from_its_file(void **state)
{
    static const size_t SIZES[] = {5000, 1, 70000, 64};
    static unsigned char data[70000], back[70000];
    fixture f;
    spw__range ranges[COUNT_OF(SIZES)];
    open_all(*state, &f, 1, 0);
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        ranges[i] = reserve(&f, SIZES[i]);
        memset(data, (int)i + 1, SIZES[i]);
        spw__spill_part part = {data, SIZES[i]};
        int file = spw_file_descriptor(spw__range_file(&ranges[i]));
        assert_int_equal(spw__spill_file_write(file, &part, 1, ranges[i].offset), 0);
    }
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        int file = spw_file_descriptor(spw__range_file(&ranges[i]));
        memset(data, (int)i + 1, SIZES[i]);
        assert_int_equal(spw__spill_file_read(file, back, SIZES[i], ranges[i].offset),
                         0);
        assert_memory_equal(back, data, SIZES[i]);
    }
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
}

/* ---- when files go ---- */

static void a_file_goes_with_its_last_range(void **state)
{
    fixture f;
    open_all(*state, &f, 1, 0);
    int before = io_fault_open_descriptors();
    spw__range ranges[] = {reserve(&f, 1000), reserve(&f, 24), reserve(&f, 100 * MIB)};
    assert_int_equal(io_fault_open_descriptors(), before + 2);
    assert_false(spw__segments_release(f.segments, &ranges[0]));
    assert_null(ranges[0].segment);
    assert_int_equal(spw__segments_collect(f.segments), 0);
    assert_figures(&f, 2, 1088 + 100 * MIB, 24 + 100 * MIB);
    assert_true(spw__segments_release(f.segments, &ranges[2]));
    assert_true(spw__segments_release(f.segments, &ranges[1]));
    assert_int_equal(io_fault_open_descriptors(), before + 2); /* it does not block */
    assert_int_equal(spw__segments_collect(f.segments), 1088 + 100 * MIB);
    assert_int_equal(io_fault_open_descriptors(), before);
    assert_figures(&f, 0, 0, 0);
    /* What was written before is never written over. */
    spw__range again = reserve(&f, 10);
    assert_int_equal(again.offset, 0);
    assert_int_equal(io_fault_calls_of("spill_create"), 3);
    assert_true(spw__segments_release(f.segments, &again));
    assert_false(spw__segments_release(f.segments, &again)); /* there is none */
    close_places(&f);
}

static void whoever_holds_the_file_keeps_it(void **state)
{
    fixture f;
    char back[3];
    open_all(*state, &f, 1, 0);
    spw__range range = reserve(&f, 3);
    spw_file *file = spw_file_ref(spw__range_file(&range));
    spw__spill_part part = {"abc", 3};
    assert_int_equal(spw__spill_file_write(spw_file_descriptor(file), &part, 1, 0), 0);
    assert_true(spw__segments_release(f.segments, &range));
    assert_int_equal(spw__segments_collect(f.segments), 64);
    close_places(&f);
    assert_int_equal(spw__spill_file_read(spw_file_descriptor(file), back, 3, 0), 0);
    assert_memory_equal(back, "abc", 3);
    assert_int_equal(io_fault_open_descriptors(), 1);
    spw_file_unref(file);
}

static void a_sparse_segment_is_answered_once(void **state)
{
    fixture f;
    open_all(*state, &f, 1, 0);
    spw__range ranges[] = {reserve(&f, 30 * MIB), reserve(&f, 20 * MIB),
                           reserve(&f, 10 * MIB)};
    assert_false(spw__segments_release(f.segments, &ranges[0]));
    assert_null(spw__segments_next_sparse(f.segments)); /* it is half */
    assert_false(spw__segments_release(f.segments, &ranges[2]));
    assert_null(spw__segments_next_sparse(f.segments)); /* it is open */
    spw__range next[] = {reserve(&f, 30 * MIB), reserve(&f, 30 * MIB),
                         reserve(&f, 30 * MIB)};
    assert_ptr_equal(spw__segments_next_sparse(f.segments), ranges[1].segment);
    assert_null(spw__segments_next_sparse(f.segments));
    assert_ptr_equal(next[0].segment, next[1].segment);
    /* Released after it was sealed: half, then less, then nothing. */
    assert_false(spw__segments_release(f.segments, &next[1]));
    assert_null(spw__segments_next_sparse(f.segments));
    assert_true(spw__segments_release(f.segments, &next[0]));
    assert_null(spw__segments_next_sparse(f.segments));
    assert_true(spw__segments_release(f.segments, &ranges[1]));
    (void)spw__segments_release(f.segments, &next[2]);
    close_places(&f);
}

static void of_several_sparse_segments_those_that_die_are_not_answered(void **state)
{
    enum { SEGMENTS = 3, IN_EACH = 4 };
    fixture f;
    spw__range ranges[SEGMENTS][IN_EACH];
    open_all(*state, &f, 1, 0);
    for (int s = 0; s < SEGMENTS; s++)
        for (int i = 0; i < IN_EACH; i++)
            ranges[s][i] = reserve(&f, 16 * MIB);
    for (int dying = 0; dying < SEGMENTS; dying++) {
        spw__segment *died = ranges[dying][0].segment;
        for (int s = dying; s < SEGMENTS; s++)
            for (int i = 1; i < IN_EACH; i++)
                (void)spw__segments_release(f.segments, &ranges[s][i]);
        assert_true(spw__segments_release(f.segments, &ranges[dying][0]));
        if (dying == 1)
            assert_true(spw__segments_collect(f.segments) > 0);
        for (spw__segment *one; (one = spw__segments_next_sparse(f.segments)) != NULL;)
            assert_ptr_not_equal(one, died);
    }
    close_places(&f);
}

/* ---- where there is no room ---- */

static void directories_are_filled_in_order(void **state)
{
    torture *t = *state;
    fixture f;
    spw__range range = {0};
    open_all(t, &f, 2, 1000);
    spw__range ranges[] = {reserve(&f, 600), reserve(&f, 500), reserve(&f, 300)};
    assert_ptr_not_equal(ranges[1].segment, ranges[0].segment);
    assert_ptr_equal(ranges[2].segment, ranges[0].segment);
    assert_figures(&f, 2, 640 + 320 + 512, 1400);
    t->log_lines = 0;
    assert_status(spw__segments_reserve(f.segments, 489, &range, &t->error),
                  LIMIT_EXCEEDED);
    assert_null(range.segment);
    assert_non_null(strstr(t->error.message, "489 bytes"));
    assert_non_null(strstr(t->error.message, "raise the limit"));
    assert_non_null(strstr(t->error.message, "960 of 1000 are used in /tmp/"));
    assert_non_null(strstr(t->error.message, "512 of 1000 are used in /tmp/"));
    assert_non_null(strstr(t->error.message, f.places[0].directory));
    assert_null(strstr(t->error.message, "spillway-store"));
    spw__range last = reserve(&f, 448);
    assert_int_equal(read_figures(&f).file_bytes, 1920);
    assert_ptr_equal(last.segment, ranges[1].segment);
    assert_status(spw__segments_reserve(f.segments, UINT64_MAX, &range, &t->error),
                  LIMIT_EXCEEDED);
    /* What nobody wants any more makes room without being asked to. */
    assert_false(spw__segments_release(f.segments, &ranges[0]));
    assert_true(spw__segments_release(f.segments, &ranges[2]));
    assert_true(spw__segments_release(f.segments, &last));
    ranges[0] = reserve(&f, 960);
    assert_figures(&f, 2, 960 + 960, 1460);
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
}

static void a_large_range_knows_the_limit_too(void **state)
{
    torture *t = *state;
    fixture f;
    spw__range range = {0};
    open_all(t, &f, 1, 100 * MIB);
    spw__range large = reserve(&f, 99 * MIB);
    assert_status(spw__segments_reserve(f.segments, MIB + 1, &range, &t->error),
                  LIMIT_EXCEEDED);
    range = reserve(&f, MIB);
    release_all(&f, &range, 1);
    release_all(&f, &large, 1);
    close_places(&f);
}

static void where_no_file_can_be_made_the_next_one_is_tried(void **state)
{
    torture *t = *state;
    fixture f;
    open_all(t, &f, 2, 0);
    io_fault_arm_call("spill_create", 1, ENOSPC);
    spw__range range = reserve(&f, 10);
    assert_int_equal(io_fault_calls_of("spill_create"), 2);
    spw__range other = reserve(&f, 10); /* the first one is tried again */
    assert_ptr_not_equal(other.segment, range.segment);
    release_all(&f, &range, 1);
    release_all(&f, &other, 1);
    close_places(&f);
}

static void where_none_can_be_made_it_is_told(void **state)
{
    static const struct {
        int os_errno;
        const char *hint;
    } CASES[] = {{EMFILE, "ulimit -n"}, {ENOSPC, "free some space"}, {EROFS, "still"}};
    torture *t = *state;
    fixture f;
    spw__range range = {0};
    open_all(t, &f, 1, 0);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        io_fault_arm_call("spill_create", 1, CASES[i].os_errno);
        assert_status(spw__segments_reserve(f.segments, 1, &range, &t->error), IO);
        assert_int_equal(t->error.os_errno, CASES[i].os_errno);
        assert_non_null(strstr(t->error.message, CASES[i].hint));
        assert_non_null(strstr(t->error.message, f.places[0].directory));
        assert_null(range.segment);
    }
    assert_figures(&f, 0, 0, 0);
    close_places(&f);
}

/* ---- directories ---- */

static unsigned count_entries(const char *path)
{
    unsigned count = 0;
    DIR *entries = opendir(path);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(entries);
    return count;
}

/* In a process of its own: leaves a file as where one needs a name for a moment. */
static void be_killed(torture *t, fixture *f)
{
    char path[600];
    if (spw__segments_create(t->context, f->directories, 1, SPW__SEGMENT_BYTES,
                             &f->segments, NULL) != SPW_STATUS_OK)
        _exit(EXIT_FAILURE);
    DIR *entries = opendir(f->places[0].directory);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/" SPW__SPILL_FILE_PREFIX "01",
                 f->places[0].directory, entry->d_name);
        FILE *file = fopen(path, "w");
        if (file == NULL)
            _exit(EXIT_FAILURE);
        fclose(file);
    }
    raise(SIGKILL);
}

static void what_a_killed_process_left_goes(void **state)
{
    torture *t = *state;
    fixture f;
    int status;
    open_places(&f, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_killed(t, &f);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_entries(f.places[0].directory), 1);
    assert_ok(spw__segments_create(t->context, f.directories, 1, SPW__SEGMENT_BYTES,
                                   &f.segments, NULL));
    assert_int_equal(count_entries(f.places[0].directory), 1);
    /* And what is in use stays. */
    spw__segments *other;
    assert_ok(spw__segments_create(t->context, f.directories, 2, SPW__SEGMENT_BYTES,
                                   &other, NULL));
    assert_int_equal(count_entries(f.places[0].directory), 2);
    assert_int_equal(count_entries(f.places[1].directory), 1);
    spw__range range = reserve(&f, 1);
    release_all(&f, &range, 1);
    spw__segments_free(other);
    close_places(&f);
}

static void a_directory_that_cannot_be_used_is_told(void **state)
{
    torture *t = *state;
    fixture f;
    open_places(&f, 0);
    f.directories[1].path = "/nowhere/at/all";
    assert_status(spw__segments_create(t->context, f.directories, 2, SPW__SEGMENT_BYTES,
                                       &f.segments, &t->error),
                  IO);
    assert_int_equal(t->error.os_errno, ENOENT);
    assert_non_null(strstr(t->error.message, "/nowhere/at/all"));
    static const char *const NO_PATHS[] = {NULL, ""};
    for (size_t i = 0; i < COUNT_OF(NO_PATHS); i++) {
        f.directories[1].path = NO_PATHS[i];
        assert_status(spw__segments_create(t->context, f.directories, 2,
                                           SPW__SEGMENT_BYTES, &f.segments, &t->error),
                      INVALID_ARGUMENT);
    }
    assert_status(spw__segments_create(t->context, f.directories, 0, SPW__SEGMENT_BYTES,
                                       &f.segments, &t->error),
                  INVALID_ARGUMENT);
    assert_null(f.segments);
    close_places(&f); /* nothing is left in them */
}

static void a_forked_child_leaves_the_parent_alone(void **state)
{
    torture *t = *state;
    fixture f;
    int status;
    open_all(t, &f, 1, 0);
    spw__range range = reserve(&f, 10), other = reserve(&f, 10), own = {0};
    assert_false(spw__segments_release(f.segments, &other));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spw__segments_figures figures;
        bool is_refused =
            spw__segments_reserve(f.segments, 10, &own, &t->error) == SPW_STATUS_IO;
        bool has_released = spw__segments_release(f.segments, &range);
        spw__segments_read(f.segments, &figures);
        bool does_nothing = spw__segments_collect(f.segments) == 0 &&
                            spw__segments_next_sparse(f.segments) == NULL;
        spw__segments_free(f.segments);
        _exit(is_refused && !has_released && does_nothing && figures.files == 0 ? 0
                                                                                : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count_entries(f.places[0].directory), 1);
    spw__range next = reserve(&f, 10);
    assert_ptr_equal(next.segment, range.segment);
    release_all(&f, &next, 1);
    release_all(&f, &range, 1);
    close_places(&f);
}

/* ---- several threads ---- */

typedef struct meanwhile {
    fixture *f;
    uint64_t bytes;
    spw__range range;
} meanwhile;

static void reserve_meanwhile(void *argument, disk_fault_way way)
{
    meanwhile *other = argument;
    assert_int_equal(way, DISK_FAULT_CREATING);
    disk_fault_during(0, NULL, NULL);
    other->range = reserve(other->f, other->bytes);
}

static void two_that_need_a_file_at_once_share_one(void **state)
{
    fixture f;
    open_all(*state, &f, 1, 0);
    meanwhile other = {.f = &f, .bytes = 10};
    disk_fault_during(DISK_FAULT_CREATING, reserve_meanwhile, &other);
    spw__range range = reserve(&f, 10);
    assert_ptr_equal(range.segment, other.range.segment);
    assert_int_not_equal(range.offset, other.range.offset);
    assert_int_equal(io_fault_calls_of("spill_create"), 2);
    assert_int_equal(read_figures(&f).files, 1);
    assert_int_equal(io_fault_open_descriptors(), 1);
    release_all(&f, &range, 1);
    release_all(&f, &other.range, 1);
    close_places(&f);
}

static void room_that_is_gone_meanwhile_is_looked_for_elsewhere(void **state)
{
    fixture f;
    open_all(*state, &f, 2, 40 * MIB);
    meanwhile other = {.f = &f, .bytes = 40 * MIB};
    disk_fault_during(DISK_FAULT_CREATING, reserve_meanwhile, &other);
    spw__range range = reserve(&f, 40 * MIB);
    assert_ptr_not_equal(range.segment, other.range.segment);
    assert_int_equal(read_figures(&f).file_bytes, 80 * MIB);
    assert_int_equal(read_figures(&f).files, 2);
    release_all(&f, &range, 1);
    release_all(&f, &other.range, 1);
    close_places(&f);
}

enum { THREADS = 3, ROUNDS = 120, HELD = 7 };

typedef struct writer {
    pthread_t thread;
    fixture *f;
    unsigned char mark;
} writer;

static void write_marks(const spw__range *range, unsigned char mark)
{
    unsigned char data[512];
    memset(data, mark, sizeof data);
    spw__spill_part part = {data, sizeof data};
    int file = spw_file_descriptor(spw__range_file(range));
    assert_int_equal(spw__spill_file_write(file, &part, 1, range->offset), 0);
    assert_int_equal(spw__spill_file_write(file, &part, 1,
                                           range->offset + range->bytes - sizeof data),
                     0);
}

static void check_marks(const spw__range *range, unsigned char mark)
{
    unsigned char data[512], back[512];
    memset(data, mark, sizeof data);
    int file = spw_file_descriptor(spw__range_file(range));
    assert_int_equal(spw__spill_file_read(file, back, sizeof back, range->offset), 0);
    assert_memory_equal(data, back, sizeof data);
    assert_int_equal(spw__spill_file_read(file, back, sizeof back,
                                          range->offset + range->bytes - sizeof data),
                     0);
    assert_memory_equal(data, back, sizeof data);
}

static void *write_and_check(void *argument)
{
    writer *one = argument;
    spw__range held[HELD] = {{0}};
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw__range *range = &held[i % HELD];
        if (range->segment != NULL) {
            check_marks(range, one->mark);
            if (spw__segments_release(one->f->segments, range))
                (void)spw__segments_collect(one->f->segments);
        }
        (void)spw__segments_next_sparse(one->f->segments);
        *range = reserve(one->f, 512 + i * 700003 % (40 * (uint64_t)MIB));
        write_marks(range, one->mark);
    }
    for (size_t i = 0; i < HELD; i++) {
        check_marks(&held[i], one->mark);
        (void)spw__segments_release(one->f->segments, &held[i]);
    }
    return NULL;
}

static void ranges_of_several_threads_are_apart(void **state)
{
    fixture f;
    writer writers[THREADS];
    open_all(*state, &f, 2, 0);
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (writer){.f = &f, .mark = (unsigned char)(i + 1)};
        assert_int_equal(
            pthread_create(&writers[i].thread, NULL, write_and_check, &writers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
    (void)spw__segments_collect(f.segments);
    assert_figures(&f, 0, 0, 0);
    close_places(&f);
}

/* ---- everything fails in turn ---- */

static void values_come_and_go(void **state)
{
    torture *t = *state;
    fixture f;
    spw__range ranges[5] = {{0}};
    static const uint64_t SIZES[] = {10, 40 * MIB, 30 * MIB, 31 * MIB, 20 * MIB};
    open_places(&f, 100 * MIB);
    TRY(spw__segments_create(t->context, f.directories, 2, SPW__SEGMENT_BYTES,
                             &f.segments, &t->error));
    for (size_t i = 0; i < COUNT_OF(SIZES); i++)
        TRY(spw__segments_reserve(f.segments, SIZES[i], &ranges[i], &t->error));
    (void)spw__segments_release(f.segments, &ranges[2]);
    (void)spw__segments_release(f.segments, &ranges[1]);
    TRY(spw__segments_reserve(f.segments, 50 * MIB, &ranges[1], &t->error));
end:
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (ranges[i].segment != NULL)
            (void)spw__segments_release(f.segments, &ranges[i]);
    close_places(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(ranges_share_a_file),
        SCENARIO(a_full_file_is_followed_by_another),
        SCENARIO(a_large_range_has_its_own_file),
        SCENARIO(the_more_files_the_larger),
        SCENARIO(what_is_written_to_a_range_is_read_from_its_file),
        SCENARIO(a_file_goes_with_its_last_range),
        SCENARIO(whoever_holds_the_file_keeps_it),
        SCENARIO(a_sparse_segment_is_answered_once),
        SCENARIO(of_several_sparse_segments_those_that_die_are_not_answered),
        SCENARIO(directories_are_filled_in_order),
        SCENARIO(a_large_range_knows_the_limit_too),
        SCENARIO(where_no_file_can_be_made_the_next_one_is_tried),
        SCENARIO(where_none_can_be_made_it_is_told),
        SCENARIO(what_a_killed_process_left_goes),
        SCENARIO(a_directory_that_cannot_be_used_is_told),
        SCENARIO(a_forked_child_leaves_the_parent_alone),
        SCENARIO(two_that_need_a_file_at_once_share_one),
        SCENARIO(room_that_is_gone_meanwhile_is_looked_for_elsewhere),
        SCENARIO(ranges_of_several_threads_are_apart),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(values_come_and_go)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("segments", scenarios);
}
