/* A sink for tests: the heap sink behind a count, which can refuse one reservation. Its
 * places are full of CHOOSY_STALE, as if another owner had left it there. */
#ifndef TEST_CHOOSY_SINK_H
#define TEST_CHOOSY_SINK_H

#include "spillway/sink.h"

enum { CHOOSY_STALE = 0xee };

typedef struct choosy_sink {
    spw_sink heap;
    size_t asked, reserved, committed, aborted;
    uint64_t reserved_bytes;
    size_t refuse_at;    /* the reservation that is refused, from 1; 0: none */
    uint64_t lead_bytes; /* each place begins this far into its buffer */
} choosy_sink;

/* Borrows: context and choosy, which starts all zero but for what it is to do. */
spw_sink choosy_sink_over(choosy_sink *choosy, spw_context *context);

#endif
