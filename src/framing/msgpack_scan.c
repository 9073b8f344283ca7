/* Nesting costs no stack: what is left to skip is a number of items. */
#include "framing/msgpack_scan.h"

static bool with_be(spw__byte_reader *reader, unsigned width, spw__msgpack_kind kind,
                    uint64_t extra, spw__msgpack_item *ret_item)
{
    uint64_t value;
    if (!spw__byte_reader_be(reader, width, &value))
        return false;
    *ret_item = (spw__msgpack_item){kind, value + extra};
    return true;
}

static bool plain(spw__msgpack_kind kind, uint64_t value, spw__msgpack_item *ret_item)
{
    *ret_item = (spw__msgpack_item){kind, value};
    return true;
}

bool spw__msgpack_next(spw__byte_reader *reader, spw__msgpack_item *ret_item)
{
    uint8_t head;
    if (!spw__byte_reader_u8(reader, &head))
        return false;
    if (head <= 0x7f)
        return plain(SPW__MSGPACK_UNSIGNED, head, ret_item);
    if (head <= 0x8f)
        return plain(SPW__MSGPACK_MAP, head & 0x0fu, ret_item);
    if (head <= 0x9f)
        return plain(SPW__MSGPACK_ARRAY, head & 0x0fu, ret_item);
    if (head <= 0xbf)
        return plain(SPW__MSGPACK_STRING, head & 0x1fu, ret_item);
    if (head >= 0xe0) /* negative fixint */
        return plain(SPW__MSGPACK_OTHER, 0, ret_item);
    switch (head) {
    case 0xc0:
        return plain(SPW__MSGPACK_NIL, 0, ret_item);
    case 0xc2: /* false */
    case 0xc3: /* true */
        return plain(SPW__MSGPACK_OTHER, 0, ret_item);
    case 0xc4: /* bin 8, 16, 32 */
    case 0xc5:
    case 0xc6:
        return with_be(reader, 1u << (head - 0xc4), SPW__MSGPACK_OTHER, 0, ret_item);
    case 0xc7: /* ext 8, 16, 32: a type byte before the data */
    case 0xc8:
    case 0xc9:
        return with_be(reader, 1u << (head - 0xc7), SPW__MSGPACK_OTHER, 1, ret_item);
    case 0xca: /* float 32 */
        return plain(SPW__MSGPACK_OTHER, 4, ret_item);
    case 0xcb: /* float 64 */
        return plain(SPW__MSGPACK_OTHER, 8, ret_item);
    case 0xcc: /* uint 8 to 64 */
    case 0xcd:
    case 0xce:
    case 0xcf:
        return with_be(reader, 1u << (head - 0xcc), SPW__MSGPACK_UNSIGNED, 0, ret_item);
    case 0xd0: /* int 8 to 64 */
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return plain(SPW__MSGPACK_OTHER, (uint64_t)1 << (head - 0xd0), ret_item);
    case 0xd4: /* fixext 1 to 16: a type byte before the data */
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return plain(SPW__MSGPACK_OTHER, 1 + ((uint64_t)1 << (head - 0xd4)), ret_item);
    case 0xd9: /* str 8 to 32 */
    case 0xda:
    case 0xdb:
        return with_be(reader, 1u << (head - 0xd9), SPW__MSGPACK_STRING, 0, ret_item);
    case 0xdc: /* array 16, 32 */
    case 0xdd:
        return with_be(reader, 2u << (head - 0xdc), SPW__MSGPACK_ARRAY, 0, ret_item);
    case 0xde: /* map 16, 32 */
    case 0xdf:
        return with_be(reader, 2u << (head - 0xde), SPW__MSGPACK_MAP, 0, ret_item);
    default: /* 0xc1 begins nothing */
        return false;
    }
}

bool spw__msgpack_skip(spw__byte_reader *reader)
{
    uint64_t items = 1;
    while (items > 0) {
        /* Each item takes a byte at least, so a claim beyond that is a lie. */
        if (items > spw__byte_reader_left(reader))
            return false;
        spw__msgpack_item item;
        if (!spw__msgpack_next(reader, &item))
            return false;
        items--;
        switch (item.kind) {
        case SPW__MSGPACK_ARRAY:
            items += item.value;
            break;
        case SPW__MSGPACK_MAP:
            items += 2 * item.value;
            break;
        case SPW__MSGPACK_STRING:
        case SPW__MSGPACK_OTHER:
            if (!spw__byte_reader_skip(reader, item.value))
                return false;
            break;
        case SPW__MSGPACK_NIL:
        case SPW__MSGPACK_UNSIGNED:
            break;
        }
    }
    return true;
}
