/* Partitions: what one process holds of the partitions of one run of a shuffle. Pieces
 * come in, each the neighbouring shards that one input has for this process; when all
 * are there, each partition is read once, in order of input, and is gone. What is above
 * a limit of memory waits on disk, in files without a name that go with the partitions,
 * or with the process. docs/shuffle_layout.md has what is in them. */
#ifndef SPILLWAY_PARTITIONS_H
#define SPILLWAY_PARTITIONS_H

#include "spillway/shuffle.h"

typedef struct spw_partitions spw_partitions;

/* Where shards go that leave memory. */
typedef struct spw_partitions_directory {
    const char *path;     /* exists; one of our own is made in it */
    uint64_t limit_bytes; /* 0: no limit but the disk's */
} spw_partitions_directory;

/* memory_limit_bytes, to keep everything in memory. */
#define SPW_PARTITIONS_IN_MEMORY UINT64_MAX

typedef struct spw_partitions_options {
    size_t struct_size;          /* set by SPW_PARTITIONS_OPTIONS_INIT */
    uint64_t memory_limit_bytes; /* what the pieces of all partitions of the context's
                                  * budget may hold before some of these are to be
                                  * written, if these are more than 16 MiB (or
                                  * in_flight_bytes, or the limit). 0: everything is,
                                  * as soon as in_flight_bytes of it are there */
    const spw_partitions_directory *directories; /* in the order in which they are used;
                                                  * none where all stays in memory */
    size_t directory_count;
    uint64_t in_flight_bytes; /* written together, and that memory may have above its
                               * limit while they are; 0: 64 MiB, or a quarter of the
                               * limit if that is less */
    uint32_t partition_count; /* of the whole run; at most SPW_PARTITION_COUNT_MAX */
    uint32_t reads_ahead;     /* 1: a thread reads up to 16 MiB of the partition that is
                               * expected, and gives space on disk back; 0: whoever
                               * reads does all of it */
} spw_partitions_options;

#define SPW_PARTITIONS_OPTIONS_INIT                                                    \
    {                                                                                  \
        .struct_size = sizeof(spw_partitions_options)                                  \
    }

/* Make partitions, empty. What they hold is charged HELD.
 * Borrows: options, during the call. Returns: in ret_partitions, to be freed by
 * spw_partitions_free. Thread: any; makes directories. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED (too many partitions, the budget), INVALID_ARGUMENT (a limit of memory
 * and no directory, an unknown tail), IO (a directory cannot be used; the message names
 * it). */
SPW_EXPORT SPW_NODISCARD spw_status
spw_partitions_create(spw_context *context, const spw_partitions_options *options,
                      spw_partitions **ret_partitions, spw_error *error);
/* End what others wait for: put, write and read answer CLOSED from then on. Thread:
 * any. */
SPW_EXPORT void spw_partitions_close(spw_partitions *partitions);
/* All that is held goes, in memory and on disk, read or not.
 * Takes: partitions (NULL allowed), in which no call is under way. Thread: any. */
SPW_EXPORT void spw_partitions_free(spw_partitions *partitions);

/* Say of which types the columns of some pieces are. A run may have several such sets.
 * Borrows: types, during the call. Returns: in ret_number what put and measure call
 * them. Thread: any. Errors: INVALID_ARGUMENT (a type that makes no sense), NO_MEMORY.
 */
SPW_EXPORT SPW_NODISCARD spw_status
spw_partitions_add_types(spw_partitions *partitions, const spw_column_type *types,
                         size_t column_count, uint32_t *ret_number, spw_error *error);

/* The shards that one input has for neighbouring partitions, one after another as
 * spw_split_rows puts them. */
typedef struct spw_piece {
    uint32_t types; /* the number of add_types */
    uint32_t input;
    uint32_t first_partition, partition_count;
    const uint32_t *rows;   /* partition_count */
    const uint64_t *counts; /* partition_count times what a shard has of them; NULL:
                             * none */
    spw_buffer *buffer;     /* NULL only for no bytes */
    uint64_t offset, size;  /* of all the shards, in the buffer */
} spw_piece;

/* What put tells, bits of one number. */
enum {
    SPW_PUT_WAS_THERE = 1u << 0,   /* nothing was taken */
    SPW_PUT_WRITE_IS_DUE = 1u << 1 /* memory is above its limit: call write before the
                                    * next put */
};

/* Put a piece in. A piece of the same input and first partition that is there already
 * is a repeat: its rows have to be the same, and nothing is taken, also after finish.
 * Borrows: piece and all that it points to, during the call; takes a reference of its
 * own to the buffer, whose bytes must not change from then on.
 * Returns: in ret_answer (NULL allowed) bits of SPW_PUT_... Thread: any. Errors:
 * INVALID_ARGUMENT (types that nobody added, partitions that there are not), CORRUPT
 * (the bytes are not those that rows and counts lead to), PROTOCOL (a repeat with other
 * rows, or a piece that overlaps another of its input: an error of the run), CLOSED
 * (new, after finish or close), NO_MEMORY, LIMIT_EXCEEDED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_partitions_put(spw_partitions *partitions,
                                                       const spw_piece *piece,
                                                       unsigned *ret_answer,
                                                       spw_error *error);
/* Write to disk, or wait for others who do, until memory is within its limit; nothing
 * happens if it is. The largest partitions go first, with their neighbours where shards
 * are small.
 * Returns: in ret_bytes (NULL allowed) what this call wrote. Thread: any, several at
 * once; blocks on the disk. Errors: IO, LIMIT_EXCEEDED (the disks are full or fail, or
 * limits of directories are reached; the message says which, how much was wanted and
 * what would help), NO_MEMORY, CLOSED. What could not be written is where it was, and
 * the call may be made again. */
SPW_EXPORT SPW_NODISCARD spw_status spw_partitions_write(spw_partitions *partitions,
                                                         uint64_t *ret_bytes,
                                                         spw_error *error);
/* Have another limit of memory from here on, as memory_limit_bytes of the options says.
 * Nothing is written by this call: write is due then, if it is. Nothing happens to
 * partitions that stay in memory. Thread: any. */
SPW_EXPORT void spw_partitions_limit(spw_partitions *partitions, uint64_t bytes);
/* Say that all pieces are there, so that partitions may be read. Thread: any. */
SPW_EXPORT void spw_partitions_finish(spw_partitions *partitions);

typedef struct spw_piece_rows {
    uint32_t input, first_partition;
    uint64_t rows;
} spw_piece_rows;

/* How many rows came, piece by piece, in order of input and first partition: those from
 * the begin-th piece on, which does not change after finish.
 * Returns: how many, up to room, were put in ret_rows. Thread: any. */
SPW_EXPORT size_t spw_partitions_list_pieces(spw_partitions *partitions, size_t begin,
                                             spw_piece_rows *ret_rows, size_t room);

/* Rows of a partition from inputs that follow each other, and have the same types. */
typedef struct spw_partition_group {
    uint32_t types;
    uint64_t rows;
    const uint64_t *counts; /* sums, as spw_shards_measure has them; NULL: none */
} spw_partition_group;

typedef struct spw_partition_groups spw_partition_groups;

/* Add up what a partition has, in order of input, to make the places for it.
 * Returns: in ret_groups, to be freed by spw_partition_groups_free; without rows it has
 * none. Thread: any. Errors: INVALID_ARGUMENT (no such partition; before finish),
 * CLOSED (it was read; close), LIMIT_EXCEEDED (sums above 64 bits), NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_partitions_measure(spw_partitions *partitions, uint32_t partition,
                       spw_partition_groups **ret_groups, spw_error *error);
/* Takes: groups (NULL allowed). Thread: any. */
SPW_EXPORT void spw_partition_groups_free(spw_partition_groups *groups);
/* Borrows: the array, until groups is freed. Returns: it; in ret_count of how many.
 * Thread: any. */
SPW_EXPORT const spw_partition_group *
spw_partition_groups_all(const spw_partition_groups *groups, size_t *ret_count);

/* Say which partition is likely to be read after the one that is read next: with
 * reads_ahead it is read ahead meanwhile. Nothing goes wrong if it is not. Thread: any.
 */
SPW_EXPORT void spw_partitions_expect(spw_partitions *partitions, uint32_t partition);

/* Read a partition from memory and disk into places of the caller's, those of group g
 * being places[g], one for each of its columns; then the partition is gone, with its
 * memory and its space on disk. Chunks are verified as they come. In between a few MiB
 * are needed, or as much as a shard has, and never the partition a second time. With
 * reads_ahead the space on disk goes soon: before anything is written, and with the
 * last partition that has rows.
 * Borrows: all arguments, during the call. Returns: nothing; places' memory and
 * data_begin are written, and may hold anything after an error. Thread: any, for
 * different partitions at once; blocks on the disk. Errors: INVALID_ARGUMENT (no such
 * partition; before finish; while somebody else reads it; another number of groups;
 * those of spw_shards_read), CLOSED (it was read; close), CORRUPT, IO, NO_MEMORY,
 * LIMIT_EXCEEDED. After an error it is as unread as before. */
SPW_EXPORT SPW_NODISCARD spw_status spw_partitions_read(spw_partitions *partitions,
                                                        uint32_t partition,
                                                        spw_column_place *const *places,
                                                        size_t group_count,
                                                        spw_error *error);

typedef struct spw_partitions_figures {
    /* Now: */
    uint64_t held_bytes;    /* memory of pieces that was not given back yet */
    uint64_t memory_bytes;  /* shards in it that are neither written nor read */
    uint64_t writing_bytes; /* of which are being written */
    uint64_t disk_bytes;    /* of shards that are there and not read */
    uint64_t disk_used;     /* what that takes, with what could not be given back */
    uint64_t chunks;        /* on disk */
    uint64_t partitions;    /* with rows, not read */
    /* Since they were made: */
    uint64_t pieces, repeats, rows;
    uint64_t put_bytes, written_bytes, read_bytes; /* read: from disk */
    uint64_t writes, partitions_read;
    uint64_t write_ns, read_ns; /* waiting for disks, all threads together */
} spw_partitions_figures;

/* Read all figures as one snapshot.
 * Returns: in ret_figures, of the caller's. Thread: any. */
SPW_EXPORT void spw_partitions_read_figures(spw_partitions *partitions,
                                            spw_partitions_figures *ret_figures);

#endif
