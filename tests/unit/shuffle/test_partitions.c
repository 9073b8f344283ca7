#include "spillway/partitions.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_fault.h"
#include "partition_run.h"
#include "torture.h"

static uint32_t below(unsigned *seed, uint32_t bound)
{
    return (uint32_t)rand_r(seed) % bound;
}

/* ----- whatever the order ----- */

/* Pieces cut at a place that follows from the input. */
static uint32_t cut_of(const partition_run *run, uint32_t input)
{
    return input % 3 == 0 ? 0 : (input * 7) % run->partition_count;
}

static void put_half(torture *t, partition_run *run, uint32_t input, bool is_second,
                     unsigned *seed)
{
    unsigned answer = 0;
    uint32_t cut = cut_of(run, input);
    uint32_t first = is_second ? cut : 0;
    uint32_t count = is_second ? run->partition_count - cut : cut;
    if (count == 0)
        return;
    assert_ok(partition_run_put(run, input, first, count, &answer, &t->error));
    assert_int_equal(answer & SPW_PUT_WAS_THERE, 0);
    if (below(seed, 4) == 0) {
        assert_ok(partition_run_put(run, input, first, count, &answer, &t->error));
        assert_true((answer & SPW_PUT_WAS_THERE) != 0);
    }
    if ((answer & SPW_PUT_WRITE_IS_DUE) != 0)
        assert_ok(spw_partitions_write(run->partitions, NULL, &t->error));
}

static void shuffle_numbers(uint32_t *numbers, uint32_t count, unsigned *seed)
{
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t k = below(seed, i), kept = numbers[i - 1];
        numbers[i - 1] = numbers[k];
        numbers[k] = kept;
    }
}

static void check_sums(torture *t, partition_run *run)
{
    spw_piece_rows rows[2 * RUN_INPUTS_MAX];
    uint64_t sums[RUN_INPUTS_MAX] = {0};
    size_t count = spw_partitions_list_pieces(run->partitions, 0, rows, COUNT_OF(rows));
    (void)t;
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || rows[i - 1].input <= rows[i].input);
        sums[rows[i].input] += rows[i].rows;
    }
    for (uint32_t i = 0; i < run->input_count; i++)
        assert_int_equal(sums[i], run->tables[i].row_count);
    assert_int_equal(partition_run_figures(run).pieces, count);
}

static void run_once(torture *t, unsigned seed)
{
    static const uint64_t LIMITS[] = {SPW_PARTITIONS_IN_MEMORY, 0, 1, 3000, 40000};
    partition_run run;
    uint32_t order[2 * RUN_INPUTS_MAX], partitions = 1 + below(&seed, 40);
    uint32_t inputs = 1 + below(&seed, 20);
    partition_run_open(&run, t->context, inputs, partitions, 600,
                       1 + below(&seed, RUN_SETS_MAX), &seed);
    run.reads_ahead = below(&seed, 2);
    assert_ok(partition_run_create(&run, LIMITS[below(&seed, COUNT_OF(LIMITS))],
                                   1 + below(&seed, 20000), &t->error));
    shuffle_numbers(order, 2 * inputs, &seed);
    for (uint32_t i = 0; i < 2 * inputs; i++)
        put_half(t, &run, order[i] / 2, order[i] % 2 == 1, &seed);
    partition_run_drop_all(&run);
    spw_partitions_finish(run.partitions);
    check_sums(t, &run);
    uint32_t numbers[64];
    shuffle_numbers(numbers, partitions, &seed);
    for (uint32_t i = 0; i < partitions; i++) {
        bool is_right = below(&seed, 4) > 0;
        spw_partitions_expect(run.partitions, is_right ? numbers[(i + 1) % partitions]
                                                       : below(&seed, partitions + 1));
        if (partition_run_read(&run, numbers[i], &t->error) != SPW_STATUS_OK)
            fail_msg("partition %u: %s", numbers[i], t->error.message);
        if (below(&seed, 8) == 0)
            assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
        if (below(&seed, 8) == 0 && i > 3)
            break; /* the rest goes unread */
        spw_partitions_figures figures = partition_run_figures(&run);
        if (i + 1 < partitions)
            continue;
        assert_int_equal(figures.held_bytes, 0);
        assert_int_equal(figures.memory_bytes, 0);
        assert_int_equal(figures.writing_bytes, 0);
        assert_int_equal(figures.disk_bytes, 0);
        assert_int_equal(figures.disk_used, 0);
        assert_int_equal(figures.chunks, 0);
        assert_int_equal(figures.partitions, 0);
        assert_int_equal(figures.read_bytes, figures.written_bytes);
    }
    partition_run_close(&run);
}

static void all_rows_come_out_in_order(void **state)
{
    torture *t = *state;
    for (unsigned seed = 1; seed <= 150; seed++)
        run_once(t, seed);
}

static void all_rows_come_out_of_the_pool_too(void **state)
{
    torture *t = *state;
    torture_use_pool(t);
    for (unsigned seed = 1001; seed <= 1100; seed++)
        run_once(t, seed);
}

/* ----- memory ----- */

/* 4 pieces of the pool's, of 16 shards. */
static void open_pieces(torture *t, partition_run *run, size_t shard_bytes,
                        uint64_t limit)
{
    uint32_t rows[16];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        rows[i] = (uint32_t)(shard_bytes / 8);
    torture_use_pool(t);
    partition_run_open_plain(run, t->context, 4, 16, rows);
    assert_ok(partition_run_create(run, limit, 0, &t->error));
    for (uint32_t i = 0; i < 4; i++) {
        assert_ok(partition_run_put(run, i, 0, 16, NULL, &t->error));
        partition_run_drop(run, i);
    }
}

static void memory_goes_as_partitions_are_read(void **state)
{
    torture *t = *state;
    partition_run run;
    open_pieces(t, &run, 64 << 10, SPW_PARTITIONS_IN_MEMORY);
    spw_partitions_finish(run.partitions);
    uint64_t before = torture_charged(t, SPW_CHARGE_HELD);
    assert_true(before >= 4 << 20);
    assert_int_equal(partition_run_figures(&run).held_bytes, 4 << 20);
    for (uint32_t p = 0; p < 16; p++) {
        assert_ok(partition_run_read(&run, (p * 5) % 16, &t->error));
        uint64_t gone = (p + 1) * 4 * (uint64_t)(64 << 10);
        /* Up to two pages at the edges of each run of what is gone. */
        uint64_t edges = 4 * 16 * (uint64_t)8192;
        uint64_t charged = torture_charged(t, SPW_CHARGE_HELD);
        assert_true(before - charged + edges >= gone);
        assert_int_equal(partition_run_figures(&run).held_bytes -
                                 partition_run_figures(&run).memory_bytes <=
                             edges,
                         1);
    }
    assert_int_equal(partition_run_figures(&run).held_bytes, 0);
    partition_run_close(&run);
}

/* Of one partition that is read the next one's buffers are made, whichever it is. */
static void what_was_read_is_memory_for_the_next(void **state)
{
    torture *t = *state;
    partition_run run;
    uint64_t mib = 1 << 20, shard = 700 << 10;
    open_pieces(t, &run, shard, SPW_PARTITIONS_IN_MEMORY);
    spw_partitions_finish(run.partitions);
    /* Pages at the edges of shards wait for the neighbours. */
    uint64_t edges = 4 * 2 * 4096;
    for (uint32_t p = 0; p < 15; p++) {
        uint64_t pooled = torture_charged(t, SPW_CHARGE_POOLED);
        assert_ok(partition_run_read(&run, (p * 7) % 16, &t->error));
        uint64_t given = torture_charged(t, SPW_CHARGE_POOLED) - pooled;
        assert_true(given + edges >= 4 * shard);
        spw_buffer *buffer;
        assert_ok(
            spw_buffer_create(t->context, 2 * mib, SPW_CHARGE_HELD, &buffer, NULL));
        memset(spw_buffer_data(buffer), 1, 2 * mib);
        spw_buffer_unref(buffer);
    }
    assert_true(torture_figures(t).pool_bytes_moved >= 15 * (4 * shard - edges));
    assert_true(partition_run_figures(&run).held_bytes <= 4 * shard + 15 * edges);
    assert_ok(partition_run_read(&run, 15 * 7 % 16, &t->error));
    assert_int_equal(partition_run_figures(&run).held_bytes, 0);
    partition_run_close(&run);
}

static void what_others_look_at_stays(void **state)
{
    torture *t = *state;
    partition_run run;
    uint32_t rows[4] = {8192, 8192, 8192, 8192};
    torture_use_pool(t);
    partition_run_open_plain(&run, t->context, 1, 4, rows);
    assert_ok(partition_run_create(&run, SPW_PARTITIONS_IN_MEMORY, 0, &t->error));
    assert_ok(partition_run_put(&run, 0, 0, 4, NULL, &t->error));
    spw_partitions_finish(run.partitions);
    assert_ok(partition_run_read(&run, 1, &t->error));
    shuffle_table_check_split(&run.tables[0], run.splits[0]);
    assert_int_equal(partition_run_figures(&run).held_bytes, 4 << 16);
    partition_run_close(&run);
}

/* ----- threads ----- */

typedef struct crowd {
    partition_run run;
    _Atomic uint32_t next_input, next_partition, refused;
} crowd;

static void *put_some(void *argument)
{
    crowd *c = argument;
    for (uint32_t i; (i = c->next_input++) < 2 * c->run.input_count;) {
        unsigned answer = 0;
        /* Each is put twice, perhaps at a time. */
        if (partition_run_put(&c->run, i / 2, 0, c->run.partition_count, &answer,
                              NULL) != SPW_STATUS_OK)
            abort();
        if ((answer & SPW_PUT_WRITE_IS_DUE) != 0 &&
            spw_partitions_write(c->run.partitions, NULL, NULL) != SPW_STATUS_OK)
            abort();
    }
    return NULL;
}

static void *read_some(void *argument)
{
    crowd *c = argument;
    for (uint32_t i; (i = c->next_partition++) < 2 * c->run.partition_count;) {
        spw_status status = partition_run_read(&c->run, i / 2, NULL);
        if (status == SPW_STATUS_CLOSED || status == SPW_STATUS_INVALID_ARGUMENT)
            c->refused++;
        else if (status != SPW_STATUS_OK)
            abort();
        if (i % 4 == 0 &&
            spw_partitions_write(c->run.partitions, NULL, NULL) != SPW_STATUS_OK)
            abort();
    }
    return NULL;
}

static void run_threads(crowd *c, void *(*function)(void *))
{
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, c), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void threads_put_write_and_read(void **state)
{
    static const uint64_t LIMITS[] = {SPW_PARTITIONS_IN_MEMORY, 0, 60000};
    torture *t = *state;
    static crowd c;
    torture_use_pool(t);
    for (size_t round = 0; round < 2 * COUNT_OF(LIMITS); round++) {
        unsigned seed = (unsigned)round;
        c.next_input = c.next_partition = c.refused = 0;
        partition_run_open(&c.run, t->context, 30, 24, 900, 2, &seed);
        assert_ok(partition_run_create(&c.run, LIMITS[round / 2], 30000, &t->error));
        run_threads(&c, put_some);
        partition_run_drop_all(&c.run);
        assert_int_equal(partition_run_figures(&c.run).repeats, c.run.input_count);
        spw_partitions_finish(c.run.partitions);
        run_threads(&c, read_some);
        assert_int_equal(c.refused, c.run.partition_count);
        assert_int_equal(partition_run_figures(&c.run).partitions_read,
                         c.run.partition_count);
        assert_int_equal(partition_run_figures(&c.run).held_bytes, 0);
        partition_run_close(&c.run);
    }
}

/* ----- the end ----- */

/* In a process of its own: killed with partitions on disk. */
static void be_killed(torture *t, partition_run *run)
{
    char path[600];
    bool is_fine = partition_run_create(run, 0, 1, &t->error) == SPW_STATUS_OK &&
                   partition_run_put(run, 0, 0, run->partition_count, NULL, NULL) ==
                       SPW_STATUS_OK &&
                   spw_partitions_write(run->partitions, NULL, NULL) == SPW_STATUS_OK &&
                   partition_run_figures(run).disk_bytes > 0;
    DIR *entries = opendir(run->places[0].directory);
    for (const struct dirent *entry; is_fine && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", run->places[0].directory, entry->d_name);
        is_fine = private_place_count_entries(path) == 0; /* no file has a name */
    }
    if (!is_fine)
        _exit(EXIT_FAILURE);
    raise(SIGKILL);
}

static void a_killed_process_leaves_no_file(void **state)
{
    torture *t = *state;
    partition_run run;
    uint32_t rows[3] = {100, 0, 300};
    int status;
    partition_run_open_plain(&run, t->context, 1, 3, rows);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_killed(t, &run);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    /* What it made is empty, and goes when another one is made there. */
    assert_int_equal(private_place_count_entries(run.places[0].directory), 1);
    assert_ok(partition_run_create(&run, 0, 0, &t->error));
    assert_int_equal(private_place_count_entries(run.places[0].directory), 1);
    partition_run_close(&run);
}

/* A child that was forked lets go of all, and leaves its parent's disk alone. */
static void a_forked_child_leaves_the_parent_alone(void **state)
{
    torture *t = *state;
    partition_run run;
    uint32_t rows[3] = {100, 50, 300};
    int status;
    partition_run_open_plain(&run, t->context, 2, 3, rows);
    assert_ok(partition_run_create(&run, 0, 1, &t->error));
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(partition_run_put(&run, i, 0, 3, NULL, &t->error));
    assert_ok(spw_partitions_write(run.partitions, NULL, &t->error));
    spw_partitions_finish(run.partitions);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spw_partitions_free(run.partitions);
        _exit(EXIT_SUCCESS);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(private_place_count_entries(run.places[0].directory), 1);
    for (uint32_t p = 0; p < 3; p++)
        assert_ok(partition_run_read(&run, p, &t->error));
    partition_run_close(&run);
}

static void wrong_options_are_refused(void **state)
{
    torture *t = *state;
    spw_partitions *partitions = NULL;
    spw_partitions_options options = SPW_PARTITIONS_OPTIONS_INIT;
    options.partition_count = 4;
    assert_status(spw_partitions_create(t->context, &options, &partitions, &t->error),
                  INVALID_ARGUMENT);
    spw_partitions_directory nowhere = {.path = "/nowhere/at/all"};
    options.directories = &nowhere;
    options.directory_count = 1;
    assert_status(spw_partitions_create(t->context, &options, &partitions, &t->error),
                  IO);
    assert_non_null(strstr(t->error.message, "/nowhere/at/all"));
    options.memory_limit_bytes = SPW_PARTITIONS_IN_MEMORY;
    options.partition_count = SPW_PARTITION_COUNT_MAX + 1;
    assert_status(spw_partitions_create(t->context, &options, &partitions, &t->error),
                  LIMIT_EXCEEDED);
    assert_null(partitions);
    /* Nothing is made where nothing will leave memory. */
    options.partition_count = 4;
    assert_ok(spw_partitions_create(t->context, &options, &partitions, &t->error));
    spw_column_type type = {SPW_COLUMN_FIXED, 0, false, 0};
    uint32_t number;
    assert_status(spw_partitions_add_types(partitions, &type, 1, &number, &t->error),
                  INVALID_ARGUMENT);
    spw_partitions_free(partitions);
    spw_partitions_free(NULL);
}

/* ----- everything fails in turn ----- */

static void partitions_come_and_go(void **state)
{
    torture *t = *state;
    partition_run run;
    unsigned seed = 11;
    uint64_t fail_at = t->allocator.fail_at;
    t->allocator.fail_at = 0; /* the inputs are no part of it */
    partition_run_open(&run, t->context, 6, 8, 300, 2, &seed);
    t->allocator.calls = 0;
    t->allocator.fail_at = fail_at;
    TRY(partition_run_create(&run, 4000, 3000, &t->error));
    for (uint32_t i = 0; i < run.input_count; i++) {
        TRY(partition_run_put(&run, i, 0, 8, NULL, &t->error));
        TRY(spw_partitions_write(run.partitions, NULL, &t->error));
    }
    partition_run_drop_all(&run);
    spw_partitions_finish(run.partitions);
    for (uint32_t p = 0; p < run.partition_count; p++)
        TRY(partition_run_read(&run, p, &t->error));
end:
    partition_run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(all_rows_come_out_in_order),
        SCENARIO(all_rows_come_out_of_the_pool_too),
        SCENARIO(memory_goes_as_partitions_are_read),
        SCENARIO(what_was_read_is_memory_for_the_next),
        SCENARIO(what_others_look_at_stays),
        SCENARIO(threads_put_write_and_read),
        SCENARIO(a_killed_process_leaves_no_file),
        SCENARIO(a_forked_child_leaves_the_parent_alone),
        SCENARIO(wrong_options_are_refused),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(partitions_come_and_go)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("partitions", scenarios);
}
