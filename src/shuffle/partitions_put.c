/* Putting pieces in. What a peer says of a piece is held against itself and its bytes
 * before anything is taken: a shard's size follows from its rows and counts, and is
 * reckoned here once, so that everybody later only looks it up. */
#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/memory_map.h"
#include "shuffle/partitions_state.h"
#include "shuffle/shard_sizes.h"

static const size_t SMALL_UNIT_BYTES = (size_t)16 << 10;

/* ----- checking ----- */

/* Errors: CORRUPT. */
static spw_status refuse_size(const spw_piece *piece, uint32_t i, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                          "input %u, partition %u: what the rows and counts of shards "
                          "take is not the %" PRIu64 " bytes that they have",
                          piece->input, piece->first_partition + i, piece->size);
}

static spw_status check_ranges(const spw_partitions *all, const spw_piece *piece,
                               spw_error *error)
{
    if (piece->partition_count == 0 || piece->first_partition >= all->count ||
        piece->partition_count > all->count - piece->first_partition)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "input %u: %u partitions from %u on, of %u", piece->input,
                              piece->partition_count, piece->first_partition,
                              all->count);
    if (piece->rows == NULL)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "input %u does not say how many rows its shards have",
                              piece->input);
    uint64_t room = piece->buffer != NULL ? spw_buffer_size(piece->buffer) : 0;
    if (piece->offset > room || piece->size > room - piece->offset)
        return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                              "input %u: %" PRIu64 " bytes from %" PRIu64
                              " on, of a buffer that has %" PRIu64,
                              piece->input, piece->size, piece->offset, room);
    return SPW_STATUS_OK;
}

/* ----- making ----- */

/* Giving memory back takes a call to the system, which pays for some pages. Where
 * shards are small, that are those of neighbours; where they are large, a unit at each
 * end of one stays, and so is small. A power of two. */
static size_t unit_of(const spw_piece *piece)
{
    size_t page = spw__memory_page_bytes();
    bool is_large = piece->size / piece->partition_count >= 8 * SMALL_UNIT_BYTES;
    return is_large || page > SMALL_UNIT_BYTES ? page : SMALL_UNIT_BYTES;
}

static spw_status make_piece(spw_partitions *all, const spw_piece *piece,
                             const spw__type_set *types, spw__held_piece **ret_held,
                             spw_error *error)
{
    size_t count = piece->partition_count, numbers = count * types->numbers;
    if (types->numbers > 0 && numbers / types->numbers != count)
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "input %u: more counts than can be", piece->input);
    spw_buffer *memory;
    size_t bytes = sizeof(spw__held_piece) + (count + 1 + numbers) * sizeof(uint64_t) +
                   2 * count * sizeof(uint32_t);
    spw_status status =
        spw_buffer_create(all->context, bytes, SPW_CHARGE_HELD, &memory, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw__held_piece *held = spw_buffer_data(memory);
    *held = (spw__held_piece){.memory = memory,
                              .types = types,
                              .input = piece->input,
                              .first = piece->first_partition,
                              .count = piece->partition_count,
                              .offset = piece->offset,
                              .unit = unit_of(piece),
                              .held = piece->size};
    held->begins = (uint64_t *)(held + 1);
    held->counts = held->begins + count + 1;
    held->rows = (uint32_t *)(held->counts + numbers);
    held->where = held->rows + count;
    memcpy(held->rows, piece->rows, count * sizeof *held->rows);
    if (numbers > 0)
        memcpy(held->counts, piece->counts, numbers * sizeof *held->counts);
    memset(held->where, 0, count * sizeof *held->where);
    *ret_held = held;
    return SPW_STATUS_OK;
}

/* Of copies, which nobody changes meanwhile. */
static spw_status lay_out(spw__held_piece *held, const spw_piece *piece,
                          spw_error *error)
{
    const spw__type_set *types = held->types;
    held->begins[0] = 0;
    for (uint32_t i = 0; i < held->count; i++) {
        uint64_t size, begin = held->begins[i];
        const uint64_t *counts = held->counts + i * types->numbers;
        if (spw__shard_size(types->types, types->column_count, i, held->rows[i], counts,
                            piece->size - begin, &size, NULL) != SPW_STATUS_OK)
            return refuse_size(piece, i, error);
        held->begins[i + 1] = begin + size;
        held->left += size > 0;
        held->row_sum += held->rows[i];
    }
    return held->begins[held->count] == piece->size
               ? SPW_STATUS_OK
               : refuse_size(piece, held->count - 1, error);
}

/* ----- putting in ----- */

/* The first piece that is not before input and partition. With the lock held. */
static size_t find(const spw_partitions *all, uint32_t input, uint32_t first)
{
    size_t low = 0, high = all->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const spw__held_piece *piece = all->pieces[middle];
        if (piece->input < input || (piece->input == input && piece->first < first))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_same(const spw__held_piece *left, const spw__held_piece *right)
{
    size_t count = left->count, numbers = count * left->types->numbers;
    return left->count == right->count && left->types == right->types &&
           memcmp(left->rows, right->rows, count * sizeof *left->rows) == 0 &&
           memcmp(left->counts, right->counts, numbers * sizeof *left->counts) == 0;
}

static bool overlap(const spw__held_piece *before, const spw__held_piece *piece)
{
    return before->input == piece->input &&
           piece->first - before->first < before->count;
}

/* Returns: OK, in *ret_at where it belongs, and whether it is there already. */
static spw_status find_place(const spw_partitions *all, const spw__held_piece *held,
                             size_t *ret_at, bool *ret_is_there, spw_error *error)
{
    size_t at = find(all, held->input, held->first);
    const spw__held_piece *next = at < all->piece_count ? all->pieces[at] : NULL;
    *ret_at = at;
    *ret_is_there =
        next != NULL && next->input == held->input && next->first == held->first;
    if (*ret_is_there)
        return is_same(next, held)
                   ? SPW_STATUS_OK
                   : spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                                    "input %u has come twice for partition %u on, with "
                                    "other rows the second time",
                                    held->input, held->first);
    if ((next != NULL && overlap(held, next)) ||
        (at > 0 && overlap(all->pieces[at - 1], held)))
        return spw__error_set(
            error, SPW_STATUS_PROTOCOL, 0,
            "input %u: partitions from %u on have come before, in part", held->input,
            held->first);
    if (all->is_closed || all->is_finished)
        return spw__error_set(error, SPW_STATUS_CLOSED, 0,
                              "input %u comes after partitions were %s", held->input,
                              all->is_closed ? "closed" : "said to be complete");
    return SPW_STATUS_OK;
}

/* With the lock held. */
static void count_in(spw_partitions *all, spw__held_piece *held, uint64_t size)
{
    for (uint32_t i = 0; i < held->count; i++) {
        spw__partition *p = &all->partitions[held->first + i];
        uint64_t bytes = held->begins[i + 1] - held->begins[i];
        all->figures.partitions += p->rows == 0 && held->rows[i] > 0;
        p->rows += held->rows[i];
        p->memory_bytes += bytes;
        p->memory_shards += bytes > 0;
        if (!p->is_writing) {
            all->memory_bytes += bytes;
            all->memory_shards += bytes > 0;
        }
    }
    all->figures.pieces++;
    all->figures.rows += held->row_sum;
    all->figures.put_bytes += size;
    all->figures.held_bytes += size;
    spw__budget_shuffled_came(spw_context_budget(all->context), size);
    all->figures.memory_bytes += size;
}

/* With the lock held. Takes: held, if it is put in: in *held, which is NULL then. */
static spw_status put_in(spw_partitions *all, spw__held_piece **held,
                         spw_buffer *buffer, bool *ret_is_there, spw_error *error)
{
    size_t at;
    spw__held_piece *piece = *held;
    spw_status status = find_place(all, piece, &at, ret_is_there, error);
    if (status == SPW_STATUS_OK && *ret_is_there)
        all->figures.repeats++;
    if (status != SPW_STATUS_OK || *ret_is_there)
        return status;
    status = spw__grow(all->context, &all->pieces, &all->piece_room,
                       all->piece_count + 1, sizeof *all->pieces, error);
    if (status != SPW_STATUS_OK)
        return status;
    memmove(&all->pieces[at + 1], &all->pieces[at],
            (all->piece_count - at) * sizeof *all->pieces);
    all->pieces[at] = piece;
    all->piece_count++;
    if (piece->left > 0)
        piece->buffer = spw_buffer_ref(buffer);
    count_in(all, piece, piece->held);
    *held = NULL;
    return SPW_STATUS_OK;
}

uint64_t spw__partitions_low(const spw_partitions *all)
{
    uint64_t others = spw__budget_shuffled(spw_context_budget(all->context)) -
                      all->figures.held_bytes;
    return all->limit_bytes > others ? all->limit_bytes - others : 0;
}

uint64_t spw__partitions_high(const spw_partitions *all)
{
    uint64_t low = spw__partitions_low(all);
    return low > all->least_bytes ? low : all->least_bytes;
}

bool spw__partitions_is_due(const spw_partitions *all)
{
    /* While others write, a little more may come; or else one waits for the other. */
    uint64_t held = all->figures.held_bytes, high = spw__partitions_high(all);
    return !all->stays_in_memory &&
           (spw__partitions_settled(all) > high ||
            (held > high && held - high > all->in_flight_bytes));
}

spw_status spw_partitions_put(spw_partitions *partitions, const spw_piece *piece,
                              unsigned *ret_answer, spw_error *error)
{
    spw_partitions *all = partitions;
    const spw__type_set *types = NULL;
    spw__held_piece *held = NULL;
    bool is_there = false, is_due = false;
    spw__partitions_lock(all);
    if (piece->types < all->type_count)
        types = all->types[piece->types];
    spw__partitions_unlock(all);
    if (types == NULL || (types->numbers > 0 && piece->counts == NULL))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "input %u has types %u, %s", piece->input, piece->types,
                              types == NULL ? "which nobody has added"
                                            : "which need counts");
    spw_status status = check_ranges(all, piece, error);
    if (status == SPW_STATUS_OK)
        status = make_piece(all, piece, types, &held, error);
    if (status == SPW_STATUS_OK)
        status = lay_out(held, piece, error);
    if (status == SPW_STATUS_OK) {
        spw__partitions_lock(all);
        status = put_in(all, &held, piece->buffer, &is_there, error);
        is_due = spw__partitions_is_due(all);
        spw__partitions_unlock(all);
    }
    if (held != NULL)
        spw__piece_free(held);
    if (status == SPW_STATUS_OK && ret_answer != NULL)
        *ret_answer =
            (is_there ? SPW_PUT_WAS_THERE : 0u) | (is_due ? SPW_PUT_WRITE_IS_DUE : 0u);
    return status;
}
