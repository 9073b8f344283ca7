/* What partitions cost between a message that has come and the columns of a partition:
 * putting pieces in, and reading each partition; from memory, by way of disk, and with
 * half of it in memory. 32 inputs of 64 partitions, and 2,000 of 2,000, of 13 columns
 * of 8 bytes. Each case is a process of its own, so that its peak of memory is its own;
 * what it takes to make the pieces is not counted. What is read is let go of at once,
 * so that its memory is used again; or with "keep" it stays, and peak says what all of
 * a shuffle takes. build/release/tests/partitions_cost DIRECTORY [MEGABYTES [keep]] */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spillway/partitions.h"
#include "timing.h"

enum { COLUMNS = 13, ROW_BYTES = COLUMNS * 8 };

typedef struct bench_case {
    const char *name;
    uint32_t inputs, partitions;
    double memory; /* limit, of all bytes; above 1: all stays */
} bench_case;

static const bench_case CASES[] = {
    {"memory", 32, 64, 2},     {"disk", 32, 64, 0},     {"half", 32, 64, 0.5},
    {"memory", 2000, 2000, 2}, {"disk", 2000, 2000, 0}, {"half", 2000, 2000, 0.5},
};

/* Time and processor time between start and stop, added up. */
typedef struct span {
    double ns, cpu_ns, start_ns, start_cpu_ns;
} span;

static double cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return ((double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec) * 1e9 +
           ((double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec) * 1e3;
}

static void start(span *s)
{
    s->start_cpu_ns = cpu_ns();
    s->start_ns = now_ns();
}

static void stop(span *s)
{
    s->ns += now_ns() - s->start_ns;
    s->cpu_ns += cpu_ns() - s->start_cpu_ns;
}

typedef struct bench {
    const bench_case *what;
    bool keeps;
    spw_context *context;
    spw_partitions *partitions;
    uint32_t types, rows; /* rows: of a shard */
    uint64_t bytes;       /* of all */
    spw_error error;
    span put, write, read;
} bench;

static void open_bench(bench *b, const char *directory, uint64_t bytes)
{
    spw_budget *budget;
    spw_column_type types[COLUMNS];
    spw_context_options context_options = SPW_CONTEXT_OPTIONS_INIT;
    spw_partitions_directory place = {.path = directory};
    spw_partitions_options options = SPW_PARTITIONS_OPTIONS_INIT;
    stop_on(spw_budget_create(0, &budget, &b->error), &b->error);
    context_options.budget = budget;
    stop_on(spw_context_create(&context_options, &b->context, &b->error), &b->error);
    uint64_t shards = (uint64_t)b->what->inputs * b->what->partitions;
    b->rows = (uint32_t)(bytes / shards / ROW_BYTES);
    b->bytes = shards * b->rows * ROW_BYTES;
    options.partition_count = b->what->partitions;
    options.memory_limit_bytes = b->what->memory > 1
                                     ? SPW_PARTITIONS_IN_MEMORY
                                     : (uint64_t)(b->what->memory * (double)b->bytes);
    options.directories = &place;
    options.directory_count = 1;
    stop_on(spw_partitions_create(b->context, &options, &b->partitions, &b->error),
            &b->error);
    for (size_t i = 0; i < COLUMNS; i++)
        types[i] = (spw_column_type){SPW_COLUMN_FIXED, 8, false, 0};
    stop_on(
        spw_partitions_add_types(b->partitions, types, COLUMNS, &b->types, &b->error),
        &b->error);
}

static void put_all(bench *b)
{
    uint32_t count = b->what->partitions;
    uint32_t *rows = calloc(count, sizeof *rows);
    for (uint32_t i = 0; rows != NULL && i < count; i++)
        rows[i] = b->rows;
    for (uint32_t input = 0; input < b->what->inputs; input++) {
        unsigned answer;
        spw_piece piece = {.types = b->types,
                           .input = input,
                           .partition_count = count,
                           .rows = rows,
                           .size = b->bytes / b->what->inputs};
        stop_on(spw_buffer_create(b->context, (size_t)piece.size, SPW_CHARGE_HELD,
                                  &piece.buffer, &b->error),
                &b->error);
        memset(spw_buffer_data(piece.buffer), (int)input, (size_t)piece.size);
        start(&b->put);
        stop_on(spw_partitions_put(b->partitions, &piece, &answer, &b->error),
                &b->error);
        stop(&b->put);
        spw_buffer_unref(piece.buffer);
        if ((answer & SPW_PUT_WRITE_IS_DUE) == 0)
            continue;
        start(&b->write);
        stop_on(spw_partitions_write(b->partitions, NULL, &b->error), &b->error);
        stop(&b->write);
    }
    free(rows);
    spw_partitions_finish(b->partitions);
}

static void read_all(bench *b)
{
    uint64_t rows = (uint64_t)b->rows * b->what->inputs;
    start(&b->read);
    for (uint32_t p = 0; p < b->what->partitions; p++) {
        spw_partition_groups *groups;
        spw_buffer *buffer;
        spw_column_place places[COLUMNS];
        spw_column_place *of_groups = places;
        stop_on(spw_partitions_measure(b->partitions, p, &groups, &b->error),
                &b->error);
        stop_on(spw_buffer_create(b->context, (size_t)rows * ROW_BYTES, SPW_CHARGE_HELD,
                                  &buffer, &b->error),
                &b->error);
        char *data = spw_buffer_data(buffer);
        for (size_t i = 0; i < COLUMNS; i++)
            places[i] = (spw_column_place){.values = data + i * rows * 8};
        stop_on(spw_partitions_read(b->partitions, p, &of_groups, 1, &b->error),
                &b->error);
        spw_partition_groups_free(groups);
        if (!b->keeps)
            spw_buffer_unref(buffer);
    }
    stop(&b->read);
}

static void print_span(const bench *b, const span *s)
{
    double gb = (double)b->bytes / 1e9;
    printf("  %6.2f %6.2f", s->ns > 0 ? gb / s->ns * 1e9 : 0, s->cpu_ns / 1e9 / gb);
}

static void run_case(const bench_case *what, const char *directory, uint64_t bytes,
                     bool keeps)
{
    bench b = {.what = what, .keeps = keeps};
    struct rusage usage;
    open_bench(&b, directory, bytes);
    put_all(&b);
    read_all(&b);
    getrusage(RUSAGE_SELF, &usage);
    spw_partitions_figures figures;
    spw_partitions_read_figures(b.partitions, &figures);
    printf("%5u x %-5u %-7s", what->inputs, what->partitions, what->name);
    print_span(&b, &b.put);
    print_span(&b, &b.write);
    print_span(&b, &b.read);
    printf("  %7.3f  %5.0f  %5.2f %8.0f\n",
           (b.put.cpu_ns + b.write.cpu_ns + b.read.cpu_ns) / (double)b.bytes,
           (double)usage.ru_maxrss / 1024 / ((double)b.bytes / 100 / (1 << 20)),
           (double)figures.written_bytes / 1e9,
           b.read.ns / what->inputs / what->partitions);
    spw_partitions_free(b.partitions);
}

int main(int count, char **arguments)
{
    if (count < 2) {
        fprintf(stderr, "partitions_cost DIRECTORY [MEGABYTES [keep]]\n");
        return EXIT_FAILURE;
    }
    uint64_t megabytes = count > 2 ? strtoull(arguments[2], NULL, 10) : 1000;
    printf("%-22s  %13s  %13s  %13s  %7s  %5s  %5s %8s\n", "", "put", "write", "read",
           "all", "peak", "disk", "read");
    printf("%-22s  %6s %6s  %6s %6s  %6s %6s  %7s  %5s  %5s %8s\n",
           "inputs x partitions", "GB/s", "CPU/GB", "GB/s", "CPU/GB", "GB/s", "CPU/GB",
           "CPU/GB", "%", "GB", "ns/shard");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            run_case(&CASES[i], arguments[1], megabytes * 1000000, count > 3);
            return EXIT_SUCCESS;
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
