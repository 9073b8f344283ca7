/* Giving bodies that the receiver may not read itself: filled into a memfd each, or as
 * bytes of the side channel where that cannot be either. Bytes that the sender changes
 * its mind about in the middle of a body go on where the receiver is: it is at offset.
 */
#include <errno.h>

#include "context/error.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"
#include "transport/host_sender_state.h"

/* One call fills and sends no more than this, so that the owner gets its turn. */
static const uint64_t TURN_BYTES = (uint64_t)16 << 20;
/* Memfds that were passed and not acknowledged hold memory twice: no more is begun
 * above this. More than what a receiver takes before it says so (host_receiver.c). */
static const uint64_t WINDOW_BYTES = (uint64_t)64 << 20;
void spw__host_sender_drop_memfd(spw__host_sender *sender)
{
    if (sender->memfd >= 0)
        spw__shared_memory_close(sender->memfd);
    sender->memfd = -1;
    sender->filled = 0;
}

void spw__host_sender_give_from(spw__host_sender *sender, uint64_t number,
                                uint64_t offset)
{
    spw__host_sender_drop_memfd(sender);
    sender->is_giving = true;
    sender->given = sender->given_from = number;
    sender->offset = offset;
    sender->in_flight = 0;
}

bool spw__host_sender_has_to_give(const spw__host_sender *sender)
{
    return sender->is_giving && sender->given < sender->next_number &&
           (sender->way == SPW__HOST_BY_STREAM || sender->in_flight < WINDOW_BYTES);
}

/* Whatever comes goes as bytes from now on; new messages go in the stream. */
static void give_up_descriptors(spw__host_sender *sender, int answer)
{
    spw__host_sender_drop_memfd(sender);
    sender->way = SPW__HOST_BY_STREAM;
    (void)spw__error_set(&sender->reason, SPW_STATUS_UNSUPPORTED, -answer,
                         "no memory can be passed to the peer");
}

/* Fill more of the memfd of a body. Returns: 1 once it is full and sealed. */
static int fill(spw__host_sender *sender, const spw__host_body *given, uint64_t *turn)
{
    if (sender->memfd < 0)
        sender->memfd = spw__shared_memory_create();
    if (sender->memfd < 0)
        return sender->memfd;
    uint64_t left = given->size - sender->filled;
    uint64_t step = left < *turn ? left : *turn;
    int answer = spw__shared_memory_fill(sender->memfd, sender->filled,
                                         given->data + sender->filled, (size_t)step);
    if (answer < 0)
        return answer;
    *turn -= step;
    sender->filled += step;
    if (sender->filled < given->size)
        return 0;
    answer = spw__shared_memory_seal(sender->memfd);
    return answer < 0 ? answer : 1;
}

static int give_descriptor(spw__host_sender *sender, const spw__host_body *given,
                           uint64_t *turn)
{
    int answer = sender->memfd >= 0 && sender->filled == given->size
                     ? 1
                     : fill(sender, given, turn);
    if (answer == 1) {
        spw__host_packet packet = {.kind = SPW__HOST_DESCRIPTOR,
                                   .epoch = sender->epoch,
                                   .number = sender->given,
                                   .place = given->size};
        answer = spw__host_sender_say(sender, &packet, NULL, 0, sender->memfd);
        if (answer == -EAGAIN || answer == -EPIPE || answer == -ECONNRESET)
            return answer;
        if (answer > 0) {
            sender->in_flight += given->size;
            sender->given++;
            sender->offset = 0;
            spw__host_sender_drop_memfd(sender);
        }
    }
    if (answer < 0)
        give_up_descriptors(sender, answer);
    return 0;
}

static int give_bytes(spw__host_sender *sender, const spw__host_body *given,
                      uint64_t *turn)
{
    uint64_t left = given->size - sender->offset;
    size_t step =
        left < SPW__HOST_BODY_MAX_BYTES ? (size_t)left : SPW__HOST_BODY_MAX_BYTES;
    struct iovec piece = {(char *)given->data + sender->offset, step};
    spw__host_packet packet = {.kind = SPW__HOST_BYTES,
                               .epoch = sender->epoch,
                               .number = sender->given,
                               .place = sender->offset};
    int answer = spw__host_sender_say(sender, &packet, &piece, 1, -1);
    if (answer < 0)
        return answer;
    *turn -= step < *turn ? step : *turn;
    sender->offset += step;
    if (step == left) {
        sender->given++;
        sender->offset = 0;
    }
    return 0;
}

int spw__host_sender_give(spw__host_sender *sender)
{
    uint64_t turn = TURN_BYTES;
    int answer = 0;
    while (answer == 0 && turn > 0 && spw__host_sender_has_to_give(sender)) {
        const spw__host_body *given = spw__host_sender_body(sender, sender->given);
        answer = sender->way == SPW__HOST_BY_DESCRIPTOR
                     ? give_descriptor(sender, given, &turn)
                     : give_bytes(sender, given, &turn);
    }
    return answer;
}
