/* Writing. Which partitions: those with the most bytes; where shards are so small that
 * a page of a piece has several, with their neighbours, so that whole pages become
 * free. Blocks are as wide as makes 128 KiB of a piece on average.
 *
 * What is chosen is put side by side partition by partition, in order of input, and
 * written as one batch; each partition's part of it is a chunk. */
#include <stdlib.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "shuffle/partitions_ahead.h"

/* Of a piece, written at once: of the units at its edges one may stay on average. */
static const uint64_t RUN_BYTES = 128 << 10;

typedef struct block {
    uint64_t bytes;
    uint32_t first, end;
} block;

/* One of the partitions that are written. */
typedef struct chosen {
    uint64_t claimed; /* bytes of writing_bytes */
    spw__chunk chunk; /* without the batch; of size 0: none */
    uint32_t partition, shards;
    size_t piece_end; /* of the pieces that were looked at */
} chosen;

typedef struct write_job {
    spw_partitions *all;
    block *blocks;
    size_t block_count, block_room;
    chosen *chosen;
    size_t chosen_count, chosen_room;
    spw__held_piece **pieces; /* those with shards in memory when it was chosen */
    size_t piece_count, piece_room;
    spw__spill_part *parts;
    size_t part_count, part_room;
    uint64_t claimed_bytes, bytes;
    uint32_t chunks;
} write_job;

static void free_job(write_job *job)
{
    spw_context *context = job->all->context;
    spw__release(context, job->blocks, job->block_room * sizeof *job->blocks,
                 sizeof(void *));
    spw__release(context, job->chosen, job->chosen_room * sizeof *job->chosen,
                 sizeof(void *));
    spw__release(context, job->pieces, job->piece_room * sizeof *job->pieces,
                 sizeof(void *));
    spw__release(context, job->parts, job->part_room * sizeof *job->parts,
                 sizeof(void *));
}

/* ----- choosing ----- */

static bool may_be_chosen(const spw__partition *p)
{
    return !p->is_writing && p->state == SPW__PARTITION_UNREAD && p->memory_bytes > 0;
}

/* How many neighbours make a block. With the lock held. */
static uint32_t block_width(const spw_partitions *all)
{
    if (all->memory_bytes == 0)
        return 1;
    uint64_t width =
        (RUN_BYTES * all->memory_shards + all->memory_bytes - 1) / all->memory_bytes;
    return width < all->count ? (uint32_t)width : all->count;
}

static spw_status list_blocks(write_job *job, spw_error *error)
{
    spw_partitions *all = job->all;
    spw_status status = SPW_STATUS_OK;
    spw__partitions_lock(all);
    uint32_t width = block_width(all);
    for (uint64_t first = 0; first < all->count && status == SPW_STATUS_OK;
         first += width) {
        block b = {.first = (uint32_t)first};
        b.end = width < all->count - b.first ? b.first + width : all->count;
        for (uint32_t i = b.first; i < b.end; i++)
            b.bytes += may_be_chosen(&all->partitions[i])
                           ? all->partitions[i].memory_bytes
                           : 0;
        if (b.bytes == 0)
            continue;
        status = spw__grow(all->context, &job->blocks, &job->block_room,
                           job->block_count + 1, sizeof *job->blocks, error);
        if (status == SPW_STATUS_OK)
            job->blocks[job->block_count++] = b;
    }
    spw__partitions_unlock(all);
    return status;
}

static int by_size(const void *left, const void *right)
{
    const block *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->first < b->first ? -1 : 1;
}

/* Have a partition to oneself. With the lock held. */
static spw_status claim(write_job *job, uint32_t partition, spw_error *error)
{
    spw_partitions *all = job->all;
    spw__partition *p = &all->partitions[partition];
    spw_status status = spw__grow(all->context, &job->chosen, &job->chosen_room,
                                  job->chosen_count + 1, sizeof *job->chosen, error);
    if (status == SPW_STATUS_OK)
        status = spw__grow(all->context, &p->chunks, &p->chunk_room,
                           (size_t)p->chunk_count + 1, sizeof *p->chunks, error);
    if (status != SPW_STATUS_OK)
        return status;
    uint64_t room = all->in_flight_bytes - job->claimed_bytes;
    chosen c = {.partition = partition,
                .claimed = p->memory_bytes < room ? p->memory_bytes : room};
    job->chosen[job->chosen_count++] = c;
    job->claimed_bytes += c.claimed;
    p->is_writing = true;
    all->memory_bytes -= p->memory_bytes;
    all->memory_shards -= p->memory_shards;
    all->figures.writing_bytes += c.claimed;
    return SPW_STATUS_OK;
}

static int by_partition(const void *left, const void *right)
{
    const chosen *a = left, *b = right;
    return a->partition < b->partition ? -1 : a->partition > b->partition;
}

/* How much to write. With the lock held. */
static uint64_t wanted(const spw_partitions *all)
{
    uint64_t settled = spw__partitions_settled(all), low = spw__partitions_low(all);
    uint64_t bytes = settled > low ? settled - low : 0;
    bytes = bytes > SPW__LEAST_WRITE_BYTES ? bytes : SPW__LEAST_WRITE_BYTES;
    return bytes < all->in_flight_bytes ? bytes : all->in_flight_bytes;
}

/* Claim blocks, and note the pieces that may have shards of them. */
static spw_status choose(write_job *job, spw_error *error)
{
    spw_partitions *all = job->all;
    spw_status status = list_blocks(job, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (job->block_count > 0)
        qsort(job->blocks, job->block_count, sizeof *job->blocks, by_size);
    spw__partitions_lock(all);
    spw__ahead_wait_released(all); /* the disk may need the room */
    uint64_t bytes = wanted(all);
    for (size_t b = 0; b < job->block_count; b++)
        for (uint32_t i = job->blocks[b].first; i < job->blocks[b].end; i++)
            if (status == SPW_STATUS_OK && job->claimed_bytes < bytes &&
                may_be_chosen(&all->partitions[i]))
                status = claim(job, i, error);
    if (status == SPW_STATUS_OK && job->chosen_count > 0)
        status = spw__grow(all->context, &job->pieces, &job->piece_room,
                           all->piece_count, sizeof *job->pieces, error);
    for (size_t i = 0;
         i < all->piece_count && status == SPW_STATUS_OK && job->chosen_count > 0; i++)
        if (all->pieces[i]->left > 0)
            job->pieces[job->piece_count++] = all->pieces[i];
    all->writers += job->chosen_count > 0;
    spw__partitions_unlock(all);
    if (job->chosen_count > 0)
        qsort(job->chosen, job->chosen_count, sizeof *job->chosen, by_partition);
    return status;
}

/* ----- collecting ----- */

/* Put the shards of one partition behind what is collected, as long as there is less
 * than may be written at once. */
static spw_status collect(write_job *job, chosen *c, spw_error *error)
{
    spw_partitions *all = job->all;
    spw__checksum_state sum;
    spw__checksum_begin(&sum);
    c->chunk.offset = job->bytes;
    for (; c->piece_end < job->piece_count && job->bytes < all->in_flight_bytes;
         c->piece_end++) {
        const spw__held_piece *piece = job->pieces[c->piece_end];
        if (!spw__piece_has(piece, c->partition))
            continue;
        uint32_t i = c->partition - piece->first;
        uint64_t size = piece->begins[i + 1] - piece->begins[i];
        if (piece->where[i] != SPW__SHARD_IN_MEMORY || size == 0)
            continue;
        spw_status status = spw__grow(all->context, &job->parts, &job->part_room,
                                      job->part_count + 1, sizeof *job->parts, error);
        if (status != SPW_STATUS_OK)
            return status;
        const char *data = (const char *)spw_buffer_data(piece->buffer) +
                           piece->offset + piece->begins[i];
        job->parts[job->part_count++] = (spw__spill_part){data, (size_t)size};
        spw__checksum_add(&sum, data, (size_t)size);
        job->bytes += size;
        if (c->shards++ == 0)
            c->chunk.first = size;
    }
    c->chunk.size = job->bytes - c->chunk.offset;
    c->chunk.checksum = spw__checksum_end(&sum);
    job->chunks += c->chunk.size > 0;
    return SPW_STATUS_OK;
}

/* What fills up the last page of a batch. */
static spw_status add_padding(write_job *job, uint64_t *ret_size, spw_error *error)
{
    static const char zeros[SPW__DIRECT_BYTES];
    size_t size = (size_t)(-job->bytes % SPW__DIRECT_BYTES);
    spw_status status = spw__grow(job->all->context, &job->parts, &job->part_room,
                                  job->part_count + 1, sizeof *job->parts, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (size > 0)
        job->parts[job->part_count++] = (spw__spill_part){zeros, size};
    *ret_size = job->bytes + size;
    return SPW_STATUS_OK;
}

/* ----- ending ----- */

/* The memory of what was written goes, by runs of neighbours. */
static void leave(write_job *job)
{
    for (size_t i = 0, end; i < job->chosen_count; i = end) {
        const chosen *c = &job->chosen[i];
        for (end = i + 1; end < job->chosen_count; end++)
            if (job->chosen[end].partition != c->partition + (end - i) ||
                job->chosen[end].piece_end != c->piece_end)
                break;
        for (size_t k = 0; k < c->piece_end; k++)
            spw__piece_leave(job->all, job->pieces[k], c->partition,
                             c->partition + (uint32_t)(end - i), false, NULL);
    }
}

/* Let others have the partitions. batch is NULL if nothing was written. */
static void release(write_job *job, spw__batch *batch)
{
    spw_partitions *all = job->all;
    spw__partitions_lock(all);
    for (size_t i = 0; i < job->chosen_count; i++) {
        chosen *c = &job->chosen[i];
        spw__partition *p = &all->partitions[c->partition];
        if (batch != NULL && c->chunk.size > 0) {
            c->chunk.batch = batch;
            p->chunks[p->chunk_count++] = c->chunk;
            p->memory_bytes -= c->chunk.size;
            p->memory_shards -= c->shards;
        }
        p->is_writing = false;
        all->memory_bytes += p->memory_bytes;
        all->memory_shards += p->memory_shards;
        all->figures.writing_bytes -= c->claimed;
    }
    if (batch != NULL) {
        all->figures.memory_bytes -= job->bytes;
        all->figures.disk_bytes += job->bytes;
        all->figures.written_bytes += job->bytes;
        all->figures.chunks += job->chunks;
        all->figures.writes++;
    }
    all->writers--;
    (void)pthread_cond_broadcast(&all->changed);
    spw__partitions_unlock(all);
}

/* Write once. Returns: in ret_bytes how much; 0 if there was nothing to be chosen. */
static spw_status write_some(spw_partitions *all, uint64_t *ret_bytes, spw_error *error)
{
    write_job job = {.all = all};
    spw__batch *batch = NULL;
    spw_status status = choose(&job, error);
    for (size_t i = 0; i < job.chosen_count && status == SPW_STATUS_OK; i++)
        status = collect(&job, &job.chosen[i], error);
    uint64_t size = 0;
    if (status == SPW_STATUS_OK && job.bytes > 0)
        status = add_padding(&job, &size, error);
    if (status == SPW_STATUS_OK && job.bytes > 0)
        status = spw__chunk_files_write(all->files, job.parts, job.part_count, size,
                                        job.chunks, &batch, error);
    if (batch != NULL)
        leave(&job);
    if (job.chosen_count > 0)
        release(&job, batch);
    *ret_bytes = batch != NULL ? job.bytes : 0;
    free_job(&job);
    return status;
}

/* ----- the call ----- */

/* Wait until a write is due that nobody else does. Returns: whether there is one; or
 * CLOSED in ret_status. has_tried: nothing could be chosen the last time. */
static bool wait_until_due(spw_partitions *all, bool has_tried, spw_status *ret_status,
                           spw_error *error)
{
    spw__partitions_lock(all);
    bool is_first = has_tried;
    while (!all->is_closed && all->writers > 0 && spw__partitions_is_due(all) &&
           (is_first || spw__partitions_settled(all) <= spw__partitions_high(all))) {
        (void)pthread_cond_wait(&all->changed, &all->lock);
        is_first = false;
    }
    bool is_due = spw__partitions_settled(all) > spw__partitions_high(all) &&
                  !(has_tried && is_first);
    if (all->is_closed)
        *ret_status = spw__error_set(error, SPW_STATUS_CLOSED, 0,
                                     "partitions are closed, and nothing is written");
    spw__partitions_unlock(all);
    return is_due && *ret_status == SPW_STATUS_OK;
}

spw_status spw_partitions_write(spw_partitions *partitions, uint64_t *ret_bytes,
                                spw_error *error)
{
    uint64_t written = 0, bytes = 1;
    spw_status status = SPW_STATUS_OK;
    while (!partitions->stays_in_memory &&
           wait_until_due(partitions, bytes == 0, &status, error)) {
        status = write_some(partitions, &bytes, error);
        written += bytes;
        if (status != SPW_STATUS_OK)
            break;
    }
    if (ret_bytes != NULL)
        *ret_bytes = written;
    return status;
}
