/* What the programs in C have in common: a clock, and an end where something fails. */
#ifndef SPW_BENCHMARKS_TIMING_H
#define SPW_BENCHMARKS_TIMING_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spillway/status.h"

static inline double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline void stop_on(spw_status status, const spw_error *error)
{
    if (status == SPW_STATUS_OK)
        return;
    fprintf(stderr, "%s: %s\n", spw_status_name(status), error->message);
    exit(EXIT_FAILURE);
}

#endif
