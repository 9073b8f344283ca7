/* How bodies come: read from the sender's memory as long as that is allowed, else taken
 * as the sender gives them. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"
#include "transport/host_receiver_state.h"

/* The sender hears of what was taken when a message has come whole: it wakes it up, and
 * before that it lets go of nothing. But what comes by descriptor is there twice until
 * it hears, so then also after so much: less than its window (host_sender_give.c). */
static const uint64_t TELL_BYTES = (uint64_t)32 << 20;
/* A smaller half is read by the time the second thread has woken up, or, on a machine
 * that is busy after all, long before (docs/decisions/0008-same-host.md). */
static const uint64_t HALF_FROM_BYTES = (uint64_t)4 << 20;
_Static_assert((int)SPW__HOST_BODY_MAX_BYTES <= (int)SPW__WINDOW_LEAST,
               "a packet may be larger than what there is room for");

/* Read it, half of it by helper when that is free. Returns: 0, or a negative errno. */
static int read_with(const spw__host_receiver *receiver, const spw__host_reading *whole,
                     const spw__host_helper *helper)
{
    spw__host_reading first = *whole, second = *whole;
    first.receiver = receiver;
    /* On a page, so that none is copied in two parts. */
    first.size = (whole->size / 2 + 4095) & ~(size_t)4095;
    bool is_shared = helper != NULL && whole->size >= 2 * HALF_FROM_BYTES;
    if (is_shared) {
        second = first;
        second.to = (char *)whole->to + first.size;
        second.address = whole->address + first.size;
        second.size = whole->size - first.size;
        is_shared = helper->start(helper->self, spw__host_receiver_read, &second);
    }
    if (!is_shared)
        first.size = whole->size;
    spw__host_receiver_read(&first);
    if (is_shared) {
        helper->join(helper->self);
        if (first.answer == 0)
            first.answer = second.answer;
    }
    return first.answer;
}

/* After a read: is the process still the one that we met, and have we still met it?
 * What was read before that is then what it had announced. */
static bool is_still_there(const spw__host_receiver *receiver)
{
    /* No load of what was read may come after these. */
    atomic_thread_fence(memory_order_seq_cst);
    return spw__peer_process_is_alive(&receiver->peer) == 1 &&
           spw__unix_socket_is_hung_up(receiver->descriptor) == 0;
}

/* size bytes of the body are there: the reader's, and of the way they came. */
static void count(spw__host_receiver *receiver, const spw__remote_range *range,
                  size_t size, spw__host_way way)
{
    receiver->bytes[way] += size;
    if (way == SPW__HOST_BY_DESCRIPTOR)
        receiver->untold_bytes += size;
    if (size < range->size)
        return;
    spw__host_receiver_drop_memfd(receiver);
    receiver->taken++;
    if (range->is_last || receiver->untold_bytes >= TELL_BYTES) {
        receiver->has_to_tell = true;
        receiver->untold_bytes = 0;
    }
}

static spw_status fetch_memory(spw__host_receiver *receiver,
                               spw__message_reader *reader,
                               const spw__remote_range *range, size_t size,
                               const spw__host_helper *helper, spw_error *error)
{
    spw__host_reading whole = {
        .to = range->to, .address = range->address, .size = size};
    if (range->address == 0)
        return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                              "a body without an address, where all have one");
    int answer = read_with(receiver, &whole, helper);
    if (!is_still_there(receiver))
        return spw__host_receiver_tell_gone(0, error);
    if (answer < 0) {
        spw__host_receiver_step_down(receiver, SPW__HOST_BY_DESCRIPTOR, answer,
                                     range->filled,
                                     "the sender's memory can no longer be read");
        return SPW_STATUS_OK;
    }
    count(receiver, range, size, SPW__HOST_BY_ADDRESS);
    return spw__message_reader_advance_remote(reader, size, error);
}

/* A mapping that stands for a frame, charged as what it replaces was. */
typedef struct mapping {
    spw_context *context; /* the buffer has a reference */
    void *data;           /* NULL: not mapped yet */
    size_t size;          /* that is charged */
} mapping;

/* Also of one that is half made. */
static void release_mapping(void *user)
{
    mapping *mapped = user;
    if (mapped->data != NULL)
        spw__shared_memory_unmap(mapped->data, mapped->size);
    spw_budget_release(spw_context_budget(mapped->context), SPW_CHARGE_HELD,
                       mapped->size);
    spw__release(mapped->context, mapped, sizeof *mapped, _Alignof(mapping));
}

/* Map the memfd as a buffer. Returns: NULL where the budget or the system refuses: it
 * is read then. Errors: NO_MEMORY. */
static spw_status map(const spw__host_receiver *receiver, size_t size,
                      spw_buffer **ret_buffer, spw_error *error)
{
    spw_context *context = receiver->context;
    spw_status status = SPW_STATUS_OK;
    *ret_buffer = NULL;
    mapping *mapped = spw__allocate(context, sizeof *mapped, _Alignof(mapping));
    if (mapped == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a mapping");
    *mapped = (mapping){.context = context};
    if (spw_budget_charge(spw_context_budget(context), SPW_CHARGE_HELD, size, NULL) !=
        SPW_STATUS_OK)
        goto fail;
    mapped->size = size;
    if (spw__shared_memory_map(receiver->memfd, size, &mapped->data) < 0)
        goto fail;
    status = spw_buffer_wrap(context, mapped->data, size, true, release_mapping, mapped,
                             ret_buffer, error);
    if (status == SPW_STATUS_OK)
        return SPW_STATUS_OK;
fail:
    release_mapping(mapped);
    return status;
}

/* There is a memfd for the body: adopt it, or read some of it. */
static spw_status fetch_memfd(spw__host_receiver *receiver, spw__message_reader *reader,
                              const spw__remote_range *range, size_t size,
                              spw_error *error)
{
    spw_buffer *buffer = NULL;
    if (range->may_adopt) {
        spw_status status = map(receiver, (size_t)range->size, &buffer, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    if (buffer != NULL) {
        count(receiver, range, (size_t)range->size, SPW__HOST_BY_DESCRIPTOR);
        return spw__message_reader_adopt(reader, buffer, error);
    }
    int answer =
        spw__shared_memory_read(receiver->memfd, range->filled, range->to, size);
    if (answer < 0) {
        spw__host_receiver_step_down(receiver, SPW__HOST_BY_STREAM, answer,
                                     range->filled,
                                     "what the sender passes cannot be read");
        return SPW_STATUS_OK;
    }
    count(receiver, range, size, SPW__HOST_BY_DESCRIPTOR);
    return spw__message_reader_advance_remote(reader, size, error);
}

static spw_status take_descriptor(spw__host_receiver *receiver,
                                  const spw__remote_range *range, int passed,
                                  bool is_lost, spw_error *error)
{
    if (is_lost) {
        spw__host_receiver_step_down(receiver, SPW__HOST_BY_STREAM, -EMFILE,
                                     range->filled,
                                     "what the sender passes cannot be taken");
        return SPW_STATUS_OK;
    }
    int answer = passed < 0
                     ? -EBADF
                     : spw__shared_memory_verify(passed, range->filled + range->size);
    if (answer < 0)
        return spw__error_set(error, SPW_STATUS_PROTOCOL, -answer,
                              "the sender passed what is no sealed memory of %" PRIu64
                              " bytes",
                              range->filled + range->size);
    receiver->memfd = passed;
    return SPW_STATUS_OK;
}

/* Take the next packet of the sender's: a descriptor, or bytes of the body, straight to
 * where they belong. */
static spw_status fetch_packet(spw__host_receiver *receiver,
                               spw__message_reader *reader,
                               const spw__remote_range *range, spw_error *error)
{
    uint8_t head[SPW__HOST_HEAD_BYTES] = {0};
    size_t room = range->room < SPW__HOST_BODY_MAX_BYTES ? (size_t)range->room
                                                         : SPW__HOST_BODY_MAX_BYTES;
    struct iovec pieces[2] = {{head, sizeof head}, {range->to, room}};
    spw__host_packet packet;
    int passed = -1;
    bool is_lost = false;
    ssize_t size =
        spw__unix_socket_receive(receiver->descriptor, pieces, 2, &passed, &is_lost);
    receiver->is_waiting = size == -EAGAIN;
    if (size == -EAGAIN)
        return spw__error_set(error, SPW_STATUS_AGAIN, 0, "the sender has yet to give");
    if (size <= 0 && size != -EMSGSIZE)
        return spw__host_receiver_tell_gone((int)size, error);
    spw_status status = SPW_STATUS_OK;
    size_t body = size > (ssize_t)sizeof head ? (size_t)size - sizeof head : 0;
    size_t there = size > 0 && size < (ssize_t)sizeof head ? (size_t)size : sizeof head;
    bool is_ours = spw__host_packet_get(head, there, &packet);
    /* What the sender gave before it heard of the last step down comes again. It may be
     * of a body that is larger than there is room for, and what it wrote there is
     * written again. */
    if (is_ours && packet.epoch < receiver->epoch)
        goto done;
    bool is_next =
        is_ours && packet.epoch == receiver->epoch && packet.number == receiver->taken;
    if (is_next && packet.kind == SPW__HOST_DESCRIPTOR && body == 0 &&
        packet.place == range->filled + range->size) {
        status = take_descriptor(receiver, range, passed, is_lost, error);
        if (receiver->memfd == passed)
            passed = -1;
    } else if (is_next && packet.kind == SPW__HOST_BYTES && body > 0 && passed < 0 &&
               packet.place == range->filled) {
        count(receiver, range, body, SPW__HOST_BY_STREAM);
        status = spw__message_reader_advance_remote(reader, body, error);
    } else {
        status = spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                                "a packet of the side channel is not what is next");
    }
done:
    if (passed >= 0)
        spw__shared_memory_close(passed);
    return status;
}

spw_status spw__host_receiver_fetch(spw__host_receiver *receiver,
                                    spw__message_reader *reader, size_t limit,
                                    const spw__host_helper *helper, spw_error *error)
{
    spw_error why;
    spw__remote_range range;
    assert(limit > 0);
    if (receiver->is_over)
        return spw__host_receiver_end(receiver, &receiver->reason, error);
    if (!spw__message_reader_remote(reader, &range))
        return SPW_STATUS_OK;
    size_t size = range.room < limit ? (size_t)range.room : limit;
    /* Before it waits for what the sender does only once it has heard. */
    spw_status status = spw__host_receiver_say(receiver, &why);
    if (status != SPW_STATUS_OK)
        return spw__host_receiver_end(receiver, &why, error);
    if (receiver->way == SPW__HOST_BY_ADDRESS)
        status = fetch_memory(receiver, reader, &range, size, helper, &why);
    else if (receiver->way == SPW__HOST_MEETING)
        status = spw__error_set(&why, SPW_STATUS_PROTOCOL, 0,
                                "a body by reference before the peers have met");
    else if (receiver->memfd >= 0)
        status = fetch_memfd(receiver, reader, &range, size, &why);
    else
        status = fetch_packet(receiver, reader, &range, &why);
    if (status == SPW_STATUS_OK)
        status = spw__host_receiver_say(receiver, &why);
    if (status == SPW_STATUS_OK)
        return SPW_STATUS_OK;
    if (status == SPW_STATUS_AGAIN)
        return spw__error_set(error, status, 0, "%s", why.message);
    if (status == SPW_STATUS_PEER_CLOSED)
        why.status = SPW_STATUS_TRUNCATED;
    return spw__host_receiver_end(receiver, &why, error);
}
