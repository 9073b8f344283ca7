/* What is done beside whoever reads partitions, by a thread of their own: reading the
 * partition that is expected next, and giving space on disk back.
 *
 * There is one partition ahead at most, of which up to SPW__WINDOWS_BYTES are read. It
 * is a guess: who reads a partition takes what is there of it, and reads the rest, and
 * what has failed, for himself. */
#ifndef SPW_SHUFFLE_PARTITIONS_AHEAD_H
#define SPW_SHUFFLE_PARTITIONS_AHEAD_H

#include "shuffle/partitions_state.h"

/* Returns: in ret_ahead, to be freed by spw__ahead_free. Errors: NO_MEMORY. */
spw_status spw__ahead_create(spw_partitions *all, spw__ahead **ret_ahead,
                             spw_error *error);
/* Space that is to be given back is, then; what was read ahead goes.
 * Takes: ahead (NULL allowed). */
void spw__ahead_free(spw__ahead *ahead);

/* The next three do nothing where partitions have no ahead. Thread: any. */

/* A partition is being read: have the expected one read ahead. */
void spw__ahead_begin(spw_partitions *all);
/* Take over what was read ahead of a partition's chunks; waits while it is being read.
 * Returns: nothing; readers (count, zero but for their chunks) have their first
 * windows, or are as they were. Thread: who has the partition to himself. */
void spw__ahead_take(spw_partitions *all, uint32_t partition,
                     spw__chunk_reader *readers, uint32_t count);
/* Let go of what was read ahead. Returns: whether there was something. */
bool spw__ahead_drop(spw_partitions *all);

/* Give the space of chunks back, soon. Takes: chunks, an array of room, of the context,
 * and their batches. Thread: any. */
void spw__ahead_release(spw_partitions *all, spw__chunk *chunks, uint32_t count,
                        size_t room);
/* Wait until all space is given back that is to be. With the lock held, which is let go
 * of meanwhile. */
void spw__ahead_wait_released(spw_partitions *all);

#endif
