/* Shards: the rows of a table, split by partition, and joined again. A table is columns
 * of one length. Splitting puts each partition's rows side by side, in the order in
 * which they came; what one partition has of one table is a shard, a range of bytes
 * that can be sent, stored and joined with others. docs/shuffle_layout.md has the
 * bytes. Nothing here knows what a value means, and nothing is sorted by value. */
#ifndef SPILLWAY_SHUFFLE_H
#define SPILLWAY_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spillway/buffer.h"

/* More are refused. Rows of a table, and items of a list column of a table, are counted
 * in 32 bits. */
#define SPW_PARTITION_COUNT_MAX ((uint32_t)1 << 24)
/* Lists in lists: more are refused. */
#define SPW_COLUMN_DEPTH_MAX 64

typedef enum spw_column_kind {
    SPW_COLUMN_FIXED = 1,  /* items of one size, whatever they are */
    SPW_COLUMN_BITS = 2,   /* one bit a row, least significant first, as Arrow has it */
    SPW_COLUMN_BINARY = 3, /* bytes of any length, and offsets into them */
    /* Bytes of any length for a partition instead of a row, such as what somebody else
     * has written its rows as. */
    SPW_COLUMN_BLOB = 4,
    /* Any number of items a row, which are rows of the columns inside, and offsets. */
    SPW_COLUMN_LIST = 5,
    SPW_COLUMN_FIXED_LIST = 6 /* the same number of items in each row */
} spw_column_kind;

/* What both ends have to agree on; the bytes of a shard do not say it. Columns inside
 * of a list follow it, and then comes the next one beside it. A struct is no column:
 * its members are, and a FIXED_LIST of no items for which of its rows have one. */
typedef struct spw_column_type {
    spw_column_kind kind;
    uint32_t item_size;     /* FIXED: of an item, 1 or more; BINARY, LIST: of an offset,
                             * 4 or 8 (signed; each end has its own); BITS, BLOB: 0;
                             * FIXED_LIST: items of a row, 0 or more */
    bool has_validity;      /* a bitmap says which rows have a value; not of BLOB */
    uint32_t inner_columns; /* LIST, FIXED_LIST: how many of those that follow are
                             * inside, at any depth; BLOB is not among them */
} spw_column_type;

/* A column to be split: memory of the caller's. */
typedef struct spw_column {
    spw_column_type type;
    uint64_t offset; /* rows of all its memory before the first one; BLOB: 0 */
    /* FIXED: items; BITS: a bitmap; BINARY, LIST: offsets, one more than rows; BLOB:
     * offsets of 8 bytes, one more than partitions; FIXED_LIST: NULL. */
    const void *values;
    /* FIXED: bytes from one item to the next, as in a column of a matrix whose rows lie
     * side by side; at least item_size; 0: items lie side by side. */
    uint64_t stride;
    uint64_t values_bit_offset; /* BITS: bits before the bitmap's row 0 */
    const void *data;           /* BINARY, BLOB: what the offsets point into */
    uint64_t data_size;         /* its bytes; LIST: rows of the columns inside */
    const void *validity;       /* a bitmap, 1: has a value; NULL: every row has one */
    uint64_t validity_bit_offset; /* bits before its row 0 */
} spw_column;

/* One partition's rows of one table. What its rows do not say of a column's size is its
 * count: bytes of BINARY and BLOB, items of LIST; columns of other kinds have none. */
typedef struct spw_shard {
    const void *data;
    uint64_t size; /* bytes */
    uint32_t rows;
    const uint64_t *counts; /* of each column that has one; NULL if none has */
} spw_shard;

/* Which partition each row is for, and which neighbours go the same way. */
typedef struct spw_partitioning {
    const uint32_t *ids; /* one a row, below count */
    uint32_t count;
    /* Ranges of neighbouring partitions, such as those of one worker: range r ends
     * before partition range_ends[r], where the next one begins; ends do not decrease,
     * and the last one is count. None: one range of all. */
    uint32_t range_count;
    const uint32_t *range_ends;
} spw_partitioning;

/* What splitting gave for a range of partitions, in a buffer of its own: the shard of
 * partition first_partition + p is bytes begins[p] to begins[p + 1], and so shards of
 * neighbours are one range of bytes. rows and counts are all that has to go with
 * the bytes; they too are ranges for neighbours. */
typedef struct spw_split_range {
    uint32_t first_partition;
    uint32_t partition_count;
    uint32_t counts_per_shard; /* columns that have one */
    spw_buffer *buffer;        /* NULL: no rows */
    const uint64_t *begins;    /* partition_count + 1; multiples of 8 */
    const uint32_t *rows;      /* partition_count */
    const uint64_t *counts;    /* partition_count times counts_per_shard */
} spw_split_range;

/* What the numbers of partitions are that a caller has. */
typedef struct spw_partition_id_type {
    uint32_t size; /* bytes: 1, 2, 4 or 8 */
    bool is_signed;
} spw_partition_id_type;

/* Replace each row's partition id by the number that the table has for it: what
 * spw_split_rows wants, from ids of any width, with partitions in another order (those
 * of one receiver side by side) or several that have one number (nobody wants them).
 * Borrows: all arguments, during the call; ids need not lie on a boundary. numbers has
 * number_count of them, and ids are from 0 to below that.
 * Returns: in ret_ids, one a row; after an error some of it is written. Thread: any.
 * Errors: INVALID_ARGUMENT (an id that has no number, of which the message names the
 * row; a size that is none). */
SPW_EXPORT SPW_NODISCARD spw_status
spw_partition_ids_number(const void *ids, const spw_partition_id_type *type,
                         uint64_t row_count, const uint32_t *numbers,
                         uint64_t number_count, uint32_t *ret_ids, spw_error *error);

typedef struct spw_split spw_split;

/* Split row_count rows. Costs time by rows and bytes, and what it allocates beside the
 * result goes when it ends.
 * Borrows: columns, partitions and all that they point to, during the call.
 * Returns: in ret_split, to be freed by spw_split_free; its memory is charged HELD.
 * Thread: any. Errors: INVALID_ARGUMENT (an id that is no partition, of which the
 * message names the row; ranges that make no sense; a column that makes no sense, or
 * has offsets that decrease or leave its data, or bytes for a partition without rows,
 * by its number), LIMIT_EXCEEDED (partitions, rows, bytes, the budget), NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_split_rows(spw_context *context, const spw_column *columns, size_t column_count,
               uint64_t row_count, const spw_partitioning *partitions,
               spw_split **ret_split, spw_error *error);
/* Takes: split (NULL allowed), and its references to the buffers. Thread: any. */
SPW_EXPORT void spw_split_free(spw_split *split);

/* Returns: how many ranges there are, 1 or more. Thread: any. */
SPW_EXPORT uint32_t spw_split_range_count(const spw_split *split);
/* What a range has; it has to be one of the split's. Its buffer begins on a 64-byte
 * boundary, has its shards one after another, and no other range's.
 * Borrows: what is returned, until split is freed; who keeps the buffer longer takes a
 * reference. Returns: in ret_range. Thread: any. */
SPW_EXPORT void spw_split_read_range(const spw_split *split, uint32_t range,
                                     spw_split_range *ret_range);
/* The shard of a partition, which has to be one of the split's.
 * Borrows: what it points to, until split is freed. Returns: in ret_shard. Thread: any.
 */
SPW_EXPORT void spw_split_read_shard(const spw_split *split, uint32_t partition,
                                     spw_shard *ret_shard);

/* Where rows go when they are joined: memory of the caller's, for a column each. */
typedef struct spw_column_place {
    /* FIXED: items; BITS: a bitmap; BINARY, LIST: offsets, one more than rows; others:
     * NULL. */
    void *values;
    void *data;           /* BINARY, BLOB; NULL if there is no room for any */
    uint64_t data_size;   /* bytes there is room for; LIST: items, in places inside */
    uint64_t data_begin;  /* BLOB: bytes that data has; joining adds to it */
    uint32_t offset_size; /* BINARY, LIST: of the offsets here, 4 or 8; 0: as the type
                           * has */
    void *validity;       /* a bitmap, for a type that has one; NULL otherwise */
} spw_column_place;

/* Add up what is in shards, to know how much memory joining them takes, and see that
 * each has the size which its rows and counts lead to.
 * Borrows: all arguments, during the call; the shards' bytes are not read.
 * Returns: in ret_rows, and in ret_counts one sum for each column that has one, in
 * order (NULL allowed). Thread: any. Errors: INVALID_ARGUMENT (a type that makes no
 * sense, a shard without an address), CORRUPT (a shard of another size; the message
 * names shard and column), LIMIT_EXCEEDED (sums above 64 bits). */
SPW_EXPORT SPW_NODISCARD spw_status spw_shards_measure(
    const spw_column_type *types, size_t column_count, const spw_shard *shards,
    size_t shard_count, uint64_t *ret_rows, uint64_t *ret_counts, spw_error *error);

/* Join shards: put their rows into columns, in order, from row first_row on, which
 * leaves what stands before it. Bits of the last byte after the last row are cleared;
 * nothing behind that is touched. To join in several calls, each begins where the one
 * before it ended, with the same places: a BINARY column goes on after the bytes that
 * offset first_row says, and only at first_row 0 is its first offset written; a BLOB
 * column goes on at data_begin, one blob after another without a gap. What is inside of
 * a LIST goes on after the items that offset first_row says, and has room for data_size
 * items; inside of a FIXED_LIST all is as many times as much as it has items a row.
 * Borrows: all arguments, during the call. room_rows is what the places have room for,
 * those before first_row included. What the shards and places have of memory may be
 * anywhere, but not in each other.
 * Returns: nothing; places' memory is written. After CORRUPT it may hold anything from
 * first_row on; other errors come before anything is written. Thread: any; one at a
 * time for a place. Errors: INVALID_ARGUMENT (a type or a place that makes no sense, no
 * room for the rows or bytes), CORRUPT (a shard of another size than its rows and bytes
 * lead to, or with offsets that decrease or leave its bytes), LIMIT_EXCEEDED (more
 * bytes than offsets of 4 bytes can count). */
SPW_EXPORT SPW_NODISCARD spw_status
spw_shards_read(const spw_column_type *types, size_t column_count,
                const spw_shard *shards, size_t shard_count, uint64_t first_row,
                uint64_t room_rows, spw_column_place *places, spw_error *error);

#endif
