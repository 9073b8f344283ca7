/* Partitions: how they begin and end, and what is known about them. */
#include "shuffle/partitions_ahead.h"

#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/options.h"
#include "memory/buffer_discard.h"
#include "shuffle/shard_layout.h"

static const uint64_t IN_FLIGHT_BYTES = UINT64_C(64) << 20;

/* ----- lifecycle ----- */

/* A write is worth its while from so much on, also where others have all of the limit.
 */
static uint64_t least_of(uint64_t limit, uint64_t in_flight)
{
    uint64_t least =
        in_flight < SPW__LEAST_WRITE_BYTES ? in_flight : SPW__LEAST_WRITE_BYTES;
    if (limit == 0)
        return in_flight;
    return limit < least ? limit : least;
}

/* With the lock held, or before anybody else knows of them. */
static void set_limit(spw_partitions *all, uint64_t bytes)
{
    all->limit_bytes = bytes;
    all->least_bytes = least_of(bytes, all->in_flight_bytes);
}

static void set_limits(spw_partitions *all, const spw_partitions_options *options)
{
    uint64_t limit = options->memory_limit_bytes, in_flight = options->in_flight_bytes;
    if (in_flight == 0)
        in_flight =
            limit > 0 && limit / 4 < IN_FLIGHT_BYTES ? limit / 4 + 1 : IN_FLIGHT_BYTES;
    all->stays_in_memory = limit == SPW_PARTITIONS_IN_MEMORY;
    all->in_flight_bytes = in_flight;
    set_limit(all, limit);
}

static spw_status check_options(const spw_partitions_options *options, spw_error *error)
{
    if (options->partition_count > SPW_PARTITION_COUNT_MAX)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%u partitions, more than %u", options->partition_count,
                              SPW_PARTITION_COUNT_MAX);
    if (options->memory_limit_bytes != SPW_PARTITIONS_IN_MEMORY &&
        options->directory_count == 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "partitions have a limit of memory, and no directory for "
                              "what is above it");
    return SPW_STATUS_OK;
}

static spw_status open_all(spw_partitions *all, const spw_partitions_options *options,
                           spw_error *error)
{
    size_t bytes = options->partition_count * sizeof(spw__partition);
    spw_status status =
        spw_buffer_create(all->context, bytes, SPW_CHARGE_HELD, &all->memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    all->partitions = spw_buffer_data(all->memory);
    memset(all->partitions, 0, bytes);
    all->count = options->partition_count;
    if (all->stays_in_memory)
        return SPW_STATUS_OK;
    status = spw__chunk_files_create(all->context, options->directories,
                                     options->directory_count, &all->files, error);
    return status == SPW_STATUS_OK && options->reads_ahead != 0
               ? spw__ahead_create(all, &all->ahead, error)
               : status;
}

spw_status spw_partitions_create(spw_context *context,
                                 const spw_partitions_options *options,
                                 spw_partitions **ret_partitions, spw_error *error)
{
    spw_partitions_options own;
    spw_status status =
        spw__options_read(options, "PARTITIONS", &own, sizeof own, error);
    if (status == SPW_STATUS_OK)
        status = check_options(&own, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_partitions *all = spw__allocate(context, sizeof *all, _Alignof(spw_partitions));
    if (all == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for partitions");
    *all = (spw_partitions){.context = spw_context_ref(context)};
    (void)pthread_mutex_init(&all->lock, NULL); /* plain ones cannot fail */
    (void)pthread_cond_init(&all->changed, NULL);
    set_limits(all, &own);
    status = open_all(all, &own, error);
    if (status != SPW_STATUS_OK) {
        spw_partitions_free(all);
        return status;
    }
    *ret_partitions = all;
    return SPW_STATUS_OK;
}

void spw_partitions_close(spw_partitions *partitions)
{
    spw__partitions_lock(partitions);
    partitions->is_closed = true;
    (void)pthread_cond_broadcast(&partitions->changed);
    spw__partitions_unlock(partitions);
}

static void free_types(spw_partitions *all)
{
    for (size_t i = 0; i < all->type_count; i++)
        spw__release(all->context, all->types[i],
                     sizeof(spw__type_set) +
                         all->types[i]->column_count * sizeof(spw_column_type),
                     _Alignof(spw__type_set));
    spw__release(all->context, all->types, all->type_room * sizeof *all->types,
                 sizeof(void *));
}

void spw_partitions_free(spw_partitions *partitions)
{
    if (partitions == NULL)
        return;
    spw_partitions *all = partitions;
    spw_context *context = all->context;
    spw__ahead_free(all->ahead);
    for (size_t i = 0; i < all->piece_count; i++)
        spw__piece_free(all->pieces[i]);
    spw__budget_shuffled_went(spw_context_budget(context), all->figures.held_bytes);
    spw__release(context, all->pieces, all->piece_room * sizeof *all->pieces,
                 sizeof(void *));
    for (uint32_t i = 0; i < all->count; i++) {
        spw__partition *p = &all->partitions[i];
        for (uint32_t k = 0; k < p->chunk_count; k++)
            spw__chunk_files_release(all->files, p->chunks[k].batch, 0, 0);
        spw__release(context, p->chunks, p->chunk_room * sizeof *p->chunks,
                     sizeof(void *));
    }
    free_types(all);
    spw_buffer_unref(all->memory);
    spw__chunk_files_free(all->files);
    (void)pthread_cond_destroy(&all->changed);
    (void)pthread_mutex_destroy(&all->lock);
    spw__release(context, all, sizeof *all, _Alignof(spw_partitions));
    spw_context_unref(context);
}

void spw_partitions_limit(spw_partitions *partitions, uint64_t bytes)
{
    spw__partitions_lock(partitions);
    set_limit(partitions, bytes);
    spw__partitions_unlock(partitions);
}

void spw_partitions_finish(spw_partitions *partitions)
{
    spw__partitions_lock(partitions);
    partitions->is_finished = true;
    spw__partitions_unlock(partitions);
}

/* ----- types ----- */

spw_status spw_partitions_add_types(spw_partitions *partitions,
                                    const spw_column_type *types, size_t column_count,
                                    uint32_t *ret_number, spw_error *error)
{
    spw_partitions *all = partitions;
    size_t bytes = sizeof(spw__type_set) + column_count * sizeof *types, numbers = 0;
    spw_status status =
        spw__column_types_check(types, sizeof *types, column_count, &numbers, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__type_set *set = spw__allocate(all->context, bytes, _Alignof(spw__type_set));
    if (set == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for the types of %zu columns", column_count);
    *set = (spw__type_set){.column_count = column_count, .numbers = numbers};
    if (column_count > 0)
        memcpy(set->types, types, column_count * sizeof *types);
    spw__partitions_lock(all);
    status = spw__grow(all->context, &all->types, &all->type_room, all->type_count + 1,
                       sizeof *all->types, error);
    if (status == SPW_STATUS_OK) {
        set->number = (uint32_t)all->type_count;
        all->types[all->type_count++] = set;
        *ret_number = set->number;
    }
    spw__partitions_unlock(all);
    if (status != SPW_STATUS_OK)
        spw__release(all->context, set, bytes, _Alignof(spw__type_set));
    return status;
}

/* ----- memory of pieces ----- */

/* Whether a shard of a piece is in memory and has bytes. */
static bool is_there(const spw__held_piece *piece, uint32_t i)
{
    return piece->where[i] == SPW__SHARD_IN_MEMORY &&
           piece->begins[i] < piece->begins[i + 1];
}

/* The whole units that shards [first, end) have a part of and no shard that is there.
 * Every one is found once: by those of which the last part of it is. With the lock
 * held. Returns: how many bytes from *ret_from on, of the buffer. */
static size_t free_pages(const spw__held_piece *piece, uint32_t first, uint32_t end,
                         size_t *ret_from)
{
    uintptr_t page = piece->unit, mask = ~(page - 1);
    uintptr_t data = (uintptr_t)spw_buffer_data(piece->buffer);
    uintptr_t begin = data + piece->offset;
    uintptr_t from = (begin + piece->begins[first]) & mask;
    uintptr_t to = (begin + piece->begins[end] + page - 1) & mask;
    while (first > 0 && begin + piece->begins[first] > from &&
           !is_there(piece, first - 1))
        first--;
    while (end < piece->count && begin + piece->begins[end] < to &&
           !is_there(piece, end))
        end++;
    uintptr_t low = (begin + piece->begins[first] + page - 1) & mask;
    uintptr_t high = (begin + piece->begins[end]) & mask;
    from = from > low ? from : low;
    to = to < high ? to : high;
    if (from >= to)
        return 0;
    *ret_from = from - data;
    return to - from;
}

/* With the lock held. */
static void give_back(spw_partitions *all, spw__held_piece *piece, uint64_t bytes)
{
    bytes = bytes < piece->held ? bytes : piece->held;
    piece->held -= bytes;
    all->figures.held_bytes -= bytes;
    spw__budget_shuffled_went(spw_context_budget(all->context), bytes);
}

/* Shards that are there from *first on, up to the next that has left before, leave.
 * With the lock held. Returns: how many; *first is behind them. */
static uint32_t mark_run(spw_partitions *all, spw__held_piece *piece, uint32_t *first,
                         uint32_t end, bool is_gone)
{
    uint32_t count = 0, i = *first;
    for (; i < end; i++) {
        if (piece->begins[i] == piece->begins[i + 1])
            continue;
        if (piece->where[i] != SPW__SHARD_IN_MEMORY)
            break;
        uint32_t chunk = all->partitions[piece->first + i].chunk_count;
        piece->where[i] = is_gone ? SPW__SHARD_GONE : SPW__SHARD_IN_CHUNK + chunk;
        count++;
    }
    *first = i;
    return count;
}

/* So many shards have left a piece. With the lock held. Returns: the buffer, with its
 * reference, if they were the last. */
static spw_buffer *count_out(spw_partitions *all, spw__held_piece *piece,
                             uint32_t count)
{
    spw_buffer *buffer = NULL;
    piece->left -= count;
    if (piece->left == 0) {
        give_back(all, piece, piece->held);
        buffer = piece->buffer;
        piece->buffer = NULL;
    }
    return buffer;
}

/* One run, from *first on. Runs are apart, and found one after another, so that a page
 * between two of them goes with the second. */
static void leave_run(spw_partitions *all, spw__held_piece *piece, uint32_t *first,
                      uint32_t end, bool is_gone, spw__freed_pages *pages)
{
    uint32_t begin = *first;
    size_t from = 0, bytes = 0;
    spw_buffer *buffer = NULL;
    spw__partitions_lock(all);
    uint32_t count = mark_run(all, piece, first, end, is_gone);
    if (count > 0 && count < piece->left) /* or else all of it goes */
        bytes = free_pages(piece, begin, *first, &from);
    if (count > 0 && bytes == 0)
        buffer = count_out(all, piece, count);
    spw__partitions_unlock(all);
    if (bytes > 0) {
        /* Nobody lets go of the buffer meanwhile: these still count. */
        bytes = spw__buffer_discard(piece->buffer, from, from + bytes, pages);
        spw__partitions_lock(all);
        give_back(all, piece, bytes);
        buffer = count_out(all, piece, count);
        spw__partitions_unlock(all);
    }
    spw_buffer_unref(buffer);
}

void spw__piece_leave(spw_partitions *all, spw__held_piece *piece, uint32_t first,
                      uint32_t end, bool is_gone, spw__freed_pages *pages)
{
    first = first > piece->first ? first - piece->first : 0;
    end = end > piece->first ? end - piece->first : 0;
    end = end < piece->count ? end : piece->count;
    while (first < end) {
        leave_run(all, piece, &first, end, is_gone, pages);
        /* Past those that have left before: they are his who calls, as all of these. */
        while (first < end && !is_there(piece, first))
            first++;
    }
}

void spw__piece_free(spw__held_piece *piece)
{
    spw_buffer_unref(piece->buffer);
    spw_buffer_unref(piece->memory);
}

/* ----- what is known ----- */

size_t spw_partitions_list_pieces(spw_partitions *partitions, size_t begin,
                                  spw_piece_rows *ret_rows, size_t room)
{
    size_t count = 0;
    spw__partitions_lock(partitions);
    for (; count < room && begin + count < partitions->piece_count; count++) {
        const spw__held_piece *piece = partitions->pieces[begin + count];
        ret_rows[count] = (spw_piece_rows){.input = piece->input,
                                           .first_partition = piece->first,
                                           .rows = piece->row_sum};
    }
    spw__partitions_unlock(partitions);
    return count;
}

void spw_partitions_read_figures(spw_partitions *partitions,
                                 spw_partitions_figures *ret_figures)
{
    spw__chunk_files_figures files = {0};
    if (partitions->files != NULL)
        spw__chunk_files_read_figures(partitions->files, &files);
    spw__partitions_lock(partitions);
    *ret_figures = partitions->figures;
    spw__partitions_unlock(partitions);
    ret_figures->disk_used = files.used_bytes;
    ret_figures->write_ns = files.write_ns;
    ret_figures->read_ns = files.read_ns;
}
