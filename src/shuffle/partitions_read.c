/* Reading. Pieces are in order of input, and so are the shards of each chunk: going
 * through the pieces once, and through each chunk of the partition from its begin to
 * its end at the same time, meets all shards in order. Nothing is let go of before the
 * last of them is in its place. */
#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/compiler.h"
#include "context/error.h"
#include "shuffle/partitions_ahead.h"

enum { SHARDS_AT_ONCE = 64 };

struct spw_partition_groups {
    spw_context *context; /* one reference */
    size_t used, numbers_used;
    size_t count, number_count; /* room */
    spw_partition_group *groups;
    uint64_t *numbers;
};

/* ----- measuring ----- */

/* Rows of a piece for a partition. */
static uint32_t rows_of(const spw__held_piece *piece, uint32_t partition)
{
    return spw__piece_has(piece, partition) ? piece->rows[partition - piece->first] : 0;
}

/* Whether partitions may be measured and read. With the lock held. */
static spw_status check_state(const spw_partitions *all, uint32_t partition,
                              spw_error *error)
{
    if (partition >= all->count)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "there is no partition %u, but %u", partition,
                              all->count);
    if (all->is_closed)
        return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                              "partition %u cannot be read: partitions are closed",
                              partition);
    if (!all->is_finished)
        return spw__error_set(
            error, SPW_STATUS_INVALID_ARGUMENT, 0,
            "partition %u is asked for before all its inputs are there", partition);
    if (all->partitions[partition].state == SPW__PARTITION_READ)
        return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                              "partition %u was read already, which can be done once",
                              partition);
    return SPW_STATUS_OK;
}

/* A group behind the others. Its sums are the last ones. */
static spw_status add_group(spw_partition_groups *groups, const spw__type_set *types,
                            spw_error *error)
{
    spw_context *context = groups->context;
    spw_status status = spw__grow(context, &groups->groups, &groups->count,
                                  groups->used + 1, sizeof *groups->groups, error);
    if (status == SPW_STATUS_OK && types->numbers > 0)
        status = spw__grow(context, &groups->numbers, &groups->number_count,
                           groups->numbers_used + types->numbers,
                           sizeof *groups->numbers, error);
    if (status != SPW_STATUS_OK)
        return status;
    groups->groups[groups->used++] = (spw_partition_group){.types = types->number};
    if (types->numbers > 0)
        memset(groups->numbers + groups->numbers_used, 0,
               types->numbers * sizeof *groups->numbers);
    groups->numbers_used += types->numbers;
    return SPW_STATUS_OK;
}

/* Add what a piece has to the last group. */
static spw_status add_shard(spw_partition_groups *groups, const spw__held_piece *piece,
                            uint32_t partition, spw_error *error)
{
    size_t numbers = piece->types->numbers;
    uint32_t i = partition - piece->first;
    uint64_t *sums =
        numbers > 0 ? groups->numbers + (groups->numbers_used - numbers) : NULL;
    /* 32 bits of each of 32 bits. */
    groups->groups[groups->used - 1].rows += piece->rows[i];
    for (size_t n = 0; n < numbers; n++) {
        uint64_t count = piece->counts[i * numbers + n];
        if (count > UINT64_MAX - sums[n])
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "partition %u has more than 64 bits count",
                                  partition);
        sums[n] += count;
    }
    return SPW_STATUS_OK;
}

static spw_status measure(spw_partitions *all, uint32_t partition,
                          spw_partition_groups **ret_groups, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    const spw__type_set *types = NULL;
    spw_partition_groups *groups =
        spw__allocate(all->context, sizeof *groups, _Alignof(spw_partition_groups));
    if (groups == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for what partition %u has", partition);
    *groups = (spw_partition_groups){.context = spw_context_ref(all->context)};
    for (size_t i = 0; i < all->piece_count && status == SPW_STATUS_OK; i++) {
        const spw__held_piece *piece = all->pieces[i];
        if (rows_of(piece, partition) == 0)
            continue;
        if (piece->types != types)
            status = add_group(groups, piece->types, error);
        types = piece->types;
        if (status == SPW_STATUS_OK)
            status = add_shard(groups, piece, partition, error);
    }
    if (status != SPW_STATUS_OK) {
        spw_partition_groups_free(groups);
        return status;
    }
    /* Now that they stay where they are. */
    size_t used = 0;
    spw__partitions_lock(all);
    for (size_t g = 0; g < groups->used; g++) {
        size_t numbers = all->types[groups->groups[g].types]->numbers;
        groups->groups[g].counts = numbers > 0 ? groups->numbers + used : NULL;
        used += numbers;
    }
    spw__partitions_unlock(all);
    *ret_groups = groups;
    return SPW_STATUS_OK;
}

spw_status spw_partitions_measure(spw_partitions *partitions, uint32_t partition,
                                  spw_partition_groups **ret_groups, spw_error *error)
{
    spw__partitions_lock(partitions);
    spw_status status = check_state(partitions, partition, error);
    spw__partitions_unlock(partitions);
    /* From here on pieces stay as they are. */
    return status == SPW_STATUS_OK ? measure(partitions, partition, ret_groups, error)
                                   : status;
}

void spw_partition_groups_free(spw_partition_groups *groups)
{
    if (groups == NULL)
        return;
    spw_context *context = groups->context;
    spw__release(context, groups->groups, groups->count * sizeof *groups->groups,
                 sizeof(void *));
    spw__release(context, groups->numbers,
                 groups->number_count * sizeof *groups->numbers, sizeof(void *));
    spw__release(context, groups, sizeof *groups, _Alignof(spw_partition_groups));
    spw_context_unref(context);
}

const spw_partition_group *spw_partition_groups_all(const spw_partition_groups *groups,
                                                    size_t *ret_count)
{
    *ret_count = groups->used;
    return groups->groups;
}

/* ----- reading ----- */

typedef struct reading {
    spw_partitions *all;
    uint32_t partition;
    const spw_partition_groups *groups;
    spw_column_place *const *places;
    spw__chunk_reader *readers; /* one a chunk */
    uint64_t window_bytes, read_bytes;
    /* What is about to be joined, of group `group`, of which rows are there. */
    const spw__type_set *types;
    size_t group, count;
    uint64_t rows;
    spw_shard shards[SHARDS_AT_ONCE];
    /* Readers whose window goes with that: nothing of it is wanted any more. */
    size_t spent_count;
    spw__chunk_reader *spent[SHARDS_AT_ONCE];
} reading;

/* Join what was gathered. */
static spw_status join(reading *r, spw_error *error)
{
    if (r->count == 0)
        return SPW_STATUS_OK;
    uint64_t rows = 0;
    for (size_t i = 0; i < r->count; i++)
        rows += r->shards[i].rows;
    spw_status status = spw_shards_read(
        r->types->types, r->types->column_count, r->shards, r->count, r->rows,
        r->groups->groups[r->group].rows, r->places[r->group], error);
    r->rows += rows;
    r->count = 0;
    for (size_t i = 0; i < r->spent_count; i++)
        spw__chunk_reader_clear(r->spent[i]);
    r->spent_count = 0;
    return status;
}

/* A window is kept for the next shards of its chunk, but not one that was made for a
 * single large shard: of those each chunk would have one, and together all that is on
 * disk. */
static bool is_spent(const reading *r, const spw__chunk_reader *reader, uint64_t size)
{
    return reader->at == reader->end &&
           (size > r->window_bytes || reader->at == reader->chunk->size);
}

/* Find the bytes of a shard. */
static spw_status locate(reading *r, const spw__held_piece *piece, uint32_t i,
                         spw_shard *shard, spw_error *error)
{
    shard->size = piece->begins[i + 1] - piece->begins[i];
    if (shard->size == 0)
        return SPW_STATUS_OK;
    if (piece->where[i] == SPW__SHARD_IN_MEMORY) {
        shard->data = (const char *)spw_buffer_data(piece->buffer) + piece->offset +
                      piece->begins[i];
        return SPW_STATUS_OK;
    }
    spw__chunk_reader *reader = &r->readers[piece->where[i] - SPW__SHARD_IN_CHUNK];
    spw_status status = SPW_STATUS_OK;
    /* The next window takes the place of the one that gathered shards may be in. */
    if (!spw__chunk_reader_has(reader, shard->size))
        status = join(r, error);
    if (status == SPW_STATUS_OK)
        status =
            spw__chunk_reader_next(reader, r->all->context, r->all->files, shard->size,
                                   r->window_bytes, &shard->data, error);
    if (status == SPW_STATUS_OK && is_spent(r, reader, shard->size))
        r->spent[r->spent_count++] = reader;
    r->read_bytes += shard->size;
    return status;
}

static spw_status read_piece(reading *r, const spw__held_piece *piece, spw_error *error)
{
    uint32_t i = r->partition - piece->first;
    const spw__type_set *types = piece->types;
    spw_status status = SPW_STATUS_OK;
    if (types != r->types || r->count == SHARDS_AT_ONCE)
        status = join(r, error);
    if (types != r->types) {
        r->group += r->types != NULL;
        r->types = types;
        r->rows = 0;
        for (size_t c = 0; c < types->column_count; c++)
            r->places[r->group][c].data_begin = 0; /* of an attempt before this one */
    }
    spw_shard shard = {.rows = piece->rows[i]};
    if (types->numbers > 0)
        shard.counts = piece->counts + i * types->numbers;
    if (status == SPW_STATUS_OK)
        status = locate(r, piece, i, &shard, error);
    if (status == SPW_STATUS_OK)
        r->shards[r->count++] = shard;
    return status;
}

/* Where shards are small, what costs is waiting for the memory that they are in and
 * that says where. So it is asked for some pieces ahead. */
static void look_ahead(const reading *r, size_t at)
{
    const spw_partitions *all = r->all;
    const spw__held_piece *piece;
    if (at + 16 < all->piece_count)
        SPW_PREFETCH(all->pieces[at + 16]);
    if (at + 8 < all->piece_count) {
        piece = all->pieces[at + 8];
        uint32_t i = r->partition - piece->first;
        if (spw__piece_has(piece, r->partition)) {
            SPW_PREFETCH(&piece->rows[i]);
            SPW_PREFETCH(&piece->begins[i]);
            SPW_PREFETCH(&piece->where[i]);
        }
    }
    if (at + 4 < all->piece_count) {
        piece = all->pieces[at + 4];
        uint32_t i = r->partition - piece->first;
        if (!spw__piece_has(piece, r->partition) ||
            piece->where[i] != SPW__SHARD_IN_MEMORY ||
            piece->begins[i] == piece->begins[i + 1])
            return;
        const char *data = (const char *)spw_buffer_data(piece->buffer) + piece->offset;
        for (uint64_t b = piece->begins[i];
             b < piece->begins[i + 1] && b < piece->begins[i] + 512; b += 64)
            SPW_PREFETCH(data + b);
    }
}

static spw_status read_all(reading *r, spw_error *error)
{
    spw_partitions *all = r->all;
    const spw__partition *p = &all->partitions[r->partition];
    size_t bytes = p->chunk_count * sizeof *r->readers;
    spw_status status = SPW_STATUS_OK;
    if (bytes > 0) {
        r->readers = spw__allocate(all->context, bytes, _Alignof(spw__chunk_reader));
        if (r->readers == NULL)
            return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                                  "no memory to read %u chunks of a partition",
                                  p->chunk_count);
        r->window_bytes = spw__window_bytes(p->chunk_count);
        memset(r->readers, 0, bytes);
    }
    for (uint32_t i = 0; i < p->chunk_count; i++)
        r->readers[i].chunk = &p->chunks[i];
    spw__ahead_take(all, r->partition, r->readers, p->chunk_count);
    spw__ahead_begin(all);
    for (size_t i = 0; i < all->piece_count && status == SPW_STATUS_OK; i++) {
        look_ahead(r, i);
        if (rows_of(all->pieces[i], r->partition) > 0)
            status = read_piece(r, all->pieces[i], error);
    }
    if (status == SPW_STATUS_OK)
        status = join(r, error);
    for (uint32_t i = 0; i < p->chunk_count; i++)
        spw__chunk_reader_clear(&r->readers[i]);
    spw__release(all->context, r->readers, bytes, _Alignof(spw__chunk_reader));
    return status;
}

/* Have a partition to oneself. */
static spw_status begin(spw_partitions *all, uint32_t partition, spw_error *error)
{
    spw__partitions_lock(all);
    spw_status status = check_state(all, partition, error);
    while (status == SPW_STATUS_OK && all->partitions[partition].is_writing) {
        (void)pthread_cond_wait(&all->changed, &all->lock);
        status = check_state(all, partition, error);
    }
    if (status == SPW_STATUS_OK) {
        spw__partition *p = &all->partitions[partition];
        if (p->state == SPW__PARTITION_READING) {
            status = spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                    "partition %u is being read by another thread",
                                    partition);
        } else {
            p->state = SPW__PARTITION_READING;
            all->memory_bytes -= p->memory_bytes;
            all->memory_shards -= p->memory_shards;
        }
    }
    spw__partitions_unlock(all);
    return status;
}

/* It is in its places, and leaves. */
static void let_go(spw_partitions *all, uint32_t partition, uint64_t read_bytes)
{
    spw__partition *p = &all->partitions[partition];
    spw__chunk *chunks = p->chunks;
    uint32_t chunk_count = p->chunk_count;
    spw__freed_pages pages;
    /* The next partition that is put together may have them. */
    spw__freed_pages_open(all->context, p->memory_bytes, &pages);
    for (size_t i = 0; i < all->piece_count; i++)
        if (rows_of(all->pieces[i], partition) > 0)
            spw__piece_leave(all, all->pieces[i], partition, partition + 1, true,
                             &pages);
    spw__freed_pages_close(&pages);
    spw__ahead_release(all, chunks, chunk_count, p->chunk_room);
    spw__partitions_lock(all);
    all->figures.memory_bytes -= p->memory_bytes;
    all->figures.disk_bytes -= read_bytes;
    all->figures.read_bytes += read_bytes;
    all->figures.chunks -= chunk_count;
    all->figures.partitions -= p->rows > 0;
    all->figures.partitions_read++;
    *p = (spw__partition){.state = SPW__PARTITION_READ};
    if (all->figures.partitions == 0)
        spw__ahead_wait_released(all);
    (void)pthread_cond_broadcast(&all->changed);
    spw__partitions_unlock(all);
}

/* It stays as it was. */
static void give_up(spw_partitions *all, uint32_t partition)
{
    spw__partition *p = &all->partitions[partition];
    spw__partitions_lock(all);
    p->state = SPW__PARTITION_UNREAD;
    all->memory_bytes += p->memory_bytes;
    all->memory_shards += p->memory_shards;
    (void)pthread_cond_broadcast(&all->changed);
    spw__partitions_unlock(all);
}

spw_status spw_partitions_read(spw_partitions *partitions, uint32_t partition,
                               spw_column_place *const *places, size_t group_count,
                               spw_error *error)
{
    spw_partition_groups *groups = NULL;
    spw_status status = begin(partitions, partition, error);
    if (status != SPW_STATUS_OK)
        return status;
    reading r = {.all = partitions, .partition = partition, .places = places};
    status = measure(partitions, partition, &groups, error);
    if (status == SPW_STATUS_OK && groups->used != group_count)
        status = spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                                "partition %u has %zu groups, and places are for %zu",
                                partition, groups->used, group_count);
    if (status == SPW_STATUS_OK) {
        r.groups = groups;
        status = read_all(&r, error);
    }
    /* What was read ahead is in nobody's way. */
    if (status == SPW_STATUS_LIMIT_EXCEEDED && spw__ahead_drop(partitions)) {
        r = (reading){.all = partitions, .partition = partition, .places = places};
        r.groups = groups;
        status = read_all(&r, error);
    }
    spw_partition_groups_free(groups);
    if (status == SPW_STATUS_OK)
        let_go(partitions, partition, r.read_bytes);
    else
        give_up(partitions, partition);
    return status;
}
