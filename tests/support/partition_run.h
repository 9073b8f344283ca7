/* A run of a shuffle for tests: inputs made from a seed, of several sets of types, what
 * they have for each partition put in as pieces, and a check of what comes out, row by
 * row, against the tables they were made from. */
#ifndef SPW_TESTS_PARTITION_RUN_H
#define SPW_TESTS_PARTITION_RUN_H

#include "private_place.h"
#include "shuffle_tables.h"
#include "spillway/partitions.h"

enum { RUN_INPUTS_MAX = 64, RUN_SETS_MAX = 3, RUN_PLACES = 2 };

typedef struct partition_run {
    spw_context *context;
    private_place places[RUN_PLACES];
    spw_partitions_directory directories[RUN_PLACES];
    spw_partitions *partitions; /* NULL: none yet */
    uint32_t partition_count, input_count, set_count;
    uint32_t reads_ahead;            /* of partitions that are created from now on */
    uint32_t numbers[RUN_SETS_MAX];  /* of the sets, as add_types told */
    uint32_t set_of[RUN_INPUTS_MAX]; /* of an input */
    shuffle_table tables[RUN_INPUTS_MAX]; /* of an input */
    spw_split *splits[RUN_INPUTS_MAX];    /* NULL: it was dropped */
} partition_run;

/* Inputs of up to rows_max rows, and directories without a limit. No partitions yet. */
void partition_run_open(partition_run *run, spw_context *context, uint32_t input_count,
                        uint32_t partition_count, uint64_t rows_max, uint32_t set_count,
                        unsigned *seed);
/* The same of one column with items of 8 bytes: rows for each partition. */
void partition_run_open_plain(partition_run *run, spw_context *context,
                              uint32_t input_count, uint32_t partition_count,
                              const uint32_t *rows);
/* Takes: partitions, if there are. Fails the test unless the directories are empty. */
void partition_run_close(partition_run *run);

/* Partitions with the run's directories and types. in_flight_bytes 0: the default. */
spw_status partition_run_create(partition_run *run, uint64_t memory_limit_bytes,
                                uint64_t in_flight_bytes, spw_error *error);
/* What an input has for partitions from first on. */
void partition_run_piece(const partition_run *run, uint32_t input, uint32_t first,
                         uint32_t count, spw_piece *ret_piece);
spw_status partition_run_put(partition_run *run, uint32_t input, uint32_t first,
                             uint32_t count, unsigned *ret_answer, spw_error *error);
/* Nobody but the pieces refers to an input's shards any more. */
void partition_run_drop(partition_run *run, uint32_t input);
void partition_run_drop_all(partition_run *run);

/* Measure and read a partition. With OK, fails the test unless what came out are the
 * rows of all inputs, in order. */
spw_status partition_run_read(partition_run *run, uint32_t partition, spw_error *error);
spw_partitions_figures partition_run_figures(const partition_run *run);

#endif
