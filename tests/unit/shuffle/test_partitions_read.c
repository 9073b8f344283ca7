#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "partition_run.h"
#include "torture.h"

/* Three chunks of partition 0 and more, with shards in memory between them. */
static void open_some(torture *t, partition_run *run)
{
    static const uint32_t ROWS[] = {3000, 0, 2000};
    partition_run_open_plain(run, t->context, 9, COUNT_OF(ROWS), ROWS);
    assert_ok(partition_run_create(run, 60000, 70000, &t->error));
    static const uint32_t ORDER[] = {4, 0, 8, 2, 6, 1, 5, 3, 7};
    for (size_t i = 0; i < COUNT_OF(ORDER); i++) {
        assert_ok(partition_run_put(run, ORDER[i], 0, 3, NULL, &t->error));
        partition_run_drop(run, ORDER[i]);
        if (i < 8)
            assert_ok(spw_partitions_write(run->partitions, NULL, &t->error));
    }
    assert_true(partition_run_figures(run).chunks >= 4);
    assert_true(partition_run_figures(run).memory_bytes > 0);
    spw_partitions_finish(run->partitions);
}

static void a_partition_is_read_once_and_in_time(void **state)
{
    torture *t = *state;
    partition_run run;
    static const uint32_t ROWS[] = {30, 0};
    partition_run_open_plain(&run, t->context, 2, 2, ROWS);
    assert_ok(partition_run_create(&run, SPW_PARTITIONS_IN_MEMORY, 0, &t->error));
    assert_ok(partition_run_put(&run, 0, 0, 2, NULL, &t->error));
    assert_status(partition_run_read(&run, 0, &t->error), INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "before all its inputs are there"));
    assert_status(spw_partitions_read(run.partitions, 0, NULL, 0, &t->error),
                  INVALID_ARGUMENT);
    assert_ok(partition_run_put(&run, 1, 0, 2, NULL, &t->error));
    spw_partitions_finish(run.partitions);
    assert_status(partition_run_read(&run, 2, &t->error), INVALID_ARGUMENT);
    /* Places for another number of groups. */
    assert_status(spw_partitions_read(run.partitions, 0, NULL, 0, &t->error),
                  INVALID_ARGUMENT);
    for (uint32_t p = 0; p < 2; p++) {
        assert_ok(partition_run_read(&run, p, &t->error));
        assert_status(partition_run_read(&run, p, &t->error), CLOSED);
        assert_non_null(strstr(t->error.message, "read already"));
        assert_status(spw_partitions_read(run.partitions, p, NULL, 0, &t->error),
                      CLOSED);
    }
    partition_run_close(&run);
}

static void memory_and_disk_are_read_together(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run);
    for (uint32_t p = 0; p < 3; p++)
        assert_ok(partition_run_read(&run, p, &t->error));
    assert_int_equal(partition_run_figures(&run).disk_used, 0);
    partition_run_close(&run);
}

static void a_read_that_failed_may_be_made_again(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run);
    for (int round = 0; round < 2; round++) {
        io_fault_arm_call("spill_read", 2, EIO);
        assert_status(partition_run_read(&run, 0, &t->error), IO);
        assert_int_equal(t->error.os_errno, EIO);
        disk_fault_corrupt(1, 4321);
        assert_status(partition_run_read(&run, 0, &t->error), CORRUPT);
        assert_non_null(strstr(t->error.message, "not those that were written"));
        disk_fault_cut(1);
        assert_status(partition_run_read(&run, 0, &t->error), CORRUPT);
        t->allocator.calls = 0;
        t->allocator.fail_at = 3;
        assert_status(partition_run_read(&run, 0, &t->error), NO_MEMORY);
        t->allocator.fail_at = 0;
        assert_int_equal(partition_run_figures(&run).partitions, 2);
    }
    assert_ok(partition_run_read(&run, 0, &t->error));
    assert_ok(partition_run_read(&run, 2, &t->error));
    partition_run_close(&run);
}

/* ----- two at a time ----- */

typedef struct rival {
    partition_run *run;
    spw_error error;
    spw_status read, write;
} rival;

static void read_too(void *argument, disk_fault_way way)
{
    rival *r = argument;
    (void)way;
    r->read = spw_partitions_read(r->run->partitions, 0, NULL, 1, &r->error);
    /* What is being read is not written, and nobody waits for it. */
    r->write = spw_partitions_write(r->run->partitions, NULL, NULL);
}

static void one_of_two_gets_it(void **state)
{
    torture *t = *state;
    partition_run run;
    rival r = {.run = &run};
    open_some(t, &run);
    disk_fault_during(DISK_FAULT_READING, read_too, &r);
    assert_ok(partition_run_read(&run, 0, &t->error));
    disk_fault_during(0, NULL, NULL);
    assert_status(r.read, INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.message, "another thread"));
    assert_ok(r.write);
    assert_ok(partition_run_read(&run, 2, &t->error));
    partition_run_close(&run);
}

static void after_close_nothing_is_read(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run);
    spw_partitions_close(run.partitions);
    assert_status(partition_run_read(&run, 0, &t->error), CLOSED);
    assert_status(spw_partitions_write(run.partitions, NULL, &t->error), CLOSED);
    partition_run_close(&run);
}

/* 3 MiB a shard, which is read past the cache and in several windows. */
typedef struct watched_read {
    torture *torture;
    uint64_t most; /* charged at once */
} watched_read;

static void note_charged(void *argument, disk_fault_way way)
{
    watched_read *w = argument;
    uint64_t charged = torture_charged(w->torture, SPW_CHARGE_HELD);
    (void)way;
    w->most = charged > w->most ? charged : w->most;
}

/* Each of them is in a chunk of its own, larger than what that has for a window. */
static void bug_windows_of_all_large_shards_were_kept_to_the_end(void **state)
{
    enum { INPUTS = 16, LARGE = 2 << 20 }; /* a window: 1 MiB */
    torture *t = *state;
    partition_run run;
    const uint32_t rows[] = {LARGE / 8};
    watched_read watched = {.torture = t};
    torture_use_pool(t);
    partition_run_open_plain(&run, t->context, INPUTS, 1, rows);
    assert_ok(partition_run_create(&run, 1, 1, &t->error));
    for (uint32_t i = 0; i < INPUTS; i++) {
        assert_ok(partition_run_put(&run, i, 0, 1, NULL, &t->error));
        partition_run_drop(&run, i);
        assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
    }
    assert_int_equal(partition_run_figures(&run).chunks, INPUTS);
    spw_partitions_finish(run.partitions);
    uint64_t before = torture_charged(t, SPW_CHARGE_HELD);
    disk_fault_during(DISK_FAULT_READING, note_charged, &watched);
    assert_ok(partition_run_read(&run, 0, &t->error));
    disk_fault_during(0, NULL, NULL);
    assert_in_range(watched.most - before, LARGE, 2 * LARGE);
    partition_run_close(&run);
}

static void large_shards_come_in_windows(void **state)
{
    torture *t = *state;
    partition_run run;
    static const uint32_t ROWS[] = {400000, 10};
    torture_use_pool(t);
    partition_run_open_plain(&run, t->context, 9, 2, ROWS);
    assert_ok(partition_run_create(&run, 1, 64 << 20, &t->error));
    for (uint32_t i = 0; i < 9; i++) {
        assert_ok(partition_run_put(&run, i, 0, 2, NULL, &t->error));
        partition_run_drop(&run, i);
    }
    assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
    assert_int_equal(partition_run_figures(&run).memory_bytes, 0);
    spw_partitions_finish(run.partitions);
    uint64_t before = torture_charged(t, SPW_CHARGE_HELD);
    assert_ok(partition_run_read(&run, 0, &t->error));
    assert_true(torture_charged(t, SPW_CHARGE_HELD) <= before);
    assert_ok(partition_run_read(&run, 1, &t->error));
    assert_int_equal(partition_run_figures(&run).disk_used, 0);
    partition_run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_partition_is_read_once_and_in_time),
        SCENARIO(memory_and_disk_are_read_together),
        SCENARIO(a_read_that_failed_may_be_made_again),
        SCENARIO(one_of_two_gets_it),
        SCENARIO(after_close_nothing_is_read),
        SCENARIO(bug_windows_of_all_large_shards_were_kept_to_the_end),
        SCENARIO(large_shards_come_in_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
