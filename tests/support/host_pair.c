#include "host_pair.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "payloads.h"
#include "platform/unix_socket.h"

static spw_status tell(spw_error *error, const char *what, int answer)
{
    if (error != NULL) {
        *error = (spw_error){.status = SPW_STATUS_IO, .os_errno = -answer};
        strncpy(error->message, what, sizeof error->message - 1);
    }
    return SPW_STATUS_IO;
}

static spw_status open_place(spw_context *context, host_pair *pair, spw_error *error)
{
    *pair = (host_pair){.context = context, .listening = -1, .accepted = -1};
    private_place_open(&pair->place);
    pair->listening = spw__unix_socket_listen(pair->place.path, 4);
    if (pair->listening < 0)
        return tell(error, "no listener", pair->listening);
    spw_status status = spw__message_reader_create(context, spw_sink_heap(context),
                                                   &pair->reader, error);
    if (status == SPW_STATUS_OK)
        spw__message_reader_allow_references(pair->reader);
    return status;
}

static spw_status accept_one(host_pair *pair, spw_error *error)
{
    int answer;
    do
        answer = spw__unix_socket_accept(pair->listening);
    while (answer == -EAGAIN);
    if (answer < 0)
        return tell(error, "not accepted", answer);
    pair->accepted = answer;
    return SPW_STATUS_OK;
}

static spw_status make_sender(host_pair *pair, bool uses_descriptors, spw_error *error)
{
    spw__host_sender_options options = {.path = pair->place.path,
                                        .from_bytes = HOST_PAIR_FROM_BYTES,
                                        .uses_descriptors = uses_descriptors};
    memcpy(options.nonce, HOST_PAIR_NONCE, sizeof options.nonce);
    return spw__host_sender_create(pair->context, &options, &pair->sender, error);
}

static spw_status make_receiver(host_pair *pair, spw_error *error)
{
    spw_status status = accept_one(pair, error);
    if (status == SPW_STATUS_OK)
        status = spw__host_receiver_create(pair->context, pair->accepted,
                                           &pair->receiver, error);
    if (status == SPW_STATUS_OK)
        pair->accepted = -1;
    return status;
}

static short events_of(unsigned interest)
{
    return (short)((interest & SPW__HOST_READ ? POLLIN : 0) |
                   (interest & SPW__HOST_WRITE ? POLLOUT : 0));
}

/* Wait until what one of them waits for has come, and drive that one. */
static spw_status step(host_pair *pair, spw_error *error)
{
    struct pollfd watched[2] = {{.fd = -1}, {.fd = -1}};
    if (pair->sender != NULL && spw__host_sender_interest(pair->sender) != 0)
        watched[0] =
            (struct pollfd){spw__host_sender_descriptor(pair->sender),
                            events_of(spw__host_sender_interest(pair->sender)), 0};
    if (pair->receiver != NULL && spw__host_receiver_interest(pair->receiver) != 0)
        watched[1] =
            (struct pollfd){spw__host_receiver_descriptor(pair->receiver),
                            events_of(spw__host_receiver_interest(pair->receiver)), 0};
    if (poll(watched, 2, 10000) < 1)
        fail_msg("neither end would ever be woken");
    spw_status status = SPW_STATUS_OK;
    if (watched[0].revents != 0)
        status = spw__host_sender_drive(pair->sender, error);
    if (status == SPW_STATUS_OK && watched[1].revents != 0)
        status = spw__host_receiver_drive(pair->receiver, error);
    return status == SPW_STATUS_AGAIN ? SPW_STATUS_OK : status;
}

spw_status host_pair_open(spw_context *context, bool uses_descriptors,
                          host_pair *ret_pair, spw_error *error)
{
    spw_status status = open_place(context, ret_pair, error);
    if (status == SPW_STATUS_OK)
        status = make_sender(ret_pair, uses_descriptors, error);
    if (status == SPW_STATUS_OK)
        status = make_receiver(ret_pair, error);
    while (status == SPW_STATUS_OK &&
           spw__host_receiver_nonce(ret_pair->receiver) == NULL) {
        status = step(ret_pair, error);
        if (status == SPW_STATUS_OK &&
            spw__host_sender_way(ret_pair->sender) == SPW__HOST_BY_STREAM) {
            *error = *spw__host_sender_reason(ret_pair->sender);
            status = error->status;
        }
    }
    return status;
}

spw_status host_pair_meet(host_pair *pair, spw__host_way best, spw_error *error)
{
    assert_memory_equal(spw__host_receiver_nonce(pair->receiver), HOST_PAIR_NONCE,
                        SPW__HOST_NONCE_BYTES);
    spw_status status = spw__host_receiver_admit(pair->receiver, best, error);
    while (status == SPW_STATUS_OK &&
           spw__host_sender_way(pair->sender) == SPW__HOST_MEETING)
        status = step(pair, error);
    return status;
}

spw_status host_pair_open_raw_sender(spw_context *context, host_pair *ret_pair,
                                     int *ret_raw, spw_error *error)
{
    spw_status status = open_place(context, ret_pair, error);
    if (status == SPW_STATUS_OK) {
        *ret_raw = spw__unix_socket_connect(ret_pair->place.path);
        status = make_receiver(ret_pair, error);
    }
    return status;
}

spw_status host_pair_open_raw_receiver(spw_context *context, host_pair *ret_pair,
                                       int *ret_raw, spw_error *error)
{
    spw_status status = open_place(context, ret_pair, error);
    if (status == SPW_STATUS_OK)
        status = make_sender(ret_pair, true, error);
    if (status == SPW_STATUS_OK)
        status = accept_one(ret_pair, error);
    if (status == SPW_STATUS_OK) {
        *ret_raw = ret_pair->accepted;
        ret_pair->accepted = -1;
    }
    return status;
}

void host_pair_raw_send(int raw, const spw__host_packet *packet, const void *behind,
                        size_t size, int passed)
{
    uint8_t head[SPW__HOST_HEAD_BYTES];
    struct iovec pieces[2] = {{head, sizeof head}, {(void *)behind, size}};
    spw__host_packet_put(packet, head);
    assert_int_equal(spw__unix_socket_send(raw, pieces, 2, passed), sizeof head + size);
}

bool host_pair_raw_receive(int raw, spw__host_packet *ret_packet)
{
    uint8_t data[SPW__HOST_HEAD_BYTES + SPW__HOST_BODY_MAX_BYTES];
    struct iovec piece = {data, sizeof data};
    int passed = -1;
    bool is_lost;
    ssize_t size = spw__unix_socket_receive(raw, &piece, 1, &passed, &is_lost);
    if (passed >= 0)
        spw__unix_socket_close(passed);
    if (size <= 0)
        return false;
    assert_true(spw__host_packet_get(data, (size_t)size, ret_packet));
    return true;
}

void host_pair_close(host_pair *pair)
{
    if (pair->context == NULL)
        return;
    spw__host_sender_free(pair->sender);
    spw__host_receiver_free(pair->receiver);
    spw__message_reader_free(pair->reader);
    if (pair->accepted >= 0)
        spw__unix_socket_close(pair->accepted);
    if (pair->listening >= 0)
        spw__unix_socket_close(pair->listening);
    private_place_close(&pair->place);
    wire_clear(&pair->stream);
    *pair = (host_pair){.context = NULL};
}

static void put_into_stream(host_pair *pair, spw__message_writer *writer)
{
    struct iovec pieces[64];
    size_t count;
    while ((count = spw__message_writer_pieces(writer, pieces, 64, SIZE_MAX)) > 0)
        for (size_t i = 0; i < count; i++) {
            wire_put(&pair->stream, pieces[i].iov_base, pieces[i].iov_len);
            spw__message_writer_advance(writer, pieces[i].iov_len);
        }
    spw__message_writer_free(writer);
}

spw_status host_pair_send(host_pair *pair, spw_payload *payload, spw_error *error)
{
    spw__message_writer *writer;
    spw__host_announcement *announcement = NULL;
    spw_status status =
        spw__host_sender_wants(pair->sender, payload)
            ? spw__host_sender_write(pair->sender, payload, &writer, &announcement,
                                     error)
            : spw__message_writer_create(pair->context, payload, &writer, error);
    if (status != SPW_STATUS_OK) {
        spw_payload_free(payload);
        return status;
    }
    if (announcement != NULL)
        spw__host_sender_announce(pair->sender, announcement);
    put_into_stream(pair, writer);
    return SPW_STATUS_OK;
}

spw_status host_pair_send_made(host_pair *pair, const size_t *sizes, size_t count,
                               unsigned seed, spw_error *error)
{
    spw_payload *payload;
    spw_status status =
        payload_make(pair->context, sizes, count, seed, &payload, error);
    return status == SPW_STATUS_OK ? host_pair_send(pair, payload, error) : status;
}

static spw_status feed(host_pair *pair, spw_error *error)
{
    size_t consumed, left = pair->stream.size - pair->place_in_stream;
    if (left == 0)
        fail_msg("the stream has ended in the middle of a message");
    spw_status status = spw__message_reader_feed(
        pair->reader, pair->stream.bytes + pair->place_in_stream, left, &consumed,
        error);
    if (status == SPW_STATUS_OK)
        pair->place_in_stream += consumed;
    return status;
}

spw_status host_pair_receive(host_pair *pair, spw_payload **ret_payload,
                             spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK && !spw__message_reader_is_whole(pair->reader)) {
        if (!spw__message_reader_is_remote(pair->reader)) {
            status = feed(pair, error);
            continue;
        }
        status = spw__host_receiver_fetch(pair->receiver, pair->reader,
                                          pair->limit > 0 ? pair->limit : SIZE_MAX,
                                          pair->helper, error);
        if (status == SPW_STATUS_AGAIN)
            status = step(pair, error);
    }
    if (status == SPW_STATUS_OK)
        *ret_payload = spw__message_reader_take(pair->reader);
    return status;
}

spw_status host_pair_receive_made(host_pair *pair, const size_t *sizes, size_t count,
                                  unsigned seed, spw_error *error)
{
    spw_payload *payload;
    spw_status status = host_pair_receive(pair, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    payload_assert(payload, sizes, count, seed);
    spw_payload_free(payload);
    return SPW_STATUS_OK;
}

spw_status host_pair_settle(host_pair *pair, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK &&
           spw__host_sender_announced_bytes(pair->sender) > 0)
        status = step(pair, error);
    spw__host_announcement_free(spw__host_sender_take_done(pair->sender));
    return status;
}

uint64_t host_pair_bytes_by(const host_pair *pair, spw__host_way way)
{
    return spw__host_receiver_bytes(pair->receiver, way);
}
