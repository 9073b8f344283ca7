/* Just enough msgpack to look into a header without building it: read the next item's
 * kind, or skip it whole. Format: github.com/msgpack/msgpack/blob/master/spec.md */
#ifndef SPW_FRAMING_MSGPACK_SCAN_H
#define SPW_FRAMING_MSGPACK_SCAN_H

#include "memory/byte_reader.h"

typedef enum spw__msgpack_kind {
    SPW__MSGPACK_NIL,
    SPW__MSGPACK_UNSIGNED, /* value: the number */
    SPW__MSGPACK_STRING,   /* value: bytes that follow */
    SPW__MSGPACK_ARRAY,    /* value: items that follow */
    SPW__MSGPACK_MAP,      /* value: pairs that follow */
    SPW__MSGPACK_OTHER     /* value: bytes that follow */
} spw__msgpack_kind;

typedef struct spw__msgpack_item {
    spw__msgpack_kind kind;
    uint64_t value;
} spw__msgpack_item;

/* Read an item's head. False at the end of the data or for a byte that begins none. */
bool spw__msgpack_next(spw__byte_reader *reader, spw__msgpack_item *ret_item);
/* Skip one item with all it contains, however deep, in time linear in its bytes. */
bool spw__msgpack_skip(spw__byte_reader *reader);

#endif
