/* What splitting costs: 300,000 rows of 13 columns of 8 bytes into 16 to 2,000
 * partitions, plainly and past the cache, beside a plain copy of the
 * same bytes; columns of other kinds, in nanoseconds a row; what a shard costs by
 * itself, of a few rows each; and joining shards again. Medians of rounds taken in
 * turn, with memory from a warm pool. build/release/tests/split_cost [ROUNDS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shuffle/split.h"
#include "timing.h"

enum {
    ROUNDS_MAX = 101,
    ROWS = 300000,
    COLUMNS = 13,
    STRING_BYTES = 10,
    FEW_ROWS = 5, /* in each of many shards */
    KINDS = 8,
    LIST_ITEMS = 3 /* of 8 bytes */
};

static const uint32_t PARTITIONS[] = {16, 64, 256, 2000, 20000};
enum { COUNTS = sizeof PARTITIONS / sizeof PARTITIONS[0] };

static spw_context *context;
static uint32_t ids[COUNTS][ROWS];
static spw_column wide[COLUMNS];

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void *noise(size_t size)
{
    uint64_t *numbers = aligned_alloc(64, (size + 63) / 64 * 64);
    uint64_t state = 88172645463325252u;
    if (numbers == NULL)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < (size + 63) / 64 * 8; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        numbers[i] = state;
    }
    return numbers;
}

static void make_inputs(void)
{
    for (size_t i = 0; i < COLUMNS; i++)
        wide[i] = (spw_column){.type = {SPW_COLUMN_FIXED, 8, false, 0},
                               .values = noise(ROWS * 8)};
    const uint64_t *numbers = wide[0].values;
    for (size_t c = 0; c < COUNTS; c++)
        for (size_t i = 0; i < ROWS; i++)
            ids[c][i] = (uint32_t)(numbers[i] >> 20) % PARTITIONS[c];
}

static double split_ns(spw__gather_way way, const spw_column *columns, size_t count,
                       size_t rows, size_t c, spw_split **ret_split)
{
    spw_error error;
    spw_split *split;
    double start = now_ns();
    const spw_partitioning partitions = {.ids = ids[c], .count = PARTITIONS[c]};
    stop_on(spw__split_rows_by(way, context, columns, count, rows, &partitions, &split,
                               &error),
            &error);
    double taken = now_ns() - start;
    if (ret_split != NULL)
        *ret_split = split;
    else
        spw_split_free(split);
    return taken;
}

static double copy_ns(void)
{
    spw_error error;
    spw_buffer *buffer;
    double start = now_ns();
    stop_on(spw_buffer_create(context, (size_t)ROWS * 8 * COLUMNS, SPW_CHARGE_HELD,
                              &buffer, &error),
            &error);
    for (size_t i = 0; i < COLUMNS; i++)
        memcpy((char *)spw_buffer_data(buffer) + i * ROWS * 8, wide[i].values,
               (size_t)ROWS * 8);
    double taken = now_ns() - start;
    spw_buffer_unref(buffer);
    return taken;
}

/* Every shard of a split, one after another, as if each partition came whole. */
static double join_ns(size_t c)
{
    spw_error error;
    spw_split *split;
    spw_buffer *buffer;
    spw_column_type types[COLUMNS];
    spw_column_place places[COLUMNS];
    spw_shard *shards = calloc(PARTITIONS[c], sizeof *shards);
    (void)split_ns(SPW__GATHER_STREAMED, wide, COLUMNS, ROWS, c, &split);
    for (uint32_t p = 0; p < PARTITIONS[c]; p++)
        spw_split_read_shard(split, p, &shards[p]);
    double start = now_ns();
    stop_on(spw_buffer_create(context, (size_t)ROWS * 8 * COLUMNS, SPW_CHARGE_HELD,
                              &buffer, &error),
            &error);
    for (size_t i = 0; i < COLUMNS; i++) {
        types[i] = wide[i].type;
        places[i] = (spw_column_place){.values = (char *)spw_buffer_data(buffer) +
                                                 i * ROWS * 8};
    }
    stop_on(
        spw_shards_read(types, COLUMNS, shards, PARTITIONS[c], 0, ROWS, places, &error),
        &error);
    double taken = now_ns() - start;
    spw_buffer_unref(buffer);
    spw_split_free(split);
    free(shards);
    return taken;
}

static void print_wide(int rounds)
{
    static double plain[ROUNDS_MAX], streamed[ROUNDS_MAX], copy[ROUNDS_MAX],
        join[ROUNDS_MAX];
    double bytes = (double)ROWS * 8 * COLUMNS;
    printf("%d rows of %d columns of 8 bytes, GB/s\n", ROWS, COLUMNS);
    printf("%10s %8s %8s %8s %8s\n", "partitions", "plain", "streamed", "copy", "join");
    for (size_t c = 0; c < COUNTS; c++) {
        for (int i = 0; i < rounds; i++) {
            plain[i] = split_ns(SPW__GATHER_PLAIN, wide, COLUMNS, ROWS, c, NULL);
            streamed[i] = split_ns(SPW__GATHER_STREAMED, wide, COLUMNS, ROWS, c, NULL);
            copy[i] = copy_ns();
            join[i] = join_ns(c);
        }
        printf("%10u %8.2f %8.2f %8.2f %8.2f\n", PARTITIONS[c],
               bytes / median(plain, rounds), bytes / median(streamed, rounds),
               bytes / median(copy, rounds), bytes / median(join, rounds));
    }
}

/* One column of each kind, beside which the ids are counted once each time. */
static void print_kinds(int rounds)
{
    static double taken[KINDS + 1][ROUNDS_MAX];
    static int64_t offsets[ROWS + 1], items[ROWS + 1];
    for (size_t i = 0; i < ROWS; i++) {
        offsets[i + 1] = offsets[i] + STRING_BYTES;
        items[i + 1] = items[i] + LIST_ITEMS;
    }
    const struct {
        const char *name;
        spw_column columns[2]; /* the second one is inside of a list */
    } kinds[KINDS] = {
        {"4 bytes",
         {{.type = {SPW_COLUMN_FIXED, 4, false, 0}, .values = wide[1].values}}},
        {"8 bytes",
         {{.type = {SPW_COLUMN_FIXED, 8, false, 0}, .values = wide[1].values}}},
        {"8 of matrix",
         {{.type = {SPW_COLUMN_FIXED, 8, false, 0},
           .values = noise((size_t)ROWS * 8 * COLUMNS),
           .stride = 8 * COLUMNS}}},
        {"8, validity",
         {{.type = {SPW_COLUMN_FIXED, 8, true, 0},
           .values = wide[1].values,
           .validity = wide[2].values}}},
        {"16 bytes",
         {{.type = {SPW_COLUMN_FIXED, 16, false, 0}, .values = noise(ROWS * 16)}}},
        {"bits", {{.type = {SPW_COLUMN_BITS, 0, false, 0}, .values = wide[1].values}}},
        {"strings",
         {{.type = {SPW_COLUMN_BINARY, 8, false, 0},
           .values = offsets,
           .data = noise((size_t)ROWS * STRING_BYTES),
           .data_size = (uint64_t)ROWS * STRING_BYTES}}},
        {"lists",
         {{.type = {SPW_COLUMN_LIST, 8, false, 1},
           .values = items,
           .data_size = (uint64_t)ROWS * LIST_ITEMS},
          {.type = {SPW_COLUMN_FIXED, 8, false, 0},
           .values = noise((size_t)ROWS * LIST_ITEMS * 8)}}}};
    printf(
        "\none column, ns a row (strings of %d bytes, lists of %d items of 8 bytes); "
        "ids: no column\n%10s %8s",
        STRING_BYTES, LIST_ITEMS, "partitions", "ids");
    for (size_t k = 0; k < KINDS; k++)
        printf(" %11s", kinds[k].name);
    for (size_t c = 0; c < COUNTS; c++) {
        for (int i = 0; i < rounds; i++) {
            spw__gather_way way = SPW__GATHER_STREAMED;
            taken[KINDS][i] = split_ns(way, wide, 0, ROWS, c, NULL);
            for (size_t k = 0; k < KINDS; k++) {
                const spw_column *columns = kinds[k].columns;
                taken[k][i] = split_ns(way, columns, 1 + columns[0].type.inner_columns,
                                       ROWS, c, NULL);
            }
        }
        double alone = median(taken[KINDS], rounds) / ROWS;
        printf("\n%10u %8.2f", PARTITIONS[c], alone);
        for (size_t k = 0; k < KINDS; k++)
            printf(" %11.2f", median(taken[k], rounds) / ROWS - alone);
    }
    printf("\n");
}

static void print_shards(int rounds)
{
    static double few[ROUNDS_MAX];
    printf("\n%d columns of 8 bytes, %d rows a shard on average, ns a shard\n", COLUMNS,
           FEW_ROWS);
    for (size_t c = 0; c < COUNTS; c++) {
        for (int i = 0; i < rounds; i++)
            few[i] = split_ns(SPW__GATHER_STREAMED, wide, COLUMNS,
                              (size_t)PARTITIONS[c] * FEW_ROWS, c, NULL);
        printf("%10u %8.0f\n", PARTITIONS[c], median(few, rounds) / PARTITIONS[c]);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 21;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        rounds = ROUNDS_MAX;
    spw_error error;
    spw_budget *budget;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    stop_on(spw_budget_create(0, &budget, &error), &error);
    options.budget = budget;
    stop_on(spw_context_create(&options, &context, &error), &error);
    make_inputs();
    print_wide(rounds);
    print_kinds(rounds);
    print_shards(rounds);
    spw_context_unref(context);
    spw_budget_free(budget);
    return EXIT_SUCCESS;
}
