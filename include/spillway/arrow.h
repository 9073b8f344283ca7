/* Columns in the layouts of Apache Arrow, by its C Data Interface
 * (arrow.apache.org/docs/format/CDataInterface.html): arrays become columns to be split
 * without a copy, and joined shards become arrays.
 *
 * A type becomes columns in the order of its tree: a struct is its members, and a
 * FIXED_LIST of no items that has its validity; a null, and a struct without validity
 * and members, is no column. Of a dictionary there are the codes; the dictionary itself
 * stays with the caller. An extension is what it is stored as. Views, unions and what
 * is run-end encoded are UNSUPPORTED. What has validity is said by the type alone, its
 * flag "nullable", so that all arrays of one type give shards that can be joined. */
#ifndef SPILLWAY_ARROW_H
#define SPILLWAY_ARROW_H

#include "spillway/shuffle.h"

/* As the interface has them, under the name by which all who define them know it. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

/* The columns that a type becomes.
 * Borrows: schema, during the call. Returns: in ret_count how many there are, and in
 * types (NULL if room is 0) as many of them as there is room for. Thread: any. Errors:
 * UNSUPPORTED (a view, a union, run-end encoded), INVALID_ARGUMENT (no type, of which
 * the message says the format), LIMIT_EXCEEDED (types in more than 64 others). */
SPW_EXPORT SPW_NODISCARD spw_status spw_arrow_types(const struct ArrowSchema *schema,
                                                    spw_column_type *types, size_t room,
                                                    size_t *ret_count,
                                                    spw_error *error);

/* The columns of an array, which has array->length rows: as many as spw_arrow_types
 * says, of the same types. They point to the array's memory.
 * Borrows: schema, during the call, and array until nobody reads the columns. Returns:
 * in columns; after an error they may hold anything. Thread: any. Errors: as
 * spw_arrow_types, and INVALID_ARGUMENT (an array that is no such type's, or has nulls
 * though its type is not nullable). */
SPW_EXPORT SPW_NODISCARD spw_status spw_arrow_columns(const struct ArrowSchema *schema,
                                                      const struct ArrowArray *array,
                                                      spw_column *columns, size_t room,
                                                      spw_error *error);

/* An array of row_count rows, and for each column that has one its count, to be filled
 * by spw_shards_read: all of it, before anybody else reads it. Where the type has a
 * dictionary, array->dictionary points to a released array, into which the caller moves
 * it.
 * Borrows: schema and counts, during the call. Returns: in places, as many as
 * spw_arrow_types says, where to join; in ret_array, to be given up by its release
 * callback, which lets go of its memory, charged HELD. Thread: any, release too.
 * Errors: as spw_arrow_types, INVALID_ARGUMENT (no room for the places), LIMIT_EXCEEDED
 * (rows, counts, the budget), NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status spw_arrow_array_create(
    spw_context *context, const struct ArrowSchema *schema, uint64_t row_count,
    const uint64_t *counts, spw_column_place *places, size_t room,
    struct ArrowArray *ret_array, spw_error *error);

#endif
