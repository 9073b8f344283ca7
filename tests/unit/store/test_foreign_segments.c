/* Ranges of files that other segments made: one descriptor for each file, what counts
 * against which limit, and when a file is taken for one that nobody else wants. */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_fault.h"
#include "file_payloads.h"
#include "handed_files.h"
#include "io_fault.h"
#include "platform/spill_file.h"
#include "segments_fixture.h"

/* As a descriptor that a peer handed on; let go of when it has been adopted. */
static spw__range adopt_file(torture *t, segments_fixture *f, const spw_file *file,
                             uint64_t offset, uint64_t bytes)
{
    spw_file *received;
    spw__range range = {0};
    assert_ok(handed_file(t->context, file, &received, NULL));
    assert_ok(spw__segments_adopt(f->segments, received, offset, bytes, &range, NULL));
    spw_file_unref(received);
    assert_int_equal(range.offset, offset);
    assert_int_equal(range.bytes, bytes);
    return range;
}

static spw__range adopt(torture *t, segments_fixture *f, const spw__range *of)
{
    return adopt_file(t, f, spw__range_file(of), of->offset, of->bytes);
}

/* So that its file is as large as what is reserved in it. */
static void write_last(const spw__range *range)
{
    spw__spill_part part = {"z", 1};
    assert_int_equal(spw__spill_file_write(spw_file_descriptor(spw__range_file(range)),
                                           &part, 1, range->offset + range->bytes - 1),
                     0);
}

/* Where its maker does not want a file any more. */
static void let_go(segments_fixture *f, spw__range *ranges, size_t count)
{
    release_all(f, ranges, count);
    assert_true(spw__segments_collect(f->segments) > 0);
}

static const spw__segment *look(segments_fixture *f)
{
    spw__segments_look(f->segments);
    return spw__segments_next_sparse(f->segments, false);
}

/* ---- adopting ---- */

static void one_descriptor_is_kept_of_a_file(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    spw__range made[] = {reserve(&maker, 1000), reserve(&maker, 24),
                         reserve(&maker, 100 * MIB)};
    unsigned before = file_count_descriptors();
    spw__range ranges[] = {adopt(t, &f, &made[0]), adopt(t, &f, &made[1])};
    assert_int_equal(file_count_descriptors(), before + 1);
    assert_ptr_equal(ranges[0].segment, ranges[1].segment);
    spw__range other = adopt(t, &f, &made[2]);
    assert_int_equal(file_count_descriptors(), before + 2);
    assert_ptr_not_equal(other.segment, ranges[0].segment);
    assert_figures(&f, 0, 1024 + 64 + 100 * MIB, 1024 + 100 * MIB);
    assert_int_equal(read_figures(&f).foreign_files, 2);
    /* What is released counts for nothing any more, and is told once. */
    assert_true(spw__segments_release(f.segments, &ranges[0]));
    assert_figures(&f, 0, 64 + 100 * MIB, 24 + 100 * MIB);
    assert_int_equal(spw__segments_collect(f.segments), 1024);
    assert_int_equal(spw__segments_collect(f.segments), 0);
    assert_true(spw__segments_release(f.segments, &ranges[1]));
    assert_int_equal(file_count_descriptors(), before + 2);
    assert_int_equal(spw__segments_collect(f.segments), 64);
    assert_int_equal(file_count_descriptors(), before + 1);
    /* A file that comes again is one that was not there. */
    ranges[0] = adopt(t, &f, &made[0]);
    assert_int_equal(file_count_descriptors(), before + 2);
    release_all(&f, ranges, 1);
    release_all(&f, &other, 1);
    (void)spw__segments_collect(f.segments);
    assert_figures(&f, 0, 0, 0);
    assert_int_equal(read_figures(&f).foreign_files, 0);
    assert_int_equal(file_count_descriptors(), before);
    release_all(&maker, made, COUNT_OF(made));
    close_places(&f);
    close_places(&maker);
}

typedef struct meanwhile {
    torture *t;
    segments_fixture *f;
    const spw__range *of;
    spw__range range;
} meanwhile;

static void adopt_meanwhile(void *argument, disk_fault_way way)
{
    meanwhile *other = argument;
    assert_int_equal(way, DISK_FAULT_REOPENING);
    disk_fault_during(0, NULL, NULL);
    other->range = adopt(other->t, other->f, other->of);
}

static void two_that_adopt_at_once_share_a_file(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    spw__range made = reserve(&maker, MIB);
    meanwhile other = {.t = t, .f = &f, .of = &made};
    unsigned before = file_count_descriptors();
    disk_fault_during(DISK_FAULT_REOPENING, adopt_meanwhile, &other);
    spw__range range = adopt(t, &f, &made);
    assert_ptr_equal(range.segment, other.range.segment);
    assert_int_equal(file_count_descriptors(), before + 1);
    assert_int_equal(read_figures(&f).foreign_files, 1);
    assert_figures(&f, 0, 2 * MIB, 2 * MIB);
    release_all(&f, &range, 1);
    release_all(&f, &other.range, 1);
    release_all(&maker, &made, 1);
    close_places(&f);
    close_places(&maker);
}

/* Whether there is room for so much of our own. */
static bool has_room(spw__segments *segments, uint64_t bytes)
{
    spw__range range = {0};
    if (spw__segments_reserve(segments, bytes, &range, NULL) != SPW_STATUS_OK)
        return false;
    (void)spw__segments_give_up(segments, &range);
    return true;
}

static void what_a_child_or_a_liar_adopts_is_refused(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    spw__range range = {0};
    int status;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    spw__range made = reserve(&maker, MIB);
    spw_file *file = spw__range_file(&made);
    assert_status(
        spw__segments_adopt(f.segments, file, 0, UINT64_C(1) << 63, &range, &t->error),
        INVALID_ARGUMENT);
    io_fault_arm_call("file_describe", 1, EIO);
    assert_status(spw__segments_adopt(f.segments, file, 0, 10, &range, &t->error), IO);
    assert_int_equal(t->error.os_errno, EIO);
    assert_null(range.segment);
    assert_false(has_room(f.segments, UINT64_MAX));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool is_refused = spw__segments_adopt(f.segments, file, 0, 10, &range,
                                              &t->error) == SPW_STATUS_IO &&
                          !has_room(f.segments, 1);
        spw__segments_look(f.segments);
        spw__segments_free(f.segments);
        _exit(is_refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_figures(&f, 0, 0, 0);
    release_all(&maker, &made, 1);
    close_places(&f);
    close_places(&maker);
}

/* ---- limits ---- */

static void it_is_charged_where_there_is_room_or_to_the_last(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    spw__range own = {0};
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 2, 10 * MIB);
    spw__range made[] = {reserve(&maker, 40 * MIB), reserve(&maker, 40 * MIB)};
    const spw_file *first = spw__range_file(&made[0]),
                   *second = spw__range_file(&made[1]);
    assert_ptr_not_equal(first, second);
    assert_true(has_room(f.segments, 10 * MIB));
    assert_false(has_room(f.segments, 10 * MIB + 1));
    spw__range ranges[4] = {adopt_file(t, &f, first, 0, 6 * MIB),
                            adopt_file(t, &f, second, 0, 6 * MIB)};
    assert_true(has_room(f.segments, 4 * MIB));
    assert_false(has_room(f.segments, 4 * MIB + 1));
    /* What has come is never refused: the last directory has more than it may. */
    ranges[2] = adopt_file(t, &f, second, 6 * MIB, 20 * MIB);
    assert_figures(&f, 0, 32 * MIB, 32 * MIB);
    assert_true(has_room(f.segments, 4 * MIB));
    assert_false(has_room(f.segments, 4 * MIB + 1));
    assert_status(spw__segments_reserve(f.segments, 5 * MIB, &own, &t->error),
                  LIMIT_EXCEEDED);
    own = reserve(&f, 4 * MIB);
    release_all(&f, &own, 1);
    /* A file whose part grows is charged elsewhere as a whole: the first has room. */
    release_all(&f, &ranges[1], 2);
    ranges[3] = adopt_file(t, &f, first, 6 * MIB, 5 * MIB);
    assert_true(has_room(f.segments, 10 * MIB));
    release_all(&f, &ranges[0], 1);
    release_all(&f, &ranges[3], 1);
    (void)spw__segments_collect(f.segments);
    assert_figures(&f, 0, 0, 0);
    assert_true(has_room(f.segments, 10 * MIB));
    release_all(&maker, made, COUNT_OF(made));
    close_places(&f);
    close_places(&maker);
}

static void room_that_is_given_back_serves_who_waits_for_it(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    spw__range own = {0};
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 10 * MIB);
    spw__range made = reserve(&maker, 10 * MIB);
    spw__range range = adopt(t, &f, &made);
    assert_status(spw__segments_reserve(f.segments, 64, &own, &t->error),
                  LIMIT_EXCEEDED);
    assert_true(spw__segments_release(f.segments, &range));
    own = reserve(&f, 10 * MIB);
    release_all(&f, &own, 1);
    release_all(&maker, &made, 1);
    close_places(&f);
    close_places(&maker);
}

/* Files of others make ours no larger. */
static void foreign_files_do_not_count_for_the_size_of_our_own(void **state)
{
    torture *t = *state;
    enum { FILES = 65 };
    segments_fixture maker, f;
    static spw__range made[FILES], ranges[FILES];
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    for (int i = 0; i < FILES; i++) {
        made[i] = reserve(&maker, UINT64_C(5) << 30); /* a file of its own */
        ranges[i] = adopt(t, &f, &made[i]);
    }
    assert_int_equal(read_figures(&f).foreign_files, FILES);
    spw__range own[] = {reserve(&f, 30 * MIB), reserve(&f, 30 * MIB),
                        reserve(&f, 30 * MIB)};
    assert_int_equal(read_figures(&f).files, 2); /* of 64 MiB */
    release_all(&f, own, COUNT_OF(own));
    release_all(&f, ranges, FILES);
    release_all(&maker, made, FILES);
    close_places(&f);
    close_places(&maker);
}

/* ---- let go of ---- */

static void what_its_maker_let_go_of_is_sparse(void **state)
{
    torture *t = *state;
    segments_fixture maker, f, other;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    open_all(t, &other, 1, 0);
    spw__range made[] = {reserve(&maker, 10 * MIB), reserve(&maker, 10 * MIB),
                         reserve(&maker, 10 * MIB)};
    write_last(&made[2]);
    spw__range ranges[] = {adopt(t, &f, &made[0]), adopt(t, &f, &made[1])};
    spw__range others = adopt(t, &other, &made[2]);
    assert_null(look(&f));
    assert_null(look(&other));
    release_all(&maker, made, 2);
    assert_null(look(&other)); /* it is wanted still */
    let_go(&maker, &made[2], 1);
    /* Who adopts holds nothing: each minds its own part. */
    assert_ptr_equal(look(&other), others.segment);
    assert_null(spw__segments_next_sparse(other.segments, false));
    assert_null(look(&f)); /* two thirds */
    (void)spw__segments_release(f.segments, &ranges[0]);
    assert_ptr_equal(spw__segments_next_sparse(f.segments, false), ranges[1].segment);
    assert_null(spw__segments_next_sparse(f.segments, false));
    assert_ptr_equal(look(&f), ranges[1].segment); /* it was not emptied */
    spw__segments_leave(f.segments, &ranges[1]);
    assert_null(look(&f));
    release_all(&f, &ranges[1], 1);
    release_all(&other, &others, 1);
    close_places(&other);
    close_places(&f);
    close_places(&maker);
}

static void one_on_its_way_to_others_is_held(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    spw_file *received;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    spw__range made[] = {reserve(&maker, MIB), reserve(&maker, 10 * MIB)};
    write_last(&made[1]);
    spw__range range = adopt(t, &f, &made[0]);
    assert_ok(handed_file(t->context, spw__range_file(&made[0]), &received, NULL));
    let_go(&maker, made, COUNT_OF(made));
    assert_null(look(&f));
    spw_file_unref(received);
    assert_ptr_equal(look(&f), range.segment);
    release_all(&f, &range, 1);
    close_places(&f);
    close_places(&maker);
}

static void one_that_dies_meanwhile_is_not_answered(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    spw__range made[] = {reserve(&maker, MIB), reserve(&maker, 10 * MIB)};
    write_last(&made[1]);
    spw__range range = adopt(t, &f, &made[0]);
    let_go(&maker, made, COUNT_OF(made));
    spw__segments_look(f.segments);
    assert_true(spw__segments_release(f.segments, &range));
    assert_null(spw__segments_next_sparse(f.segments, false));
    assert_int_equal(spw__segments_collect(f.segments), MIB);
    close_places(&f);
    close_places(&maker);
}

/* No hold was seen: nobody knows whether others want it. */
static void a_file_that_nobody_is_seen_to_hold_stays(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    spw_file *file;
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 1, 0);
    assert_ok(spw_file_adopt(t->context, file_open(), &file, NULL));
    assert_int_equal(ftruncate(spw_file_descriptor(file), 20 * MIB), 0);
    spw__range made[] = {reserve(&maker, MIB), reserve(&maker, 10 * MIB)};
    write_last(&made[1]);
    spw__range ranges[] = {adopt_file(t, &f, file, 0, MIB), {0}};
    spw_file_unref(file);
    /* Nor where it cannot be opened: what was received is kept, and holds it. */
    unsigned before = file_count_descriptors();
    io_fault_arm_call("spill_reopen", 1, EMFILE);
    ranges[1] = adopt(t, &f, &made[0]);
    assert_int_equal(file_count_descriptors(), before + 1);
    let_go(&maker, made, COUNT_OF(made));
    assert_null(look(&f));
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
    close_places(&maker);
}

/* ---- several threads ---- */

enum { THREADS = 3, ROUNDS = 300, HELD = 5, FILES = 4 };

typedef struct adopter {
    pthread_t thread;
    torture *t;
    segments_fixture *f;
    const spw__range *made;
    unsigned number;
} adopter;

static void *adopt_and_release(void *argument)
{
    adopter *self = argument;
    segments_fixture *f = self->f;
    spw__range held[HELD] = {{0}};
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw__range *range = &held[i % HELD];
        if (range->segment != NULL && spw__segments_release(f->segments, range))
            (void)spw__segments_collect(f->segments);
        *range = adopt(self->t, f, &self->made[(i + self->number) % FILES]);
        assert_true(spw_file_descriptor(spw__range_file(range)) >= 0);
        (void)look(f);
    }
    release_all(f, held, HELD);
    return NULL;
}

static void threads_that_adopt_and_release_are_apart(void **state)
{
    torture *t = *state;
    segments_fixture maker, f;
    adopter adopters[THREADS];
    spw__range made[FILES];
    open_all(t, &maker, 1, 0);
    open_all(t, &f, 2, 20 * MIB);
    for (int i = 0; i < FILES; i++)
        made[i] = reserve(&maker, 40 * MIB); /* each in a file of its own */
    for (unsigned i = 0; i < THREADS; i++) {
        adopters[i] = (adopter){.t = t, .f = &f, .made = made, .number = i};
        assert_int_equal(
            pthread_create(&adopters[i].thread, NULL, adopt_and_release, &adopters[i]),
            0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(adopters[i].thread, NULL), 0);
    (void)spw__segments_collect(f.segments);
    assert_figures(&f, 0, 0, 0);
    assert_int_equal(read_figures(&f).foreign_files, 0);
    release_all(&maker, made, FILES);
    close_places(&f);
    close_places(&maker);
}

/* ---- everything fails in turn ---- */

static void ranges_are_adopted_and_let_go_of(void **state)
{
    torture *t = *state;
    segments_fixture maker = {0}, f;
    spw__range made = {0}, ranges[2] = {{0}};
    spw_file *received = NULL;
    open_places(&maker, 0);
    open_places(&f, 0);
    TRY(spw__segments_create(t->context, maker.directories, 1, SPW__SEGMENT_BYTES,
                             &maker.segments, &t->error));
    TRY(spw__segments_create(t->context, f.directories, 1, SPW__SEGMENT_BYTES,
                             &f.segments, &t->error));
    TRY(spw__segments_reserve(maker.segments, MIB, &made, &t->error));
    TRY(handed_file(t->context, spw__range_file(&made), &received, &t->error));
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        TRY(spw__segments_adopt(f.segments, received, 0, MIB, &ranges[i], &t->error));
    (void)look(&f);
end:
    spw_file_unref(received);
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (ranges[i].segment != NULL)
            (void)spw__segments_release(f.segments, &ranges[i]);
    if (made.segment != NULL)
        (void)spw__segments_release(maker.segments, &made);
    close_places(&f);
    close_places(&maker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(one_descriptor_is_kept_of_a_file),
        SCENARIO(two_that_adopt_at_once_share_a_file),
        SCENARIO(what_a_child_or_a_liar_adopts_is_refused),
        SCENARIO(it_is_charged_where_there_is_room_or_to_the_last),
        SCENARIO(room_that_is_given_back_serves_who_waits_for_it),
        SCENARIO(foreign_files_do_not_count_for_the_size_of_our_own),
        SCENARIO(what_its_maker_let_go_of_is_sparse),
        SCENARIO(one_on_its_way_to_others_is_held),
        SCENARIO(one_that_dies_meanwhile_is_not_answered),
        SCENARIO(a_file_that_nobody_is_seen_to_hold_stays),
        SCENARIO(threads_that_adopt_and_release_are_apart),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(ranges_are_adopted_and_let_go_of)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("foreign_segments", scenarios);
}
