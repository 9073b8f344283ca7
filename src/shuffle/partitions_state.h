/* The inside of partitions, shared by their files: partitions.c (life, types, figures),
 * partitions_put.c, partitions_write.c and partitions_read.c.
 *
 * A shard is in memory, or in a chunk of its partition, or gone. Who writes or reads a
 * partition has it to himself: is_writing, or READING. He alone changes where its
 * shards are, and its chunks; everybody else only adds pieces with shards in memory.
 *
 * Invariant: left of a piece is how many of its shards have bytes and are in memory;
 * the buffer is held exactly while there are any. held_bytes is the sum of the pieces'
 * held, which is their size but for what was given back. memory_bytes, memory_shards of
 * a partition are those of its shards in memory; in all of them together, of the
 * partitions that nobody writes or reads. The budget's shuffled bytes are the sum of
 * held_bytes over all that borrow it. */
#ifndef SPW_SHUFFLE_PARTITIONS_STATE_H
#define SPW_SHUFFLE_PARTITIONS_STATE_H

#include <pthread.h>

#include "context/shuffled.h"
#include "memory/freed_pages.h"
#include "shuffle/chunk_reader.h"
#include "spillway/partitions.h"

/* A write is of so much or more, if there is as much, whatever was asked for. */
#define SPW__LEAST_WRITE_BYTES (UINT64_C(16) << 20)
/* Of what a reader has of all chunks of a partition at once. */
#define SPW__WINDOWS_BYTES (UINT64_C(16) << 20)
/* But of each chunk so much at least, or a shard. */
#define SPW__LEAST_WINDOW_BYTES (UINT64_C(64) << 10)

typedef struct spw__ahead spw__ahead;

typedef struct spw__type_set {
    uint32_t number;
    size_t column_count, numbers; /* numbers: counts of a shard */
    spw_column_type types[];
} spw__type_set;

/* Where a shard is: in memory, gone, or in a chunk of its partition, by its number. */
enum { SPW__SHARD_IN_MEMORY = 0, SPW__SHARD_GONE = 1, SPW__SHARD_IN_CHUNK = 2 };

/* Stands at the begin of a buffer that has its arrays too. */
typedef struct spw__held_piece {
    spw_buffer *memory; /* that buffer: one reference */
    const spw__type_set *types;
    uint32_t input, first, count; /* partitions */
    uint64_t row_sum;
    uint64_t offset; /* of the shards in the buffer */
    size_t unit;     /* of memory that is given back; whole pages */
    /* Fixed, of count items each; begins has one more, and counts from offset. */
    uint64_t *begins, *counts; /* counts: numbers for each */
    uint32_t *rows;
    uint32_t *where; /* with the lock held, or by who has the partition to read it */
    /* With the lock held. */
    spw_buffer *buffer; /* one reference; NULL: nothing is left */
    uint32_t left;
    uint64_t held;
} spw__held_piece;

typedef enum spw__partition_state {
    SPW__PARTITION_UNREAD = 0,
    SPW__PARTITION_READING = 1,
    SPW__PARTITION_READ = 2
} spw__partition_state;

/* With the lock held, but for the chunks, which whoever has it to himself changes. */
typedef struct spw__partition {
    uint64_t rows;
    uint64_t memory_bytes;
    uint32_t memory_shards;
    uint32_t chunk_count;
    size_t chunk_room;
    spw__chunk *chunks;
    uint8_t state; /* spw__partition_state */
    bool is_writing;
} spw__partition;

struct spw_partitions {
    spw_context *context; /* one reference */
    uint32_t count;
    bool stays_in_memory;
    uint64_t in_flight_bytes; /* of one write */
    spw__chunk_files *files;  /* NULL: none */
    spw__ahead *ahead;        /* NULL: whoever reads does all of it */
    spw_buffer *memory;       /* of the partitions */
    spw__partition *partitions;
    /* Guards all that follows. Nothing that blocks is called under it. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a write or a read has ended, or all is closed */
    bool is_finished, is_closed;
    uint64_t limit_bytes; /* of memory, for all partitions of the budget */
    uint64_t least_bytes; /* what these may have, whatever the others have */
    uint32_t writers;
    uint64_t memory_bytes, memory_shards; /* that may be chosen to be written */
    spw__type_set **types;
    size_t type_count, type_room;
    /* By input, then first partition. No longer changed after finish. */
    spw__held_piece **pieces;
    size_t piece_count, piece_room;
    spw_partitions_figures figures; /* without those of the files */
};

static inline void spw__partitions_lock(spw_partitions *all)
{
    (void)pthread_mutex_lock(&all->lock); /* cannot fail: it is plain, and ours */
}

static inline void spw__partitions_unlock(spw_partitions *all)
{
    (void)pthread_mutex_unlock(&all->lock);
}

static inline bool spw__piece_has(const spw__held_piece *piece, uint32_t partition)
{
    return partition >= piece->first && partition - piece->first < piece->count;
}

/* How much is read of each of so many chunks at once. */
static inline uint64_t spw__window_bytes(uint32_t chunks)
{
    uint64_t bytes = SPW__WINDOWS_BYTES / chunks;
    return bytes > SPW__LEAST_WINDOW_BYTES ? bytes : SPW__LEAST_WINDOW_BYTES;
}

/* Memory that counts against the limit: what no write under way will free. With the
 * lock held. */
static inline uint64_t spw__partitions_settled(const spw_partitions *all)
{
    uint64_t held = all->figures.held_bytes, writing = all->figures.writing_bytes;
    return held > writing ? held - writing : 0;
}

/* Down to what a write brings memory: what others leave of the limit. With the lock
 * held. */
uint64_t spw__partitions_low(const spw_partitions *all);
/* Above what a write is due. With the lock held. */
uint64_t spw__partitions_high(const spw_partitions *all);
/* Whether a write is due. With the lock held. */
bool spw__partitions_is_due(const spw_partitions *all);

/* Shards of a piece that are in memory, of partitions from first on and before end,
 * leave it: they are gone, or in the next chunk of their partition. Their memory goes,
 * in so far as whole pages are free, to pages (may be NULL) or the system; with the
 * last one, all of it. Thread: who has the partitions to himself, without the lock. */
void spw__piece_leave(spw_partitions *all, spw__held_piece *piece, uint32_t first,
                      uint32_t end, bool is_gone, spw__freed_pages *pages);
/* Takes: piece, whose shards are wanted no more. */
void spw__piece_free(spw__held_piece *piece);

#endif
