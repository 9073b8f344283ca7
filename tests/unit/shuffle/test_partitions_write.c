#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "partition_run.h"
#include "torture.h"

enum { PARTITIONS = 8 };

/* Of items of 8 bytes: partition 5 is the largest. */
static const uint32_t UNEVEN[PARTITIONS] = {18000, 18000, 18000, 18000,
                                            18000, 80000, 18000, 18000};

static void put_all(torture *t, partition_run *run)
{
    for (uint32_t i = 0; i < run->input_count; i++) {
        assert_ok(partition_run_put(run, i, 0, run->partition_count, NULL, &t->error));
        partition_run_drop(run, i);
    }
}

static void read_all(torture *t, partition_run *run)
{
    spw_partitions_finish(run->partitions);
    for (uint32_t p = 0; p < run->partition_count; p++)
        assert_ok(partition_run_read(run, p, &t->error));
    assert_int_equal(partition_run_figures(run).held_bytes, 0);
    assert_int_equal(partition_run_figures(run).disk_used, 0);
}

static void the_largest_goes_first(void **state)
{
    torture *t = *state;
    partition_run run;
    uint64_t bytes, all = 2 * 206000 * 8, largest = 2 * 80000 * 8;
    torture_use_pool(t);
    partition_run_open_plain(&run, t->context, 2, PARTITIONS, UNEVEN);
    assert_ok(partition_run_create(&run, all - 100, largest, &t->error));
    put_all(t, &run);
    assert_ok(spw_partitions_write(run.partitions, &bytes, &t->error));
    assert_int_equal(bytes, largest);
    spw_partitions_figures figures = partition_run_figures(&run);
    assert_int_equal(figures.chunks, 1);
    assert_int_equal(figures.disk_bytes, largest);
    assert_int_equal(figures.memory_bytes, all - largest);
    /* Now it is within the limit, and nothing more happens. */
    assert_ok(spw_partitions_write(run.partitions, &bytes, &t->error));
    assert_int_equal(bytes, 0);
    spw_partitions_finish(run.partitions);
    assert_ok(partition_run_read(&run, 5, &t->error));
    assert_int_equal(partition_run_figures(&run).read_bytes, largest);
    assert_int_equal(partition_run_figures(&run).disk_used, 0);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        if (p != 5)
            assert_ok(partition_run_read(&run, p, &t->error));
    partition_run_close(&run);
}

/* Shards of 2 KiB: only neighbours together free any memory to speak of. */
static void small_shards_go_with_their_neighbours(void **state)
{
    enum { COUNT = 256, INPUTS = 8 };
    torture *t = *state;
    partition_run run;
    uint32_t rows[COUNT];
    for (int i = 0; i < COUNT; i++)
        rows[i] = 256;
    torture_use_pool(t);
    partition_run_open_plain(&run, t->context, INPUTS, COUNT, rows);
    uint64_t all = (uint64_t)INPUTS * COUNT * 2048;
    assert_ok(partition_run_create(&run, all / 2, all / 4, &t->error));
    put_all(t, &run);
    uint64_t held = torture_charged(t, SPW_CHARGE_HELD), bytes;
    assert_ok(spw_partitions_write(run.partitions, &bytes, &t->error));
    spw_partitions_figures figures = partition_run_figures(&run);
    assert_true(figures.held_bytes <= all / 2);
    assert_true(held - torture_charged(t, SPW_CHARGE_HELD) >= all / 2);
    /* Runs of 32 partitions, of which an eighth at the edges stays at most. */
    assert_true(figures.memory_bytes + all / 16 >= figures.held_bytes);
    assert_true(figures.writes <= 4);
    read_all(t, &run);
    partition_run_close(&run);
}

/* Pages that went with an earlier write do not go again with the next one. */
static void pieces_leave_by_and_by(void **state)
{
    enum { COUNT = 100, INPUTS = 12 };
    torture *t = *state;
    partition_run run;
    uint32_t rows[COUNT];
    uint64_t of_input = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        of_input += (rows[i] = 60 + i * 37 % 400) * 8;
    torture_use_pool(t);
    partition_run_open_plain(&run, t->context, INPUTS, COUNT, rows);
    assert_ok(partition_run_create(&run, of_input / 2, of_input / 7, &t->error));
    for (uint32_t i = 0; i < INPUTS; i++) {
        assert_ok(partition_run_put(&run, i, 0, COUNT, NULL, &t->error));
        partition_run_drop(&run, i);
        assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
        spw_partitions_figures figures = partition_run_figures(&run);
        assert_true(figures.held_bytes <= of_input / 2);
        assert_true(figures.held_bytes >= figures.memory_bytes);
        assert_int_equal(figures.memory_bytes + figures.disk_bytes, (i + 1) * of_input);
        assert_true(torture_charged(t, SPW_CHARGE_HELD) < INPUTS * of_input * 2);
    }
    read_all(t, &run);
    partition_run_close(&run);
}

static void without_a_limit_all_goes_in_batches(void **state)
{
    torture *t = *state;
    partition_run run;
    unsigned answer;
    uint32_t rows[2] = {1000, 1000};
    uint64_t bytes, of_input = 16000;
    partition_run_open_plain(&run, t->context, 6, 2, rows);
    assert_ok(partition_run_create(&run, 0, 3 * of_input, &t->error));
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(partition_run_put(&run, i, 0, 2, &answer, &t->error));
        assert_int_equal(answer, 0);
    }
    assert_ok(spw_partitions_write(run.partitions, &bytes, &t->error));
    assert_int_equal(bytes, 0);
    assert_ok(partition_run_put(&run, 3, 0, 2, &answer, &t->error));
    assert_int_equal(answer, SPW_PUT_WRITE_IS_DUE);
    assert_ok(spw_partitions_write(run.partitions, &bytes, &t->error));
    assert_true(bytes >= of_input && bytes <= 3 * of_input);
    assert_true(partition_run_figures(&run).writes == 1);
    for (uint32_t i = 4; i < 6; i++)
        assert_ok(partition_run_put(&run, i, 0, 2, NULL, &t->error));
    partition_run_drop_all(&run);
    read_all(t, &run);
    partition_run_close(&run);
}

/* ----- disks that do not take it ----- */

static void open_some(torture *t, partition_run *run, uint64_t limit_bytes)
{
    static const uint32_t ROWS[] = {2000, 3000, 1000};
    partition_run_open_plain(run, t->context, 3, COUNT_OF(ROWS), ROWS);
    for (int i = 0; i < RUN_PLACES; i++)
        run->directories[i].limit_bytes = limit_bytes;
    assert_ok(partition_run_create(run, 1, 40000, &t->error));
    put_all(t, run);
}

static void a_full_disk_is_followed_by_the_next(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run, 0);
    io_fault_arm_call("spill_write", 1, ENOSPC);
    assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
    assert_true(io_fault_calls_of("spill_create") == 2);
    read_all(t, &run);
    partition_run_close(&run);
}

static void where_no_disk_takes_it_nothing_is_lost(void **state)
{
    static const int FAULTS[] = {ENOSPC, EDQUOT, EIO};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(FAULTS); i++) {
        partition_run run;
        open_some(t, &run, 0);
        spw_partitions_figures before = partition_run_figures(&run);
        disk_fault_room(30000); /* and then in the middle of a write */
        assert_status(spw_partitions_write(run.partitions, NULL, &t->error), IO);
        assert_int_equal(t->error.os_errno, ENOSPC);
        assert_non_null(strstr(t->error.message, run.places[1].directory));
        assert_non_null(strstr(t->error.message, "are free"));
        disk_fault_room(UINT64_MAX);
        io_fault_arm_call("spill_create", 1, FAULTS[i]);
        spw_partitions_figures after = partition_run_figures(&run);
        assert_int_equal(after.memory_bytes, before.memory_bytes);
        assert_int_equal(after.disk_bytes + after.disk_used + after.writing_bytes, 0);
        assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
        assert_int_equal(partition_run_figures(&run).memory_bytes, 0);
        read_all(t, &run);
        partition_run_close(&run);
    }
}

static void limits_of_directories_are_kept(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run, 64 << 10);
    assert_status(spw_partitions_write(run.partitions, NULL, &t->error),
                  LIMIT_EXCEEDED);
    assert_non_null(strstr(t->error.message, run.places[1].directory));
    assert_non_null(strstr(t->error.message, "of 65536 bytes are used"));
    spw_partitions_figures figures = partition_run_figures(&run);
    assert_true(figures.disk_used <= 2 * 65536);
    assert_int_equal(figures.disk_bytes, 96000);
    read_all(t, &run);
    partition_run_close(&run);
}

static void a_directory_that_is_gone_is_told(void **state)
{
    torture *t = *state;
    partition_run run;
    char command[200];
    open_some(t, &run, 0);
    for (int i = 0; i < RUN_PLACES; i++) {
        snprintf(command, sizeof command, "rmdir %s/spillway-shuffle-*",
                 run.places[i].directory);
        assert_int_equal(system(command), 0);
    }
    assert_status(spw_partitions_write(run.partitions, NULL, &t->error), IO);
    assert_int_equal(t->error.os_errno, ENOENT);
    assert_non_null(strstr(t->error.message, run.places[1].directory));
    read_all(t, &run);
    partition_run_close(&run);
}

/* ----- several runs of a process ----- */

enum { PIECE_ROWS = 1 << 17 }; /* a piece has 1 MiB */

static void open_shared(torture *t, partition_run *run, uint32_t input_count,
                        uint64_t limit_bytes)
{
    uint32_t rows[PARTITIONS];
    for (int i = 0; i < PARTITIONS; i++)
        rows[i] = PIECE_ROWS / PARTITIONS;
    partition_run_open_plain(run, t->context, input_count, PARTITIONS, rows);
    assert_ok(partition_run_create(run, limit_bytes, 1 << 20, &t->error));
}

static bool put_one(torture *t, partition_run *run, uint32_t input)
{
    unsigned answer;
    assert_ok(partition_run_put(run, input, 0, PARTITIONS, &answer, &t->error));
    partition_run_drop(run, input);
    return (answer & SPW_PUT_WRITE_IS_DUE) != 0;
}

static uint64_t shuffled_bytes(const torture *t)
{
    spw_budget_figures figures;
    spw_budget_read(t->budget, &figures);
    return figures.shuffled_bytes;
}

static void runs_of_one_budget_share_the_limit(void **state)
{
    torture *t = *state;
    partition_run first, second;
    const uint64_t piece = PIECE_ROWS * 8, limit = 4 * piece;
    torture_use_pool(t);
    open_shared(t, &first, 4, limit);
    open_shared(t, &second, 5, limit);
    for (uint32_t i = 0; i < 4; i++)
        assert_false(put_one(t, &first, i));
    assert_int_equal(shuffled_bytes(t), limit);
    /* The first has all of it: the second keeps what is too little for a write. */
    assert_false(put_one(t, &second, 0));
    assert_true(put_one(t, &second, 1));
    assert_ok(spw_partitions_write(second.partitions, NULL, &t->error));
    assert_int_equal(partition_run_figures(&second).disk_bytes, piece);
    assert_int_equal(partition_run_figures(&first).disk_bytes, 0);
    assert_int_equal(shuffled_bytes(t), limit + piece);
    /* Where that is gone, the second may have it. */
    read_all(t, &first);
    assert_int_equal(shuffled_bytes(t), piece);
    for (uint32_t i = 2; i < 5; i++)
        assert_false(put_one(t, &second, i));
    assert_int_equal(shuffled_bytes(t), limit);
    partition_run_close(&first);
    partition_run_close(&second); /* unread: what it holds no longer counts */
    assert_int_equal(shuffled_bytes(t), 0);
}

static void a_limit_can_change(void **state)
{
    torture *t = *state;
    partition_run run;
    const uint64_t piece = PIECE_ROWS * 8;
    torture_use_pool(t);
    open_shared(t, &run, 4, 4 * piece);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(put_one(t, &run, i));
    spw_partitions_limit(run.partitions, 2 * piece);
    assert_int_equal(partition_run_figures(&run).disk_bytes, 0);
    assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
    assert_int_equal(partition_run_figures(&run).disk_bytes, piece);
    spw_partitions_limit(run.partitions, 3 * piece);
    assert_false(put_one(t, &run, 3));
    read_all(t, &run);
    partition_run_close(&run);
}

/* ----- waiting ----- */

typedef struct waiting {
    partition_run run;
    pthread_t thread;
    bool has_started;
    spw_status status;
} waiting;

static void *write_too(void *argument)
{
    waiting *w = argument;
    w->status = spw_partitions_write(w->run.partitions, NULL, NULL);
    return NULL;
}

/* In the middle of the first write somebody else calls, who has nothing left to write
 * and waits; then all is closed. */
static void close_meanwhile(void *argument, disk_fault_way way)
{
    waiting *w = argument;
    (void)way;
    if (w->has_started)
        return;
    w->has_started = true;
    assert_int_equal(pthread_create(&w->thread, NULL, write_too, w), 0);
    spw_partitions_close(w->run.partitions);
}

static void who_waits_hears_of_the_end(void **state)
{
    torture *t = *state;
    static waiting w;
    w = (waiting){0};
    open_some(t, &w.run, 0);
    disk_fault_during(DISK_FAULT_WRITING, close_meanwhile, &w);
    assert_status(spw_partitions_write(w.run.partitions, NULL, &t->error), CLOSED);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_status(w.status, CLOSED);
    disk_fault_during(0, NULL, NULL);
    partition_run_close(&w.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(the_largest_goes_first),
        SCENARIO(small_shards_go_with_their_neighbours),
        SCENARIO(pieces_leave_by_and_by),
        SCENARIO(without_a_limit_all_goes_in_batches),
        SCENARIO(a_full_disk_is_followed_by_the_next),
        SCENARIO(where_no_disk_takes_it_nothing_is_lost),
        SCENARIO(limits_of_directories_are_kept),
        SCENARIO(a_directory_that_is_gone_is_told),
        SCENARIO(runs_of_one_budget_share_the_limit),
        SCENARIO(a_limit_can_change),
        SCENARIO(who_waits_hears_of_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
