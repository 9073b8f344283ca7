/* What pages cost that move, and what a pass over them costs, beside huge pages and
 * small ones that never moved. Out of each of many regions on huge pages leaves a run,
 * as a shard does out of a piece; what they make together is moved once more, as what
 * the pool has cached is. Microseconds of processor time for 2 MiB, the least, the
 * median and the most of rounds. Each pass begins with caches that hold something else.
 * build/release/tests/moved_pages [MEGABYTES [RUN_KILOBYTES [ROUNDS]]] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "platform/memory_map.h"
#include "timing.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum { ROUNDS_MAX = 101, CASES_MAX = 32, FLUSH_BYTES = 64 << 20, SMALL_BYTES = 4096 };

static const size_t HUGE = SPW__HUGE_PAGE_BYTES;

typedef struct bench {
    size_t size, run; /* of what is put together; of what is moved in one piece */
    int rounds, round, count;
    char *flush;
    struct {
        char name[40];
        double us[ROUNDS_MAX];
    } cases[CASES_MAX];
    double start_ns;
    volatile uint64_t sink;
} bench;

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint64_t sum(const char *data, size_t size)
{
    uint64_t total = 0;
    for (const uint64_t *at = (const void *)data; size > 0; size -= sizeof *at)
        total += *at++;
    return total;
}

static uint64_t gather(const char *data, size_t size)
{
    uint64_t total = 0, random = 88172645463325252U;
    for (size_t i = 0; i < size / sizeof total; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        total += ((const uint64_t *)(const void *)data)[random % (size / sizeof total)];
    }
    return total;
}

static void start(bench *b)
{
    b->sink = sum(b->flush, FLUSH_BYTES);
    b->start_ns = cpu_ns();
}

static void stop(bench *b, const char *what, const char *pages)
{
    double us = (cpu_ns() - b->start_ns) / 1e3 / ((double)b->size / (double)HUGE);
    snprintf(b->cases[b->count].name, sizeof b->cases->name, "%s%s", what, pages);
    b->cases[b->count++].us[b->round] = us;
}

static char *map(size_t size, spw__page_kind pages)
{
    void *data;
    if (spw__memory_map(size, pages, &data) != 0) {
        perror("no addresses");
        exit(EXIT_FAILURE);
    }
    return data;
}

static void must(int answer)
{
    if (answer == 0)
        return;
    fprintf(stderr, "pages do not move: %s\n", strerror(-answer));
    exit(EXIT_FAILURE);
}

/* Run i is in the middle of a region of its own. */
static void move_out(const bench *b, char *regions, char *to)
{
    size_t region = 4 * HUGE;
    for (size_t at = 0, i = 0; at < b->size; at += b->run, i++)
        must(
            spw__memory_move_pages(regions + i * region + (64 << 10), b->run, to + at));
}

static void move_on(const bench *b, char *from, char *to)
{
    for (size_t at = 0; at < b->size; at += b->run)
        must(spw__memory_move(from + at, b->run, to + at));
}

static void pass_over(bench *b, const char *source, char *data, const char *pages)
{
    start(b);
    memcpy(data, source, b->size);
    stop(b, "written at first, ", pages);
    start(b);
    memcpy(data, source, b->size);
    stop(b, "written again, ", pages);
    start(b);
    b->sink = sum(data, b->size);
    stop(b, "summed up, ", pages);
    start(b);
    b->sink = gather(data, b->size);
    stop(b, "read at random, ", pages);
}

static void collapse(bench *b, char *data, const char *name)
{
    size_t done = 0;
    start(b);
    for (size_t at = 0; at < b->size; at += HUGE)
        done += madvise(data + at, HUGE, MADV_COLLAPSE) == 0;
    stop(b, done == 0 ? "MADV_COLLAPSE refused, " : "MADV_COLLAPSE, ", name);
}

static void run_round(bench *b)
{
    size_t room = (b->size / b->run) * 4 * HUGE;
    char *regions = map(room, SPW__PAGES_HUGE), *source = map(b->size, SPW__PAGES_HUGE);
    char *between = map(b->size, SPW__PAGES_HUGE),
         *moved = map(b->size, SPW__PAGES_HUGE);
    char *huge = map(b->size, SPW__PAGES_HUGE), *small = map(b->size, SPW__PAGES_SMALL);
    memset(regions, 1, room);
    memset(source, 2, b->size);
    b->count = 0;
    start(b);
    move_out(b, regions, between);
    stop(b, "moved out of huge pages", "");
    start(b);
    move_on(b, between, moved);
    stop(b, "moved once more", "");
    start(b);
    for (size_t at = 0; at < b->size; at += HUGE)
        huge[at] = 1;
    stop(b, "fresh huge pages", "");
    start(b);
    for (size_t at = 0; at < b->size; at += SMALL_BYTES)
        small[at] = 1;
    stop(b, "fresh small pages", "");
    pass_over(b, source, moved, "moved");
    pass_over(b, source, huge, "huge");
    pass_over(b, source, small, "small");
    collapse(b, moved, "moved");
    (void)madvise(small, b->size, MADV_HUGEPAGE);
    collapse(b, small, "small");
    spw__memory_unmap(regions, room);
    spw__memory_unmap(source, b->size);
    spw__memory_unmap(moved, b->size);
    spw__memory_unmap(huge, b->size);
    spw__memory_unmap(small, b->size);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    static bench b;
    size_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 14;
    size_t kilobytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 448;
    b.rounds = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 9;
    b.run = kilobytes << 10;
    b.size = megabytes << 20;
    if (b.run == 0 || b.run > 3 * HUGE || b.size == 0 || b.size % b.run != 0 ||
        b.size % HUGE != 0 || b.rounds < 1 || b.rounds > ROUNDS_MAX) {
        fprintf(stderr, "whole huge pages, of whole runs of up to 6 MiB\n");
        return EXIT_FAILURE;
    }
    b.flush = map(FLUSH_BYTES, SPW__PAGES_HUGE);
    memset(b.flush, 1, FLUSH_BYTES);
    for (; b.round < b.rounds; b.round++)
        run_round(&b);
    for (int i = 0; i < b.count; i++) {
        qsort(b.cases[i].us, (size_t)b.rounds, sizeof *b.cases[i].us, compare);
        printf("%-36s %8.1f %8.1f %8.1f\n", b.cases[i].name, b.cases[i].us[0],
               b.cases[i].us[b.rounds / 2], b.cases[i].us[b.rounds - 1]);
    }
    return EXIT_SUCCESS;
}
