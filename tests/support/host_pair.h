/* Both ends of a side channel in one process, with the stream between them as bytes in
 * memory. */
#ifndef TEST_HOST_PAIR_H
#define TEST_HOST_PAIR_H

#include "private_place.h"
#include "torture.h"
#include "transport/host_receiver.h"
#include "transport/host_sender.h"
#include "wire_bytes.h"

typedef struct host_pair {
    spw_context *context; /* borrowed */
    private_place place;
    int listening, accepted;
    spw__host_sender *sender;
    spw__host_receiver *receiver;
    spw__message_reader *reader;
    wire_bytes stream;
    size_t place_in_stream;
    /* What the receiver fetches at most in one call; 0: no limit. */
    size_t limit;
    const spw__host_helper *helper;
} host_pair;

/* Bodies of that size and more go by reference. */
enum { HOST_PAIR_FROM_BYTES = 1000 };
static const uint8_t HOST_PAIR_NONCE[SPW__HOST_NONCE_BYTES] = "a nonce, of 16.";

/* Bodies of a message, to go by every way. */
static const size_t HOST_PAIR_SIZES[] = {20, 90, 5000, 0, 999, 200000, 1000, 7};
enum {
    HOST_PAIR_COUNT = COUNT_OF(HOST_PAIR_SIZES),
    HOST_PAIR_BY_REFERENCE = 5000 + 200000 + 1000,
    /* The last one shares its region with smaller frames. */
    HOST_PAIR_ALONE = 5000 + 200000
};

/* A sender that has said hello, and a receiver that has heard it. On failure, too,
 * close it afterwards. */
spw_status host_pair_open(spw_context *context, bool uses_descriptors,
                          host_pair *ret_pair, spw_error *error);
/* Admit the sender, and wait until it knows. */
spw_status host_pair_meet(host_pair *pair, spw__host_way best, spw_error *error);
void host_pair_close(host_pair *pair);

/* A receiver whose sender is a raw descriptor, and the other way round: *ret_raw is to
 * be closed by the caller. */
spw_status host_pair_open_raw_sender(spw_context *context, host_pair *ret_pair,
                                     int *ret_raw, spw_error *error);
spw_status host_pair_open_raw_receiver(spw_context *context, host_pair *ret_pair,
                                       int *ret_raw, spw_error *error);
/* Send a packet with size bytes behind its head, and a descriptor unless that is -1. */
void host_pair_raw_send(int raw, const spw__host_packet *packet, const void *behind,
                        size_t size, int passed);
/* The next packet of the other end. False at its end. */
bool host_pair_raw_receive(int raw, spw__host_packet *ret_packet);

/* Put a message into the stream, by reference if the sender wants it. Takes: payload,
 * always. */
spw_status host_pair_send(host_pair *pair, spw_payload *payload, spw_error *error);
spw_status host_pair_send_made(host_pair *pair, const size_t *sizes, size_t count,
                               unsigned seed, spw_error *error);
/* Read the next message, driving both ends by what they wait for; fails the test when
 * neither would ever be woken. */
spw_status host_pair_receive(host_pair *pair, spw_payload **ret_payload,
                             spw_error *error);
/* Fails the test unless it is what host_pair_send_made made. */
spw_status host_pair_receive_made(host_pair *pair, const size_t *sizes, size_t count,
                                  unsigned seed, spw_error *error);
/* How much has come by that way. */
uint64_t host_pair_bytes_by(const host_pair *pair, spw__host_way way);
/* Drive the sender until all that was announced is taken, and let go of that. */
spw_status host_pair_settle(host_pair *pair, spw_error *error);

#endif
