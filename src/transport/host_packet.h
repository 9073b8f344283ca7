/* The packets of the side channel between two processes of one host: five numbers,
 * little-endian, and what follows them. docs/wire_format.md, "Same host". */
#ifndef SPW_TRANSPORT_HOST_PACKET_H
#define SPW_TRANSPORT_HOST_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPW__HOST_HEAD_BYTES = 40,
    SPW__HOST_NONCE_BYTES = 16,
    SPW__HOST_SECRET_BYTES = 32,
    SPW__HOST_VERSION = 1,
    /* Of a body in one packet: with its head it stays under what a socket takes with
     * the smallest buffers that a system has by default. */
    SPW__HOST_BODY_MAX_BYTES = 64 * 1024 /* no more than SPW__WINDOW_LEAST */
};

typedef enum spw__host_kind {
    SPW__HOST_HELLO = 1, /* sender: epoch the version, place of the secret, and
                            then the nonce and the secret itself */
    SPW__HOST_WAY = 2,   /* receiver: the way, as of that epoch, from there on */
    SPW__HOST_TAKEN = 3, /* receiver: number bodies are its own */
    SPW__HOST_DESCRIPTOR =
        4,              /* sender: body number, of size bytes, with a descriptor */
    SPW__HOST_BYTES = 5 /* sender: what stands at offset of body number */
} spw__host_kind;

typedef struct spw__host_packet {
    uint64_t kind;
    uint64_t epoch;  /* how often the receiver has said the way */
    uint64_t number; /* of a body by reference, counted from the first of the link */
    uint64_t place;  /* an offset, a size, or an address */
    uint32_t way, os_errno;
} spw__host_packet;

/* Write a head. */
void spw__host_packet_put(const spw__host_packet *packet,
                          uint8_t to[SPW__HOST_HEAD_BYTES]);
/* Read one from a packet of size bytes. False when it is none of those above. */
bool spw__host_packet_get(const uint8_t *data, size_t size,
                          spw__host_packet *ret_packet);

#endif
