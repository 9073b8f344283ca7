/* Segments: where ranges lie, when files go, and what is told where there is no room.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "platform/spill_file.h"
#include "segments_fixture.h"

static const uint64_t GIB = 1 << 30;

/* ---- where ranges lie ---- */

static void ranges_share_a_file(void **state)
{
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture f;
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

/* ---- where there is no room ---- */

static void directories_are_filled_in_order(void **state)
{
    torture *t = *state;
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture f;
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

/* In a process of its own: leaves a file as where one needs a name for a moment. */
static void be_killed(torture *t, segments_fixture *f)
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
    segments_fixture f;
    int status;
    open_places(&f, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_killed(t, &f);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(private_place_count_entries(f.places[0].directory), 1);
    assert_ok(spw__segments_create(t->context, f.directories, 1, SPW__SEGMENT_BYTES,
                                   &f.segments, NULL));
    assert_int_equal(private_place_count_entries(f.places[0].directory), 1);
    /* And what is in use stays. */
    spw__segments *other;
    assert_ok(spw__segments_create(t->context, f.directories, 2, SPW__SEGMENT_BYTES,
                                   &other, NULL));
    assert_int_equal(private_place_count_entries(f.places[0].directory), 2);
    assert_int_equal(private_place_count_entries(f.places[1].directory), 1);
    spw__range range = reserve(&f, 1);
    release_all(&f, &range, 1);
    spw__segments_free(other);
    close_places(&f);
}

static void a_directory_that_cannot_be_used_is_told(void **state)
{
    torture *t = *state;
    segments_fixture f;
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
    segments_fixture f;
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
                            spw__segments_next_sparse(f.segments, true) == NULL;
        spw__segments_free(f.segments);
        _exit(is_refused && !has_released && does_nothing && figures.files == 0 ? 0
                                                                                : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(private_place_count_entries(f.places[0].directory), 1);
    spw__range next = reserve(&f, 10);
    assert_ptr_equal(next.segment, range.segment);
    release_all(&f, &next, 1);
    release_all(&f, &range, 1);
    close_places(&f);
}

/* ---- everything fails in turn ---- */

static void values_come_and_go(void **state)
{
    torture *t = *state;
    segments_fixture f;
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
        SCENARIO(directories_are_filled_in_order),
        SCENARIO(a_large_range_knows_the_limit_too),
        SCENARIO(where_no_file_can_be_made_the_next_one_is_tried),
        SCENARIO(where_none_can_be_made_it_is_told),
        SCENARIO(what_a_killed_process_left_goes),
        SCENARIO(a_directory_that_cannot_be_used_is_told),
        SCENARIO(a_forked_child_leaves_the_parent_alone),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(values_come_and_go)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("segments", scenarios);
}
