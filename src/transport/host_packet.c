/* Packets of the side channel. The first number of each says that it is one of ours:
 * whoever else may sit behind a path that a peer has told gets nothing out of it, and
 * nothing that it says is taken for an answer. */
#include "transport/host_packet.h"

#include "framing/wire.h"
#include "memory/byte_reader.h"

/* "SPWHOST" and the kind. */
static const uint64_t MAGIC = UINT64_C(0x54534f4857505300);

void spw__host_packet_put(const spw__host_packet *packet,
                          uint8_t to[SPW__HOST_HEAD_BYTES])
{
    char *next = spw__wire_put((char *)to, MAGIC | packet->kind);
    next = spw__wire_put(next, packet->epoch);
    next = spw__wire_put(next, packet->number);
    next = spw__wire_put(next, packet->place);
    (void)spw__wire_put(next, packet->way | (uint64_t)packet->os_errno << 32);
}

bool spw__host_packet_get(const uint8_t *data, size_t size,
                          spw__host_packet *ret_packet)
{
    spw__byte_reader reader = spw__byte_reader_over(data, size);
    uint64_t first, way, os_errno;
    spw__host_packet packet;
    if (!spw__byte_reader_le(&reader, 8, &first) ||
        !spw__byte_reader_le(&reader, 8, &packet.epoch) ||
        !spw__byte_reader_le(&reader, 8, &packet.number) ||
        !spw__byte_reader_le(&reader, 8, &packet.place) ||
        !spw__byte_reader_le(&reader, 4, &way) ||
        !spw__byte_reader_le(&reader, 4, &os_errno))
        return false;
    packet.kind = first ^ MAGIC;
    packet.way = (uint32_t)way;
    packet.os_errno = (uint32_t)os_errno;
    if (packet.kind < SPW__HOST_HELLO || packet.kind > SPW__HOST_BYTES)
        return false;
    *ret_packet = packet;
    return true;
}
