#include "partition_run.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

static void open_places(partition_run *run)
{
    for (int i = 0; i < RUN_PLACES; i++) {
        private_place_open(&run->places[i]);
        run->directories[i].path = run->places[i].directory;
    }
}

/* Into one buffer. */
static void split_input(partition_run *run, uint32_t input)
{
    spw_error error;
    run->tables[input].range_count = 0;
    if (shuffle_table_split(&run->tables[input], run->context, &run->splits[input],
                            &error) != SPW_STATUS_OK)
        fail_msg("input %u: %s", input, error.message);
}

void partition_run_open(partition_run *run, spw_context *context, uint32_t input_count,
                        uint32_t partition_count, uint64_t rows_max, uint32_t set_count,
                        unsigned *seed)
{
    shuffle_table sets[RUN_SETS_MAX];
    *run = (partition_run){.context = context,
                           .partition_count = partition_count,
                           .input_count = input_count,
                           .set_count = set_count};
    open_places(run);
    for (uint32_t i = 0; i < set_count; i++)
        shuffle_table_choose_types(&sets[i], seed);
    for (uint32_t i = 0; i < input_count; i++) {
        /* Neighbours have the same types more often than not. */
        run->set_of[i] = i > 0 && rand_r(seed) % 3 > 0
                             ? run->set_of[i - 1]
                             : (uint32_t)rand_r(seed) % set_count;
        run->tables[i] = sets[run->set_of[i]];
        shuffle_table_fill(&run->tables[i], (uint64_t)rand_r(seed) % (rows_max + 1),
                           partition_count, seed);
        split_input(run, i);
    }
}

void partition_run_open_plain(partition_run *run, spw_context *context,
                              uint32_t input_count, uint32_t partition_count,
                              const uint32_t *rows)
{
    unsigned seed = 1;
    shuffle_table set = {.column_count = 1, .types = {{SPW_COLUMN_FIXED, 8, false}}};
    *run = (partition_run){.context = context,
                           .partition_count = partition_count,
                           .input_count = input_count,
                           .set_count = 1};
    open_places(run);
    uint64_t all = 0;
    for (uint32_t p = 0; p < partition_count; p++)
        all += rows[p];
    for (uint32_t i = 0; i < input_count; i++) {
        run->tables[i] = set;
        shuffle_table_fill(&run->tables[i], all, partition_count, &seed);
        uint64_t at = 0;
        for (uint32_t p = 0; p < partition_count; p++)
            for (uint32_t k = 0; k < rows[p]; k++)
                run->tables[i].ids[at++] = p;
        split_input(run, i);
    }
}

void partition_run_drop(partition_run *run, uint32_t input)
{
    spw_split_free(run->splits[input]);
    run->splits[input] = NULL;
}

void partition_run_drop_all(partition_run *run)
{
    for (uint32_t i = 0; i < run->input_count; i++)
        partition_run_drop(run, i);
}

void partition_run_close(partition_run *run)
{
    spw_partitions_free(run->partitions);
    partition_run_drop_all(run);
    for (uint32_t i = 0; i < run->input_count; i++)
        shuffle_table_clear(&run->tables[i]);
    for (int i = 0; i < RUN_PLACES; i++)
        private_place_close(&run->places[i]);
}

spw_status partition_run_create(partition_run *run, uint64_t memory_limit_bytes,
                                uint64_t in_flight_bytes, spw_error *error)
{
    spw_partitions_options options = SPW_PARTITIONS_OPTIONS_INIT;
    options.partition_count = run->partition_count;
    options.memory_limit_bytes = memory_limit_bytes;
    options.in_flight_bytes = in_flight_bytes;
    options.reads_ahead = run->reads_ahead;
    options.directories = run->directories;
    options.directory_count = RUN_PLACES;
    spw_status status =
        spw_partitions_create(run->context, &options, &run->partitions, error);
    for (uint32_t s = 0; s < run->set_count && status == SPW_STATUS_OK; s++)
        for (uint32_t i = 0; i < run->input_count; i++)
            if (run->set_of[i] == s) {
                status = spw_partitions_add_types(run->partitions, run->tables[i].types,
                                                  run->tables[i].column_count,
                                                  &run->numbers[s], error);
                break;
            }
    return status;
}

void partition_run_piece(const partition_run *run, uint32_t input, uint32_t first,
                         uint32_t count, spw_piece *ret_piece)
{
    spw_split_range tables;
    spw_split_read_range(run->splits[input], 0, &tables);
    *ret_piece = (spw_piece){
        .types = run->numbers[run->set_of[input]],
        .input = input,
        .first_partition = first,
        .partition_count = count,
        .rows = tables.rows + first,
        .counts = tables.counts_per_shard > 0
                      ? tables.counts + (size_t)first * tables.counts_per_shard
                      : NULL,
        .buffer = tables.buffer,
        .offset = tables.begins[first],
        .size = tables.begins[first + count] - tables.begins[first]};
}

spw_status partition_run_put(partition_run *run, uint32_t input, uint32_t first,
                             uint32_t count, unsigned *ret_answer, spw_error *error)
{
    spw_piece piece;
    partition_run_piece(run, input, first, count, &piece);
    return spw_partitions_put(run->partitions, &piece, ret_answer, error);
}

spw_partitions_figures partition_run_figures(const partition_run *run)
{
    spw_partitions_figures figures;
    spw_partitions_read_figures(run->partitions, &figures);
    return figures;
}

/* ----- reading ----- */

static uint64_t rows_for(const shuffle_table *table, uint32_t partition)
{
    uint64_t rows = 0;
    for (uint64_t i = 0; i < table->row_count; i++)
        rows += table->ids[i] == partition;
    return rows;
}

/* The rows of one group, which are of inputs from *input on. */
static void check_group(const partition_run *run, uint32_t partition,
                        const spw_partition_group *group,
                        const spw_column_place *places, uint32_t *input)
{
    uint64_t at = 0;
    for (; at < group->rows; ++*input) {
        assert_true(*input < run->input_count);
        const shuffle_table *table = &run->tables[*input];
        if (rows_for(table, partition) > 0)
            assert_int_equal(run->numbers[run->set_of[*input]], group->types);
        for (uint64_t row = 0; row < table->row_count; row++)
            if (table->ids[row] == partition)
                shuffle_places_check_row(places, table, row, at++);
    }
    assert_int_equal(at, group->rows);
}

static void check_groups(const partition_run *run, uint32_t partition,
                         const spw_partition_group *groups, size_t count,
                         spw_column_place (*places)[TABLE_COLUMNS_MAX])
{
    uint32_t input = 0;
    for (size_t g = 0; g < count; g++) {
        assert_true(groups[g].rows > 0);
        assert_true(g == 0 || groups[g].types != groups[g - 1].types);
        check_group(run, partition, &groups[g], places[g], &input);
    }
    for (; input < run->input_count; input++)
        assert_int_equal(rows_for(&run->tables[input], partition), 0);
}

static const shuffle_table *table_of(const partition_run *run, uint32_t types)
{
    for (uint32_t i = 0; i < run->input_count; i++)
        if (run->numbers[run->set_of[i]] == types)
            return &run->tables[i];
    fail_msg("a group has types %u, which no input has", types);
    return NULL;
}

spw_status partition_run_read(partition_run *run, uint32_t partition, spw_error *error)
{
    spw_partition_groups *measured;
    spw_column_place places[RUN_INPUTS_MAX][TABLE_COLUMNS_MAX];
    spw_column_place *all[RUN_INPUTS_MAX];
    size_t count;
    spw_status status =
        spw_partitions_measure(run->partitions, partition, &measured, error);
    if (status != SPW_STATUS_OK)
        return status;
    const spw_partition_group *groups = spw_partition_groups_all(measured, &count);
    assert_true(count <= run->input_count);
    for (size_t g = 0; g < count; g++) {
        const shuffle_table *table = table_of(run, groups[g].types);
        shuffle_places_open(places[g], table->types, table->column_count,
                            groups[g].rows, groups[g].counts);
        all[g] = places[g];
    }
    status = spw_partitions_read(run->partitions, partition, all, count, error);
    if (status == SPW_STATUS_OK)
        check_groups(run, partition, groups, count, places);
    for (size_t g = 0; g < count; g++)
        shuffle_places_close(places[g], table_of(run, groups[g].types)->column_count);
    spw_partition_groups_free(measured);
    return status;
}
