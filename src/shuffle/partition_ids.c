/* The numbers of partitions that splitting takes, from those that a caller has: in
 * integers of any width, and as few or as many of them as somebody wants. */
#include <inttypes.h>
#include <string.h>

#include "context/error.h"
#include "spillway/shuffle.h"

typedef struct id_numbers {
    const uint32_t *numbers;
    uint64_t count;
} id_numbers;

/* One loop for each width: the compiler knows the width in each. An id below zero is
 * above all others once it has no sign.
 * Returns: the first row whose id has no number; row_count when there is none. */
#define NUMBER_ROWS(type)                                                              \
    for (uint64_t row = 0; row < row_count; row++) {                                   \
        type id;                                                                       \
        memcpy(&id, (const uint8_t *)ids + row * sizeof id, sizeof id);                \
        if ((uint64_t)id >= map->count)                                                \
            return row;                                                                \
        ret_ids[row] = map->numbers[(uint64_t)id];                                     \
    }                                                                                  \
    return row_count

static uint64_t number_rows(const void *ids, const spw_partition_id_type *type,
                            uint64_t row_count, const id_numbers *map,
                            uint32_t *ret_ids)
{
    switch ((int)type->size * (type->is_signed ? -1 : 1)) {
    case -1:
        NUMBER_ROWS(int8_t);
    case -2:
        NUMBER_ROWS(int16_t);
    case -4:
        NUMBER_ROWS(int32_t);
    case -8:
        NUMBER_ROWS(int64_t);
    case 1:
        NUMBER_ROWS(uint8_t);
    case 2:
        NUMBER_ROWS(uint16_t);
    case 4:
        NUMBER_ROWS(uint32_t);
    default:
        NUMBER_ROWS(uint64_t);
    }
}

/* The id of a row, as the caller has it: for a message. */
static int64_t id_at(const void *ids, const spw_partition_id_type *type, uint64_t row)
{
    uint64_t id = 0;
    memcpy(&id, (const uint8_t *)ids + row * type->size, type->size);
    if (!type->is_signed || type->size == 8)
        return (int64_t)id;
    unsigned unused = 64 - type->size * 8;
    return (int64_t)(id << unused) >> unused;
}

spw_status spw_partition_ids_number(const void *ids, const spw_partition_id_type *type,
                                    uint64_t row_count, const uint32_t *numbers,
                                    uint64_t number_count, uint32_t *ret_ids,
                                    spw_error *error)
{
    id_numbers map = {numbers, number_count};
    if (type->size != 1 && type->size != 2 && type->size != 4 && type->size != 8)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "partition ids have 1, 2, 4 or 8 bytes, not %u",
                              type->size);
    uint64_t row = number_rows(ids, type, row_count, &map, ret_ids);
    if (row == row_count)
        return SPW_STATUS_OK;
    return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                          "row %" PRIu64 " is of partition %" PRId64
                          ", and there are %" PRIu64,
                          row, id_at(ids, type, row), number_count);
}
