/* The inside of a store's sink, shared by its files: store_sink.c (where a value goes)
 * and store_window.c (how it comes to disk). */
#ifndef SPW_STORE_STORE_SINK_STATE_H
#define SPW_STORE_STORE_SINK_STATE_H

#include "memory/checksum.h"
#include "memory/value_sink.h"
#include "store/arrival.h"

typedef struct spw__store_sink spw__store_sink;

/* A half of the window. */
typedef struct spw__window_half {
    spw__job job;
    spw__store_sink *sink;
    char *data;
    size_t used;
    uint64_t offset; /* in the file */
    bool is_busy;    /* guarded by the store's lock: its job has it */
} spw__window_half;

typedef enum spw__opening {
    SPW__NOT_OPENED,
    SPW__IS_OPENING, /* a job finds a range for the arrival */
    SPW__IS_OPEN,    /* it has one */
    SPW__IS_REFUSED  /* it is to go to memory */
} spw__opening;

/* Invariant: what a job does not have is of whoever receives; who is the last of the
 * sink's user and its jobs frees it. */
struct spw__store_sink {
    spw_value_sink base;
    spw_store *store;                            /* one of its references */
    char only_with[SPW_STORE_ONLY_WITH_MAX + 1]; /* fixed; empty: any message */
    /* Guarded by the store's lock. */
    bool is_waited_for; /* whoever receives is to be woken */
    bool is_given_up;   /* by its user */
    unsigned jobs;
    spw__opening opening;
    spw_error fault; /* why the message is lost; status OK: it is not */
    /* Of the job while it is opening, then only read. */
    spw__job open_job;
    spw__arrival *arrival; /* the value under way to disk; one reference; NULL: none */
    spw_slice header;      /* of it, with a reference to its buffer */
    spw_file *file;        /* of which its frames are ranges; it holds the arrival */
    /* Of whoever receives. */
    spw_buffer *window; /* NULL: not needed yet */
    spw__window_half halves[2];
    unsigned current; /* the one that is filled */
    uint64_t end;     /* in the file, of what was filled */
    size_t slice;     /* of the arrival's, that is being filled */
    uint64_t filled;  /* of it */
    spw__checksum_state sum;
};

/* Have a job run. With the lock, and not closed. */
void spw__store_sink_start(spw__store_sink *sink, spw__job *job);
/* A job of the sink's has ended: wake whoever waits. Takes: the lock; the sink may be
 * gone. */
void spw__store_sink_end_job(spw__store_sink *sink);
/* Of a job: a disk fails, and what was to be on it is given up. Note and log that. With
 * the lock, which is released meanwhile. */
void spw__store_sink_fail(spw__store_sink *sink, const spw_error *why);
/* Errors: CLOSED, always. */
spw_status spw__store_sink_tell_closed(spw_error *error);

/* The arrival has a range: begin with its first frame. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED. */
spw_status spw__window_begin(spw__store_sink *sink, spw_error *error);
/* Those of spw__value_sink_ops. */
spw_status spw__window_get(spw_value_sink *base, void **ret_data, size_t *ret_size,
                           spw_error *error);
void spw__window_wrote(spw_value_sink *base, size_t size);
/* Errors: as finish; OK once all that was filled has been written. */
spw_status spw__window_flush(spw__store_sink *sink, spw_error *error);

#endif
