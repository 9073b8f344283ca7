/* Segments whose ranges are given back: when files go, and what threads see of others.
 */
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "platform/spill_file.h"
#include "segments_fixture.h"

/* ---- when files go ---- */

static void a_file_goes_with_its_last_range(void **state)
{
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture f;
    open_all(*state, &f, 1, 0);
    spw__range ranges[] = {reserve(&f, 30 * MIB), reserve(&f, 20 * MIB),
                           reserve(&f, 10 * MIB)};
    assert_false(spw__segments_release(f.segments, &ranges[0]));
    assert_null(spw__segments_next_sparse(f.segments, true)); /* it is half */
    assert_false(spw__segments_release(f.segments, &ranges[2]));
    assert_null(spw__segments_next_sparse(f.segments, true)); /* it is open */
    spw__range next[] = {reserve(&f, 30 * MIB), reserve(&f, 30 * MIB),
                         reserve(&f, 30 * MIB)};
    assert_ptr_equal(spw__segments_next_sparse(f.segments, true), ranges[1].segment);
    assert_null(spw__segments_next_sparse(f.segments, true));
    assert_ptr_equal(next[0].segment, next[1].segment);
    /* Released after it was sealed: half, then less, then nothing. */
    assert_false(spw__segments_release(f.segments, &next[1]));
    assert_null(spw__segments_next_sparse(f.segments, true));
    assert_true(spw__segments_release(f.segments, &next[0]));
    assert_null(spw__segments_next_sparse(f.segments, true));
    assert_true(spw__segments_release(f.segments, &ranges[1]));
    (void)spw__segments_release(f.segments, &next[2]);
    close_places(&f);
}

static void what_was_refused_is_passed_over_if_there_is_another(void **state)
{
    segments_fixture f;
    open_all(*state, &f, 2, 0);
    spw__range first = reserve(&f, 100);
    assert_true(spw__segments_refuse(f.segments, &first));
    spw__range second = reserve(&f, 100);
    assert_ptr_not_equal(second.segment, first.segment);
    assert_false(spw__segments_refuse(f.segments, &second));
    spw__range third = reserve(&f, 100);
    assert_ptr_equal(third.segment, first.segment);
    (void)spw__segments_release(f.segments, &first);
    (void)spw__segments_release(f.segments, &second);
    (void)spw__segments_release(f.segments, &third);
    close_places(&f);
}

enum { IN_FILE = 8, PART = 64 / IN_FILE * MIB };

/* Files, each full. */
static void fill(segments_fixture *f, size_t count, spw__range (*ranges)[IN_FILE])
{
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < IN_FILE; i++)
            ranges[s][i] = reserve(f, PART);
}

/* Release all but so many in each of some files. Returns: whether one said that there
 * is something to do. */
static bool leave(segments_fixture *f, size_t count, spw__range (*ranges)[IN_FILE],
                  size_t left)
{
    bool is_something = false;
    for (size_t s = 0; s < count; s++)
        for (size_t i = left; i < IN_FILE; i++)
            is_something |= spw__segments_release(f->segments, &ranges[s][i]);
    return is_something;
}

static void what_is_left_stays_as_long_as_more_is_wanted(void **state)
{
    enum { FILES = 10 };
    segments_fixture f;
    spw__range ranges[FILES][IN_FILE];
    open_all(*state, &f, 1, 0);
    fill(&f, FILES, ranges);
    /* Of 640 MiB 368 are wanted, and then 208, and so in vain half of it and 256. */
    assert_false(leave(&f, FILES / 2, ranges, 2));
    assert_false(leave(&f, 1, ranges, 1));
    assert_null(spw__segments_next_sparse(f.segments, false));
    assert_false(leave(&f, FILES / 2, &ranges[FILES / 2], 4));
    assert_null(spw__segments_next_sparse(f.segments, false));
    assert_true(leave(&f, FILES / 2, &ranges[FILES / 2], 2));
    /* Where least is left first; and no more than need be: the file has gone. */
    assert_ptr_equal(spw__segments_next_sparse(f.segments, false),
                     ranges[0][0].segment);
    assert_true(spw__segments_release(f.segments, &ranges[0][0]));
    assert_int_equal(spw__segments_collect(f.segments), 64 * MIB);
    assert_non_null(spw__segments_next_sparse(f.segments, false));
    assert_true(leave(&f, 2, &ranges[1], 0));
    assert_null(spw__segments_next_sparse(f.segments, false));
    assert_non_null(spw__segments_next_sparse(f.segments, true));
    (void)leave(&f, FILES, ranges, 0);
    close_places(&f);
}

static void where_a_directory_is_nearly_full_it_does_not(void **state)
{
    enum { FILES = 3 };
    segments_fixture f;
    spw__range ranges[FILES][IN_FILE];
    open_all(*state, &f, 2, FILES * 64 * MIB);
    fill(&f, FILES - 1, ranges);
    assert_false(leave(&f, 1, ranges, 1));
    assert_null(spw__segments_next_sparse(f.segments, false));
    fill(&f, 1, &ranges[FILES - 1]);
    assert_ptr_equal(spw__segments_next_sparse(f.segments, false),
                     ranges[0][0].segment);
    (void)leave(&f, FILES, ranges, 0);
    close_places(&f);
}

static void of_several_sparse_segments_those_that_die_are_not_answered(void **state)
{
    enum { SEGMENTS = 3, IN_EACH = 4 };
    segments_fixture f;
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
        for (spw__segment *one;
             (one = spw__segments_next_sparse(f.segments, true)) != NULL;)
            assert_ptr_not_equal(one, died);
    }
    close_places(&f);
}

static void what_could_not_be_written_gives_its_room_back(void **state)
{
    segments_fixture f;
    struct stat now;
    static const char data[1000];
    open_all(*state, &f, 1, 0);
    spw__range ranges[] = {reserve(&f, 1000), reserve(&f, 1000), reserve(&f, 1000)};
    spw__range first = ranges[0], last = ranges[2];
    int file = spw_file_descriptor(spw__range_file(&first));
    spw__spill_part part = {data, sizeof data};
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        assert_int_equal(spw__spill_file_write(file, &part, 1, ranges[i].offset), 0);
    /* In the middle: there is something behind it. */
    assert_false(spw__segments_give_up(f.segments, &ranges[1]));
    assert_null(ranges[1].segment);
    assert_figures(&f, 1, 3 * 1024, 2000);
    assert_false(spw__segments_give_up(f.segments, &ranges[2]));
    assert_figures(&f, 1, 2 * 1024, 1000);
    assert_int_equal(fstat(file, &now), 0);
    assert_int_equal(now.st_size, last.offset);
    ranges[2] = reserve(&f, 10);
    assert_int_equal(ranges[2].offset, last.offset);
    /* Nothing is left that is wanted: the file goes, with what was never written. */
    assert_false(spw__segments_give_up(f.segments, &ranges[2]));
    assert_true(spw__segments_give_up(f.segments, &ranges[0]));
    assert_int_equal(spw__segments_collect(f.segments), 2048);
    assert_figures(&f, 0, 0, 0);
    close_places(&f);
}

static void a_full_file_is_not_cut(void **state)
{
    segments_fixture f;
    open_all(*state, &f, 1, 0);
    spw__range ranges[] = {reserve(&f, 32 * MIB), reserve(&f, 32 * MIB)};
    assert_ptr_equal(ranges[0].segment, ranges[1].segment);
    assert_false(spw__segments_give_up(f.segments, &ranges[1]));
    assert_figures(&f, 1, 64 * MIB, 32 * MIB);
    release_all(&f, ranges, COUNT_OF(ranges));
    close_places(&f);
}

/* ---- several threads ---- */

typedef struct meanwhile {
    segments_fixture *f;
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
    segments_fixture f;
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
    segments_fixture f;
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
    segments_fixture *f;
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
        (void)spw__segments_next_sparse(one->f->segments, true);
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
    segments_fixture f;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_file_goes_with_its_last_range),
        SCENARIO(whoever_holds_the_file_keeps_it),
        SCENARIO(a_sparse_segment_is_answered_once),
        SCENARIO(what_was_refused_is_passed_over_if_there_is_another),
        SCENARIO(what_is_left_stays_as_long_as_more_is_wanted),
        SCENARIO(where_a_directory_is_nearly_full_it_does_not),
        SCENARIO(of_several_sparse_segments_those_that_die_are_not_answered),
        SCENARIO(what_could_not_be_written_gives_its_room_back),
        SCENARIO(a_full_file_is_not_cut),
        SCENARIO(two_that_need_a_file_at_once_share_one),
        SCENARIO(room_that_is_gone_meanwhile_is_looked_for_elsewhere),
        SCENARIO(ranges_of_several_threads_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
