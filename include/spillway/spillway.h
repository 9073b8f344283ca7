/* libspillway: moves, holds and shuffles data without copying it.
 *
 * The headers are the specification. Read them in this order; each uses only what is
 * before it.
 *
 *   export.h      what makes a declaration public, to C and to C++
 *   status.h      how every call that can fail answers
 *   budget.h      what memory is charged to: one for the process
 *   context.h     allocator, log, limits: what everything is made from
 *   pool.h        where the memory of buffers comes from, and when it goes back
 *   buffer.h      a piece of memory with a reference count
 *   file.h        an open file with a reference count
 *   payload.h     a message: slices of buffers, and ranges of files
 *   codec.h       compression, and decompression of what stock peers of Dask send
 *   sink.h        where what arrives goes, decided before it is read
 *   store.h       values that leave memory when it is short, and come back
 *   stored_ranges.h  what a store has on disk, for who sends it
 *   shuffle.h     rows of tables, split by partition and joined again
 *   connection.h  messages over TCP, driven by readiness
 *   reactor.h     threads for what is large, and the way back from them
 *   listener.h    accepting connections
 *   same_host.h   from memory to memory between processes of one host
 *
 * What each declaration says, in these words where they apply:
 *
 *   Takes     belongs to the library from the call on, if the call succeeds
 *   Borrows   has to stay as it is until then and then; just "during the call" is not
 *             said of an object that is worked on
 *   Returns   comes back; outputs are called ret_... and are untouched by a failed call
 *   Thread    who may call it. "The owner's" is the one thread at a time that drives a
 *             connection, a listener or completions; those that share completions or
 *             meetings have the same owner
 *   Errors    statuses beside OK. A failed call changes nothing that the caller can
 *             see, unless it says so here, and takes an error (NULL allowed) to fill
 *
 * Examples: examples/c. How to build: docs/c_api.md. */
#ifndef SPILLWAY_SPILLWAY_H
#define SPILLWAY_SPILLWAY_H

#define SPW_VERSION_MAJOR 0
#define SPW_VERSION_MINOR 1
#define SPW_VERSION_PATCH 0
#define SPW_VERSION "0.1.0"

#include "spillway/status.h"

#include "spillway/arrow.h"
#include "spillway/budget.h"
#include "spillway/buffer.h"
#include "spillway/codec.h"
#include "spillway/connection.h"
#include "spillway/context.h"
#include "spillway/file.h"
#include "spillway/listener.h"
#include "spillway/partitions.h"
#include "spillway/payload.h"
#include "spillway/pool.h"
#include "spillway/reactor.h"
#include "spillway/same_host.h"
#include "spillway/shuffle.h"
#include "spillway/sink.h"
#include "spillway/store.h"
#include "spillway/stored_ranges.h"

/* The version of the library in use, which may be newer than the header's.
 * Returns: a string that lives for ever, such as "0.1.0". Thread: any. */
SPW_EXPORT const char *spw_version(void);

#endif
