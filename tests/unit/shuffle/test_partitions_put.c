#include <string.h>

#include "partition_run.h"
#include "torture.h"

static void open_some(torture *t, partition_run *run)
{
    static const uint32_t ROWS[] = {3, 0, 5, 2};
    partition_run_open_plain(run, t->context, 2, COUNT_OF(ROWS), ROWS);
    assert_ok(partition_run_create(run, SPW_PARTITIONS_IN_MEMORY, 0, &t->error));
}

static void check_nothing_came(const partition_run *run, uint64_t pieces)
{
    assert_int_equal(partition_run_figures(run).pieces, pieces);
}

static void what_makes_no_sense_is_refused(void **state)
{
    torture *t = *state;
    partition_run run;
    spw_piece good, piece;
    open_some(t, &run);
    partition_run_piece(&run, 0, 0, 4, &good);
    piece = good;
    piece.types = 1;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  INVALID_ARGUMENT);
    piece = good;
    piece.rows = NULL;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  INVALID_ARGUMENT);
    piece = good;
    piece.partition_count = 0;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  INVALID_ARGUMENT);
    piece = good;
    piece.first_partition = 1;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  INVALID_ARGUMENT);
    piece = good;
    piece.first_partition = UINT32_MAX;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "input 0"));
    check_nothing_came(&run, 0);
    partition_run_close(&run);
}

static void sizes_are_held_against_the_bytes(void **state)
{
    torture *t = *state;
    partition_run run;
    spw_piece good, piece;
    uint32_t rows[4] = {3, 0, 5, 3};
    open_some(t, &run);
    partition_run_piece(&run, 0, 0, 4, &good);
    piece = good;
    piece.size += 8; /* more than the buffer has */
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    piece = good;
    piece.size -= 8;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    piece = good;
    piece.offset = UINT64_MAX;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    piece = good;
    piece.buffer = NULL;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    piece = good;
    piece.rows = rows; /* one too many */
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    assert_non_null(strstr(t->error.message, "partition 3"));
    rows[3] = 1; /* and one too few */
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    rows[3] = UINT32_MAX;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    check_nothing_came(&run, 0);
    partition_run_close(&run);
}

static void counts_are_held_against_the_bytes(void **state)
{
    torture *t = *state;
    partition_run run;
    uint32_t number, rows[1] = {1};
    spw_column_type type = {SPW_COLUMN_BINARY, 8, false, 0};
    spw_split_range range;
    open_some(t, &run);
    spw_split_read_range(run.splits[0], 0, &range);
    assert_ok(spw_partitions_add_types(run.partitions, &type, 1, &number, &t->error));
    spw_piece piece = {.types = number,
                       .input = 7,
                       .partition_count = 1,
                       .rows = rows,
                       .buffer = range.buffer,
                       .size = 16};
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  INVALID_ARGUMENT); /* no counts */
    static const uint64_t WRONG[] = {0, 9, 16, 17, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        piece.counts = &WRONG[i];
        assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                      CORRUPT);
    }
    uint64_t right = 5;
    piece.counts = &right;
    rows[0] = 0; /* bytes without rows */
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error), CORRUPT);
    rows[0] = 1;
    assert_ok(spw_partitions_put(run.partitions, &piece, NULL, &t->error));
    partition_run_close(&run);
}

static void a_repeat_is_dropped(void **state)
{
    torture *t = *state;
    partition_run run;
    unsigned answer;
    open_some(t, &run);
    assert_ok(partition_run_put(&run, 0, 1, 3, &answer, &t->error));
    assert_int_equal(answer, 0);
    for (int i = 0; i < 2; i++) {
        assert_ok(partition_run_put(&run, 0, 1, 3, &answer, &t->error));
        assert_int_equal(answer, SPW_PUT_WAS_THERE);
        spw_partitions_finish(run.partitions); /* also after the end */
    }
    assert_int_equal(partition_run_figures(&run).repeats, 2);
    check_nothing_came(&run, 1);
    assert_status(partition_run_put(&run, 1, 0, 4, NULL, &t->error), CLOSED);
    check_nothing_came(&run, 1);
    partition_run_close(&run);
}

static void a_repeat_with_other_rows_is_an_error(void **state)
{
    torture *t = *state;
    partition_run run;
    spw_piece piece;
    uint32_t rows[4] = {3, 5, 0, 2}; /* of the same size together */
    open_some(t, &run);
    assert_ok(partition_run_put(&run, 0, 0, 4, NULL, &t->error));
    partition_run_piece(&run, 0, 0, 4, &piece);
    piece.rows = rows;
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  PROTOCOL);
    assert_non_null(strstr(t->error.message, "other rows"));
    partition_run_piece(&run, 0, 0, 3, &piece);
    assert_status(spw_partitions_put(run.partitions, &piece, NULL, &t->error),
                  PROTOCOL);
    check_nothing_came(&run, 1);
    partition_run_close(&run);
}

static void pieces_of_an_input_do_not_overlap(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run);
    assert_ok(partition_run_put(&run, 0, 1, 2, NULL, &t->error));
    assert_status(partition_run_put(&run, 0, 0, 2, NULL, &t->error), PROTOCOL);
    assert_status(partition_run_put(&run, 0, 2, 2, NULL, &t->error), PROTOCOL);
    assert_ok(partition_run_put(&run, 0, 0, 1, NULL, &t->error));
    assert_ok(partition_run_put(&run, 0, 3, 1, NULL, &t->error));
    assert_ok(partition_run_put(&run, 1, 0, 4, NULL, &t->error));
    spw_piece_rows rows[4];
    assert_int_equal(spw_partitions_list_pieces(run.partitions, 1, rows, 2), 2);
    assert_int_equal(rows[0].first_partition, 1);
    assert_int_equal(rows[0].rows, 5);
    assert_int_equal(rows[1].first_partition, 3);
    assert_int_equal(spw_partitions_list_pieces(run.partitions, 3, rows, 4), 1);
    assert_int_equal(rows[0].input, 1);
    assert_int_equal(rows[0].rows, 10);
    partition_run_close(&run);
}

static void after_close_nothing_comes(void **state)
{
    torture *t = *state;
    partition_run run;
    open_some(t, &run);
    spw_partitions_close(run.partitions);
    assert_status(partition_run_put(&run, 0, 0, 4, NULL, &t->error), CLOSED);
    partition_run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(what_makes_no_sense_is_refused),
        SCENARIO(sizes_are_held_against_the_bytes),
        SCENARIO(counts_are_held_against_the_bytes),
        SCENARIO(a_repeat_is_dropped),
        SCENARIO(a_repeat_with_other_rows_is_an_error),
        SCENARIO(pieces_of_an_input_do_not_overlap),
        SCENARIO(after_close_nothing_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
