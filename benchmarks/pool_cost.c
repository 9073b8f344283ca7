/* What a buffer costs: from the pool and from the C library's allocator
 * (posix_memalign, which is what a context without a pool uses), created and let go of,
 * and the same with every byte written in between. Nanoseconds each, the median of
 * rounds taken in turn. Workers run with MALLOC_TRIM_THRESHOLD_=65536 in their
 * environment: run it with and without. build/release/tests/pool_cost [ROUNDS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/buffer.h"
#include "timing.h"

enum { ROUNDS_MAX = 101 };

static const struct {
    size_t size;
    int count; /* of buffers in a round */
} CASES[] = {{(size_t)4 << 10, 20000},
             {(size_t)64 << 10, 10000},
             {(size_t)1 << 20, 500},
             {(size_t)8 << 20, 60},
             {(size_t)64 << 20, 8}};

static spw_context *make_context(spw_budget *budget, spw_pool_use pool)
{
    spw_error error;
    spw_context *context;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    options.pool = pool;
    stop_on(spw_context_create(&options, &context, &error), &error);
    return context;
}

static double measure(spw_context *context, size_t size, int count, int writes)
{
    spw_error error;
    double start = now_ns();
    for (int i = 0; i < count; i++) {
        spw_buffer *buffer;
        stop_on(spw_buffer_create(context, size, SPW_CHARGE_HELD, &buffer, &error),
                &error);
        if (writes)
            memset(spw_buffer_data(buffer), i, size);
        spw_buffer_unref(buffer);
    }
    return (now_ns() - start) / count;
}

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

int main(int argc, char **argv)
{
    static double taken[2][2][ROUNDS_MAX];
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 11;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        rounds = ROUNDS_MAX;
    spw_error error;
    spw_budget *budget;
    stop_on(spw_budget_create(0, &budget, &error), &error);
    spw_context *contexts[2] = {make_context(budget, SPW_POOL_OFF),
                                make_context(budget, SPW_POOL_ON)};
    printf("%10s %12s %12s %12s %12s\n", "bytes", "malloc ns", "pool ns",
           "malloc+write", "pool+write");
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++) {
        for (int round = 0; round < rounds; round++)
            for (int way = 0; way < 4; way++)
                taken[way % 2][way / 2][round] =
                    measure(contexts[way % 2], CASES[c].size, CASES[c].count, way / 2);
        printf("%10zu", CASES[c].size);
        for (int way = 0; way < 4; way++)
            printf(" %12.0f", median(taken[way % 2][way / 2], rounds));
        printf("\n");
    }
    for (int i = 0; i < 2; i++)
        spw_context_unref(contexts[i]);
    spw_budget_free(budget);
    return EXIT_SUCCESS;
}
