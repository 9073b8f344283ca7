/* Two processes exchange payloads, over TCP and, as they share a host, from memory to
 * memory.
 *
 *     exchange_payloads          meet, and let large bodies go between the memories
 *     exchange_payloads --tcp    everything by the connection's stream
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "example_peer.h"

enum { ROUNDS = 5, BODY_BYTES = 8 << 20 };

static int is_tcp_only;

/* ---- same host: tell each other where to meet ---- */

/* The two are on one host here, where a program that does not know compares the
 * connection's addresses. Whoever is wrong about that is just not met. */
static spw_status say_hello(peer *self, uint8_t nonce[SPW_NONCE_BYTES],
                            spw_error *error)
{
    spw_payload *hello;
    const char *path = spw_meetings_path(self->meetings);
    if (getrandom(nonce, SPW_NONCE_BYTES, 0) != SPW_NONCE_BYTES)
        abort(); /* up to 256 bytes, it is never interrupted */
    spw_status status = spw_payload_create(self->context, 2, &hello, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = append_copy(self, hello, path, strlen(path) + 1, error);
    if (status == SPW_STATUS_OK)
        status = append_copy(self, hello, nonce, SPW_NONCE_BYTES, error);
    if (status == SPW_STATUS_OK)
        return peer_send(self, hello, error);
    spw_payload_free(hello);
    return status;
}

static spw_status refuse(spw_error *error, const char *what)
{
    *error = (spw_error){.status = SPW_STATUS_PROTOCOL};
    snprintf(error->message, sizeof error->message, "%s", what);
    return SPW_STATUS_PROTOCOL;
}

/* What comes from a peer is checked before it is used. */
static spw_status read_hello(const spw_payload *hello, const char **ret_path,
                             const uint8_t **ret_nonce, spw_error *error)
{
    const spw_slice *frames = spw_payload_slices(hello);
    if (spw_payload_count(hello) != 2 || frames[1].size != SPW_NONCE_BYTES)
        return refuse(error, "the peer's hello is none");
    const char *path = spw_slice_data(&frames[0]);
    if (frames[0].size == 0 || path[frames[0].size - 1] != '\0')
        return refuse(error, "the peer's hello has no path");
    *ret_path = path;
    *ret_nonce = spw_slice_data(&frames[1]);
    return SPW_STATUS_OK;
}

static spw_status meet(peer *self, spw_error *error)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    uint8_t own_nonce[SPW_NONCE_BYTES];
    const uint8_t *peer_nonce = NULL;
    const char *peer_path = NULL;
    spw_payload *hello = NULL;
    options.parent = "/tmp";
    spw_status status =
        spw_meetings_create(self->context, &options, &self->meetings, error);
    if (status == SPW_STATUS_OK)
        status = say_hello(self, own_nonce, error);
    if (status == SPW_STATUS_OK)
        status = peer_receive(self, &hello, error);
    if (status == SPW_STATUS_OK)
        status = read_hello(hello, &peer_path, &peer_nonce, error);
    if (status == SPW_STATUS_OK)
        status = spw_connection_meet(self->connection, self->meetings, own_nonce,
                                     peer_path, peer_nonce, error);
    spw_payload_free(hello);
    return status;
}

/* ---- payloads ---- */

static unsigned char byte_at(unsigned round, size_t place)
{
    return (unsigned char)(round * 31 + place * 7 + (place >> 12));
}

/* A message of two frames: what it is, and a body that stays where it is. */
static spw_status send_body(peer *self, unsigned round, spw_error *error)
{
    char title[40];
    spw_payload *payload;
    spw_slice body = {.size = BODY_BYTES, .plain_size = BODY_BYTES};
    spw_status status = spw_payload_create(self->context, 2, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    snprintf(title, sizeof title, "body %u", round);
    status = append_copy(self, payload, title, strlen(title) + 1, error);
    if (status != SPW_STATUS_OK)
        goto fail;
    unsigned char *memory = malloc(BODY_BYTES);
    if (memory == NULL)
        abort();
    for (size_t i = 0; i < BODY_BYTES; i++)
        memory[i] = byte_at(round, i);
    /* Nobody copies it: it is given back to free() once the peer has it. */
    status = spw_buffer_wrap(self->context, memory, BODY_BYTES, false, free, memory,
                             &body.buffer, error);
    if (status != SPW_STATUS_OK) {
        free(memory);
        goto fail;
    }
    status = spw_payload_append(payload, &body, error);
    if (status != SPW_STATUS_OK) {
        spw_buffer_unref(body.buffer);
        goto fail;
    }
    return peer_send(self, payload, error);
fail:
    spw_payload_free(payload);
    return status;
}

static spw_status receive_body(peer *self, unsigned round, spw_error *error)
{
    spw_payload *payload;
    spw_status status = peer_receive(self, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    const spw_slice *frames = spw_payload_slices(payload);
    if (spw_payload_count(payload) != 2 || frames[1].size != BODY_BYTES)
        status = refuse(error, "another message was expected");
    const unsigned char *memory =
        status == SPW_STATUS_OK ? spw_slice_data(&frames[1]) : NULL;
    for (size_t i = 0; status == SPW_STATUS_OK && i < BODY_BYTES; i++)
        if (memory[i] != byte_at(round, i))
            status = refuse(error, "a body arrived as another one");
    spw_payload_free(payload);
    return status;
}

/* ---- the two processes ---- */

static void print_ways(const peer *self, const char *who)
{
    spw_figures figures;
    spw_context_read_figures(self->context, &figures);
    uint64_t by_host = figures.host_bytes_by_address +
                       figures.host_bytes_by_descriptor + figures.host_bytes_by_stream;
    printf("%s received %llu MiB, of which %llu MiB from memory to memory\n", who,
           (unsigned long long)(figures.bytes_received >> 20),
           (unsigned long long)(by_host >> 20));
}

static spw_status listening(peer *self, int port, spw_error *error)
{
    spw_status status = peer_accept(self, port, error);
    if (status == SPW_STATUS_OK && !is_tcp_only)
        status = meet(self, error);
    for (unsigned round = 0; status == SPW_STATUS_OK && round < ROUNDS; round++) {
        status = send_body(self, round, error);
        if (status == SPW_STATUS_OK)
            status = receive_body(self, round + 100, error);
    }
    if (status == SPW_STATUS_OK)
        print_ways(self, "The process that listened");
    return status;
}

static spw_status connecting(peer *self, int port, spw_error *error)
{
    spw_status status = peer_connect(self, port, error);
    if (status == SPW_STATUS_OK && !is_tcp_only)
        status = meet(self, error);
    for (unsigned round = 0; status == SPW_STATUS_OK && round < ROUNDS; round++) {
        status = receive_body(self, round, error);
        if (status == SPW_STATUS_OK)
            status = send_body(self, round + 100, error);
    }
    /* What was sent may still be here. */
    if (status == SPW_STATUS_OK)
        status = peer_flush(self, error);
    if (status == SPW_STATUS_OK)
        print_ways(self, "The process that connected");
    return status;
}

int main(int argc, char **argv)
{
    is_tcp_only = argc > 1 && strcmp(argv[1], "--tcp") == 0;
    return run_two(listening, connecting);
}
