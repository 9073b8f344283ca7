/* Fuzz target: what the other end of a side channel may send, to a receiver that stands
 * in the middle of a message with bodies by reference, and to a sender that has
 * announced some. The first byte says which, and how; after it come packets: a length
 * in two bytes, what to pass with it in one (a descriptor that is sealed memory, one
 * that is not, or none), and so many bytes. A packet's head is completed with the
 * kind's mark, which a fuzzer would not find. What is held against both: they end or go
 * on, and whichever it is, everything charged and every descriptor is given back. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framing/message_writer.h"
#include "memory/byte_reader.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"
#include "spillway/spillway.h"
#include "transport/host_receiver.h"
#include "transport/host_sender.h"

enum {
    IS_SENDER = 1 << 0,
    ALL_BY_DESCRIPTOR = 1 << 1, /* the bodies have no address */
    NOT_GREETED = 1 << 2,       /* the hello, too, comes from the input */
    BODY_BYTES = 700
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static uint8_t secret[SPW__HOST_SECRET_BYTES] = "what the receiver finds there";
static uint8_t body[BODY_BYTES] = "what is sent by address";

/* Where senders meet us, once for all runs. */
static char path[SPW__UNIX_PATH_BYTES];
static int listening = -1;

static void remove_path(void)
{
    *strrchr(path, '/') = '\0';
    char socket[SPW__UNIX_PATH_BYTES + 8];
    snprintf(socket, sizeof socket, "%s/socket", path);
    unlink(socket);
    rmdir(path);
}

static void listen_once(void)
{
    if (listening >= 0)
        return;
    char directory[] = "/tmp/spw-fuzz-XXXXXX";
    require(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/socket", directory);
    listening = spw__unix_socket_listen(path, 4);
    require(listening >= 0);
    atexit(remove_path);
}

/* Send one packet of the input. Returns: false at its end. */
static bool send_next(int raw, spw__byte_reader *input)
{
    static const uint8_t MARK[7] = "SPWHOST";
    uint64_t length, passed;
    if (!spw__byte_reader_le(input, 2, &length) ||
        !spw__byte_reader_le(input, 1, &passed))
        return false;
    uint8_t data[2048];
    size_t left = (size_t)(input->end - input->next);
    size_t size = length < left ? (size_t)length : left;
    if (size > sizeof data)
        size = sizeof data;
    memcpy(data, input->next, size);
    require(spw__byte_reader_skip(input, size));
    if (size >= 8 && (passed & 128) == 0)
        memcpy(data + 1, MARK, sizeof MARK);
    int descriptor = -1;
    if (passed % 4 > 0) {
        descriptor = spw__shared_memory_create();
        require(descriptor >= 0);
        require(spw__shared_memory_fill(descriptor, 0, body,
                                        passed % 4 == 3 ? 10 : BODY_BYTES) == 0);
        if (passed % 4 > 1)
            require(spw__shared_memory_seal(descriptor) == 0);
    }
    struct iovec piece = {data, size};
    /* The other end may have hung up, or have enough in its queue. */
    (void)!spw__unix_socket_send(raw, &piece, 1, descriptor);
    if (descriptor >= 0)
        spw__shared_memory_close(descriptor);
    return true;
}

static void say_hello(int raw)
{
    uint8_t data[SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES +
                 SPW__HOST_SECRET_BYTES] = {0};
    spw__host_packet_put(&(spw__host_packet){.kind = SPW__HOST_HELLO,
                                             .epoch = SPW__HOST_VERSION,
                                             .place = (uintptr_t)secret},
                         data);
    memcpy(data + SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES, secret, sizeof secret);
    struct iovec piece = {data, sizeof data};
    require(spw__unix_socket_send(raw, &piece, 1, -1) == (ssize_t)sizeof data);
}

/* A reader that stands at the first of three bodies by reference. */
static spw__message_reader *reader_at_body(spw_context *context, bool has_addresses)
{
    uint64_t words[2 + 2 * 3], place = has_addresses ? (uintptr_t)body : 1;
    words[0] = ((uint64_t)1 << 63) + 8 + 16 * 3;
    words[1] = 3;
    for (int i = 0; i < 3; i++) {
        words[2 + i] = BODY_BYTES;
        words[5 + i] = place;
    }
    spw__message_reader *reader;
    size_t consumed;
    require(spw__message_reader_create(context, spw_sink_heap(context), &reader,
                                       NULL) == SPW_STATUS_OK);
    spw__message_reader_allow_references(reader);
    require(spw__message_reader_feed(reader, words, sizeof words, &consumed, NULL) ==
            SPW_STATUS_OK);
    require(spw__message_reader_is_remote(reader));
    return reader;
}

/* Bring what can be brought. Returns: whether it goes on. */
static bool fetch(spw__host_receiver *receiver, spw__message_reader *reader)
{
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK && spw__message_reader_is_remote(reader))
        status = spw__host_receiver_fetch(receiver, reader, 300, NULL, NULL);
    if (status == SPW_STATUS_OK) {
        require(spw__message_reader_is_whole(reader));
        spw_payload_free(spw__message_reader_take(reader));
    }
    return status == SPW_STATUS_AGAIN;
}

static void run_receiver(spw_context *context, unsigned how, spw__byte_reader *input)
{
    int pair[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                       pair) == 0);
    spw__host_receiver *receiver;
    spw__message_reader *reader = reader_at_body(context, !(how & ALL_BY_DESCRIPTOR));
    require(spw__host_receiver_create(context, pair[0], &receiver, NULL) ==
            SPW_STATUS_OK);
    if (!(how & NOT_GREETED))
        say_hello(pair[1]);
    else
        (void)send_next(pair[1], input);
    spw_status status = spw__host_receiver_drive(receiver, NULL);
    bool goes_on = status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN;
    if (goes_on && spw__host_receiver_nonce(receiver) != NULL)
        goes_on =
            spw__host_receiver_admit(receiver,
                                     how & ALL_BY_DESCRIPTOR ? SPW__HOST_BY_DESCRIPTOR
                                                             : SPW__HOST_BY_ADDRESS,
                                     NULL) == SPW_STATUS_OK;
    else
        goes_on = false;
    while (goes_on && send_next(pair[1], input))
        goes_on = fetch(receiver, reader);
    close(pair[1]);
    if (goes_on)
        require(!fetch(receiver, reader));
    spw__message_reader_free(reader);
    spw__host_receiver_free(receiver);
}

static void announce(spw_context *context, spw__host_sender *sender)
{
    spw_payload *payload;
    require(spw_payload_create(context, 2, &payload, NULL) == SPW_STATUS_OK);
    for (int i = 0; i < 2; i++) {
        spw_slice slice = {
            .kind = SPW_MEMORY_HOST, .size = BODY_BYTES, .plain_size = BODY_BYTES};
        require(spw_buffer_create(context, BODY_BYTES, SPW_CHARGE_HELD, &slice.buffer,
                                  NULL) == SPW_STATUS_OK);
        memset(spw_buffer_data(slice.buffer), 7, BODY_BYTES);
        require(spw_payload_append(payload, &slice, NULL) == SPW_STATUS_OK);
    }
    spw__message_writer *writer;
    spw__host_announcement *announcement;
    if (!spw__host_sender_wants(sender, payload)) {
        spw_payload_free(payload);
        return;
    }
    require(spw__host_sender_write(sender, payload, &writer, &announcement, NULL) ==
            SPW_STATUS_OK);
    spw__host_sender_announce(sender, announcement);
    spw__message_writer_free(writer);
}

static void run_sender(spw_context *context, unsigned how, spw__byte_reader *input)
{
    listen_once();
    spw__host_sender_options options = {.path = path,
                                        .from_bytes = BODY_BYTES,
                                        .uses_descriptors = how & ALL_BY_DESCRIPTOR};
    spw__host_sender *sender;
    require(spw__host_sender_create(context, &options, &sender, NULL) == SPW_STATUS_OK);
    int raw = spw__unix_socket_accept(listening);
    require(raw >= 0);
    bool goes_on = spw__host_sender_drive(sender, NULL) == SPW_STATUS_OK;
    if (!(how & NOT_GREETED)) {
        uint8_t data[SPW__HOST_HEAD_BYTES];
        struct iovec piece = {data, sizeof data};
        spw__host_packet_put(&(spw__host_packet){.kind = SPW__HOST_WAY,
                                                 .epoch = 1,
                                                 .way = SPW__HOST_BY_ADDRESS},
                             data);
        require(spw__unix_socket_send(raw, &piece, 1, -1) == (ssize_t)sizeof data);
        require(spw__host_sender_drive(sender, NULL) == SPW_STATUS_OK);
    }
    while (goes_on && send_next(raw, input)) {
        goes_on = spw__host_sender_drive(sender, NULL) == SPW_STATUS_OK;
        if (goes_on)
            announce(context, sender);
        spw__host_announcement_free(spw__host_sender_take_done(sender));
    }
    spw__unix_socket_close(raw);
    bool has_announced = spw__host_sender_announced_bytes(sender) > 0;
    spw_status status = spw__host_sender_drive(sender, NULL);
    require(!has_announced || status != SPW_STATUS_OK);
    spw__host_sender_free(sender);
}

/* Returns: the sum of the lowest numbers that descriptors would get, which one more
 * that is open, whichever it is, changes. */
static int lowest_free(void)
{
    int some[16], sum = 0;
    for (int i = 0; i < 16; i++) {
        some[i] = dup(listening);
        sum += some[i];
    }
    for (int i = 0; i < 16; i++)
        close(some[i]);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    spw_budget *budget;
    require(spw_budget_create(0, &budget, NULL) == SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    spw_context *context;
    require(spw_context_create(&options, &context, NULL) == SPW_STATUS_OK);
    listen_once();
    int before = lowest_free();

    spw__byte_reader input = spw__byte_reader_over(data + 1, size - 1);
    if (data[0] & IS_SENDER)
        run_sender(context, data[0], &input);
    else
        run_receiver(context, data[0], &input);

    require(lowest_free() == before);
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        require(figures.used_bytes[i] == 0);
    spw_context_unref(context);
    spw_budget_free(budget);
    return 0;
}
