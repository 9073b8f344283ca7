/* Fuzz target: pieces that come from anywhere. Beyond "no crash": what is refused
 * changes nothing; what was taken is a repeat from then on; what a partition was
 * measured to have can be read, or is CORRUPT and stays; and when all has been read,
 * nothing is held.
 *
 * The input: how many columns (at most 3); for each of them its kind (1 to 3), whether
 * it has validity (4), and a size; whether all goes to disk; then pieces up to the end:
 * input, first partition, how many, for each of them rows in two bytes and a count in
 * two for each binary column; its size in two, and as many bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory/byte_reader.h"
#include "spillway/spillway.h"

enum { COLUMNS_MAX = 3, PARTITIONS = 8, PIECES_MAX = 8, BYTES_MAX = 1 << 20 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

typedef struct fuzz_run {
    spw_context *context;
    spw_partitions *partitions;
    spw_column_type types[COLUMNS_MAX];
    size_t column_count, count_columns;
    uint32_t number;
} fuzz_run;

static bool has_count(const spw_column_type *type)
{
    return type->kind == SPW_COLUMN_BINARY || type->kind == SPW_COLUMN_BLOB ||
           type->kind == SPW_COLUMN_LIST;
}

/* What is missing at the end of the input is zero. */
static uint64_t number(spw__byte_reader *reader, unsigned width)
{
    uint64_t value = 0;
    return spw__byte_reader_le(reader, width, &value) ? value : 0;
}

static void *zeros(uint64_t size)
{
    void *memory = calloc(1, size > 0 ? (size_t)size : 1);
    require(memory != NULL);
    return memory;
}

/* ----- putting ----- */

static spw_partitions_figures figures_of(const fuzz_run *run)
{
    spw_partitions_figures figures;
    spw_partitions_read_figures(run->partitions, &figures);
    return figures;
}

static void put(fuzz_run *run, const spw_piece *piece)
{
    unsigned answer = 0;
    spw_error error;
    spw_partitions_figures before = figures_of(run);
    spw_status status = spw_partitions_put(run->partitions, piece, &answer, &error);
    spw_partitions_figures after = figures_of(run);
    bool is_new = status == SPW_STATUS_OK && (answer & SPW_PUT_WAS_THERE) == 0;
    require(after.pieces == before.pieces + is_new);
    require(after.held_bytes == before.held_bytes + (is_new ? piece->size : 0));
    if (status != SPW_STATUS_OK) {
        require(error.status == status);
        return;
    }
    require(spw_partitions_put(run->partitions, piece, &answer, NULL) == SPW_STATUS_OK);
    require((answer & SPW_PUT_WAS_THERE) != 0);
    if ((answer & SPW_PUT_WRITE_IS_DUE) != 0)
        require(spw_partitions_write(run->partitions, NULL, NULL) == SPW_STATUS_OK);
}

static void put_next(fuzz_run *run, spw__byte_reader *reader)
{
    uint32_t rows[256];
    uint64_t counts[256 * COLUMNS_MAX];
    spw_piece piece = {.types = run->number, .rows = rows, .counts = counts};
    piece.input = (uint32_t)number(reader, 1);
    piece.first_partition = (uint32_t)number(reader, 1);
    piece.partition_count = (uint32_t)number(reader, 1);
    for (uint32_t i = 0; i < piece.partition_count; i++) {
        rows[i] = (uint32_t)number(reader, 2);
        for (size_t k = 0; k < run->count_columns; k++)
            counts[i * run->count_columns + k] = number(reader, 2);
    }
    piece.size = number(reader, 2);
    uint64_t there = spw__byte_reader_left(reader);
    size_t size = (size_t)(piece.size < there ? piece.size : there);
    require(spw_buffer_create(run->context, size, SPW_CHARGE_HELD, &piece.buffer,
                              NULL) == SPW_STATUS_OK);
    memcpy(spw_buffer_data(piece.buffer), reader->next, size);
    require(spw__byte_reader_skip(reader, size));
    put(run, &piece);
    spw_buffer_unref(piece.buffer);
}

/* ----- reading ----- */

static bool is_small(const fuzz_run *run, const spw_partition_group *group)
{
    bool is = group->rows <= BYTES_MAX / 256;
    for (size_t i = 0; i < run->count_columns; i++)
        is = is && group->counts[i] <= BYTES_MAX;
    return is;
}

static spw_status join(fuzz_run *run, uint32_t partition,
                       const spw_partition_group *group)
{
    spw_column_place places[COLUMNS_MAX] = {{0}};
    spw_column_place *all = places;
    size_t counted = 0;
    for (size_t i = 0; i < run->column_count; i++) {
        bool is_blob = run->types[i].kind == SPW_COLUMN_BLOB;
        if (!is_blob)
            places[i].values = zeros((group->rows + 1) * (run->types[i].item_size + 1));
        if (run->types[i].has_validity)
            places[i].validity = zeros((group->rows + 7) / 8);
        if (has_count(&run->types[i]))
            places[i].data_size = group->counts[counted++];
        if (is_blob || run->types[i].kind == SPW_COLUMN_BINARY)
            places[i].data = zeros(places[i].data_size);
    }
    spw_status status = spw_partitions_read(run->partitions, partition, &all, 1, NULL);
    for (size_t i = 0; i < run->column_count; i++) {
        free(places[i].values);
        free(places[i].validity);
        free(places[i].data);
    }
    return status;
}

/* Returns: whether it was read. */
static bool read_one(fuzz_run *run, uint32_t partition)
{
    spw_partition_groups *groups;
    size_t count;
    require(spw_partitions_measure(run->partitions, partition, &groups, NULL) ==
            SPW_STATUS_OK);
    const spw_partition_group *group = spw_partition_groups_all(groups, &count);
    require(count <= 1); /* there is one set of types */
    spw_status status = SPW_STATUS_CORRUPT;
    if (count == 0)
        status = spw_partitions_read(run->partitions, partition, NULL, 0, NULL);
    else if (is_small(run, group))
        status = join(run, partition, group);
    spw_partition_groups_free(groups);
    require(status == SPW_STATUS_OK || status == SPW_STATUS_CORRUPT);
    bool is_read = status == SPW_STATUS_OK;
    status = spw_partitions_measure(run->partitions, partition, &groups, NULL);
    require(status == (is_read ? SPW_STATUS_CLOSED : SPW_STATUS_OK));
    if (!is_read)
        spw_partition_groups_free(groups);
    return is_read;
}

static void run_all(fuzz_run *run, spw__byte_reader *reader)
{
    bool is_all = true;
    for (int i = 0; i < PIECES_MAX && spw__byte_reader_left(reader) > 0; i++)
        put_next(run, reader);
    spw_partitions_finish(run->partitions);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        is_all = read_one(run, p) && is_all;
    require(!is_all || figures_of(run).held_bytes + figures_of(run).disk_used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_run run = {0};
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    run.column_count = number(&reader, 1) % (COLUMNS_MAX + 1);
    for (size_t i = 0; i < run.column_count; i++) {
        uint64_t how = number(&reader, 1);
        run.types[i] = (spw_column_type){.kind = (spw_column_kind)(how & 7),
                                         .item_size = (uint32_t)number(&reader, 1),
                                         .has_validity = (how & 8) != 0,
                                         .inner_columns = (uint32_t)(how >> 4)};
        run.count_columns += has_count(&run.types[i]);
    }
    spw_budget *budget;
    require(spw_budget_create(0, &budget, NULL) == SPW_STATUS_OK);
    spw_context_options context_options = SPW_CONTEXT_OPTIONS_INIT;
    context_options.budget = budget;
    context_options.pool = SPW_POOL_OFF; /* AddressSanitizer sees where a block ends */
    require(spw_context_create(&context_options, &run.context, NULL) == SPW_STATUS_OK);
    const spw_partitions_directory directory = {.path = "/tmp"};
    spw_partitions_options options = SPW_PARTITIONS_OPTIONS_INIT;
    options.partition_count = PARTITIONS;
    options.memory_limit_bytes =
        number(&reader, 1) % 4 == 1 ? 0 : SPW_PARTITIONS_IN_MEMORY;
    options.in_flight_bytes = 1;
    options.directories = &directory;
    options.directory_count = 1;
    require(spw_partitions_create(run.context, &options, &run.partitions, NULL) ==
            SPW_STATUS_OK);
    if (spw_partitions_add_types(run.partitions, run.types, run.column_count,
                                 &run.number, NULL) == SPW_STATUS_OK)
        run_all(&run, &reader);
    spw_partitions_free(run.partitions);
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_HELD] == 0);
    spw_context_unref(run.context);
    spw_budget_free(budget);
    return 0;
}
