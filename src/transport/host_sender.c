/* The sender's end: it announces, and hears how far the receiver has got and by which
 * way it wants what comes next. The invariants are in host_sender_state.h. */
#include "transport/host_sender.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"
#include "transport/host_sender_state.h"

/* Packets that one turn hears, however many come. */
enum { HEAR_MAX = 64 };

static spw_status connect_there(const char *path, int *ret_descriptor, spw_error *error)
{
    int descriptor = spw__unix_socket_connect(path);
    if (descriptor >= 0) {
        *ret_descriptor = descriptor;
        return SPW_STATUS_OK;
    }
    spw_status status = SPW_STATUS_IO;
    if (descriptor == -EAGAIN)
        status = SPW_STATUS_AGAIN;
    else if (descriptor == -ENOENT || descriptor == -ECONNREFUSED ||
             descriptor == -EPROTOTYPE || descriptor == -EACCES ||
             descriptor == -ENAMETOOLONG || descriptor == -ENOTDIR)
        status = SPW_STATUS_REFUSED;
    return spw__error_set(error, status, -descriptor, "cannot meet the peer at %s",
                          path);
}

spw_status spw__host_sender_create(spw_context *context,
                                   const spw__host_sender_options *options,
                                   spw__host_sender **ret_sender, spw_error *error)
{
    spw__host_sender *sender =
        spw__allocate(context, sizeof *sender, _Alignof(spw__host_sender));
    if (sender == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a side channel");
    *sender = (spw__host_sender){
        .context = context,
        .from_bytes =
            options->from_bytes > 0 ? options->from_bytes : SPW__HOST_FROM_BYTES,
        .uses_descriptors = options->uses_descriptors,
        .descriptor = -1,
        .owner = spw__unix_socket_owner(),
        .peer = {.descriptor = -1},
        .memfd = -1,
    };
    memcpy(sender->nonce, options->nonce, sizeof sender->nonce);
    spw_status status = connect_there(options->path, &sender->descriptor, error);
    if (status != SPW_STATUS_OK)
        goto fail;
    int answer = spw__random_bytes(sender->secret, sizeof sender->secret);
    if (answer == 0)
        answer = spw__peer_process_identify(sender->descriptor, &sender->peer);
    if (answer < 0) {
        status = spw__error_set(error, SPW_STATUS_IO, -answer,
                                "cannot find out who is at %s", options->path);
        goto fail;
    }
    /* Where this is refused, reading is, and the receiver says so. We need no
     * permission of our own, and have but one to give. */
    sender->is_allowed = sender->peer.pid > 0 && sender->peer.pid != sender->owner &&
                         sender->peer.uid == spw__peer_process_own_user() &&
                         spw__peer_process_allow(sender->peer.pid) == 0;
    *ret_sender = sender;
    return SPW_STATUS_OK;
fail:
    spw__host_sender_free(sender);
    return status;
}

/* Nothing moves any more, and the other end sees that. */
static void hang_up(spw__host_sender *sender)
{
    sender->is_over = true;
    sender->way = SPW__HOST_BY_STREAM;
    if (sender->descriptor >= 0)
        spw__unix_socket_shutdown(sender->descriptor, sender->owner);
    /* The second thing by which a reader that is late finds out. */
    memset(sender->secret, 0, sizeof sender->secret);
    spw__host_sender_drop_memfd(sender);
}

/* The first announcement has been taken, or never will be. */
static void retire_first(spw__host_sender *sender)
{
    spw__host_announcement *announcement = sender->first;
    sender->first = announcement->next;
    if (sender->first == NULL)
        sender->last = NULL;
    if (sender->at == announcement)
        sender->at = NULL;
    sender->announced_bytes -= announcement->bytes;
    spw__host_announcement_uncharge(announcement);
    announcement->next = sender->done;
    sender->done = announcement;
}

void spw__host_sender_shutdown(spw__host_sender *sender)
{
    hang_up(sender);
    while (sender->first != NULL)
        retire_first(sender);
}

void spw__host_sender_let_go(spw__host_sender *sender)
{
    spw__host_sender_shutdown(sender);
    if (sender->descriptor >= 0)
        spw__unix_socket_close(sender->descriptor);
    sender->descriptor = -1;
}

void spw__host_sender_free(spw__host_sender *sender)
{
    if (sender == NULL)
        return;
    spw__host_sender_let_go(sender);
    spw__host_announcement_free(spw__host_sender_take_done(sender));
    if (sender->is_allowed)
        spw__peer_process_disallow(sender->peer.pid);
    spw__release(sender->context, sender, sizeof *sender, _Alignof(spw__host_sender));
}

int spw__host_sender_descriptor(const spw__host_sender *sender)
{
    return sender->descriptor;
}

unsigned spw__host_sender_interest(const spw__host_sender *sender)
{
    if (sender->is_over)
        return 0;
    bool has_to_write = !sender->is_greeted || spw__host_sender_has_to_give(sender);
    return has_to_write ? SPW__HOST_READ | SPW__HOST_WRITE : SPW__HOST_READ;
}

spw__host_way spw__host_sender_way(const spw__host_sender *sender)
{
    return sender->way;
}

const spw_error *spw__host_sender_reason(const spw__host_sender *sender)
{
    return &sender->reason;
}

/* What is announced can be had no more; or, if there is nothing, there is just no link.
 */
static spw_status end(spw__host_sender *sender, const spw_error *why, spw_error *error)
{
    if (!sender->is_over) {
        sender->reason = *why;
        hang_up(sender);
    }
    if (sender->first == NULL)
        return SPW_STATUS_OK;
    if (error != NULL)
        *error = sender->reason;
    return sender->reason.status;
}

static spw_status break_off(int answer, spw_error *error)
{
    if (answer == -EPIPE || answer == -ECONNRESET || answer == -ENOTCONN)
        return spw__error_set(error, SPW_STATUS_PEER_CLOSED, -answer,
                              "the peer has closed the side channel");
    return spw__error_set(error, SPW_STATUS_IO, -answer, "the side channel failed");
}

static spw_status tell_nonsense(const spw__host_packet *packet, spw_error *error)
{
    return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                          "the side channel's packet of kind %" PRIu64
                          ", epoch %" PRIu64 ", number %" PRIu64 ", place %" PRIu64
                          " makes no sense",
                          packet->kind, packet->epoch, packet->number, packet->place);
}

static spw_status hear_way(spw__host_sender *sender, const spw__host_packet *packet,
                           spw_error *error)
{
    bool is_whole = packet->number == sender->next_number;
    if (packet->epoch != sender->epoch + 1 || packet->way <= (uint32_t)sender->said ||
        packet->way > SPW__HOST_BY_STREAM || packet->number < sender->taken ||
        packet->number > sender->next_number ||
        packet->place >=
            (is_whole ? 1 : spw__host_sender_body(sender, packet->number)->size))
        return tell_nonsense(packet, error);
    sender->epoch = packet->epoch;
    sender->way = sender->said = (spw__host_way)packet->way;
    if (sender->way == SPW__HOST_BY_ADDRESS)
        return SPW_STATUS_OK;
    (void)spw__error_set(&sender->reason, SPW_STATUS_UNSUPPORTED, (int)packet->os_errno,
                         sender->way == SPW__HOST_BY_DESCRIPTOR
                             ? "the peer cannot read our memory"
                             : "the peer takes no descriptors of ours");
    if (!sender->uses_descriptors)
        sender->way = SPW__HOST_BY_STREAM;
    spw__host_sender_give_from(sender, packet->number, packet->place);
    return SPW_STATUS_OK;
}

static spw_status hear_taken(spw__host_sender *sender, const spw__host_packet *packet,
                             spw_error *error)
{
    uint64_t limit = sender->is_giving ? sender->given : sender->next_number;
    if (packet->epoch > sender->epoch || packet->number < sender->taken ||
        packet->number > limit)
        return tell_nonsense(packet, error);
    for (uint64_t n = sender->taken; n < packet->number; n++)
        if (sender->is_giving && n >= sender->given_from &&
            sender->way == SPW__HOST_BY_DESCRIPTOR)
            sender->in_flight -= spw__host_sender_body(sender, n)->size;
    sender->taken = packet->number;
    while (sender->first != NULL &&
           sender->first->number + sender->first->count <= sender->taken)
        retire_first(sender);
    return SPW_STATUS_OK;
}

static spw_status hear(spw__host_sender *sender, spw_error *error)
{
    for (int i = 0; i < HEAR_MAX; i++) {
        uint8_t data[SPW__HOST_HEAD_BYTES];
        struct iovec piece = {data, sizeof data};
        spw__host_packet packet;
        int passed = -1;
        bool is_lost;
        ssize_t size =
            spw__unix_socket_receive(sender->descriptor, &piece, 1, &passed, &is_lost);
        if (size == -EAGAIN)
            return SPW_STATUS_OK;
        if (size <= 0)
            return break_off(size == 0 ? -EPIPE : (int)size, error);
        if (passed >= 0)
            spw__shared_memory_close(passed);
        spw_status status;
        if (!spw__host_packet_get(data, (size_t)size, &packet))
            status = spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                                    "what sits at the peer's path is none of ours");
        else if (packet.kind == SPW__HOST_WAY)
            status = hear_way(sender, &packet, error);
        else if (packet.kind == SPW__HOST_TAKEN)
            status = hear_taken(sender, &packet, error);
        else
            status = tell_nonsense(&packet, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    return SPW_STATUS_OK;
}

spw__host_body *spw__host_sender_body(spw__host_sender *sender, uint64_t number)
{
    if (sender->at == NULL || sender->at->number > number)
        sender->at = sender->first;
    while (number - sender->at->number >= sender->at->count)
        sender->at = sender->at->next;
    return &sender->at->bodies[number - sender->at->number];
}

/* Returns: the bytes of a packet, -EAGAIN, or why it could not be sent. */
int spw__host_sender_say(spw__host_sender *sender, const spw__host_packet *packet,
                         const struct iovec *behind, size_t count, int passed)
{
    uint8_t head[SPW__HOST_HEAD_BYTES];
    struct iovec pieces[3] = {{head, sizeof head}};
    spw__host_packet_put(packet, head);
    for (size_t i = 0; i < count; i++)
        pieces[1 + i] = behind[i];
    return (int)spw__unix_socket_send(sender->descriptor, pieces, 1 + count, passed);
}

static int greet(spw__host_sender *sender)
{
    struct iovec proof[2] = {{sender->nonce, sizeof sender->nonce},
                             {sender->secret, sizeof sender->secret}};
    spw__host_packet hello = {.kind = SPW__HOST_HELLO,
                              .epoch = SPW__HOST_VERSION,
                              .place = (uint64_t)(uintptr_t)sender->secret};
    int answer = spw__host_sender_say(sender, &hello, proof, 2, -1);
    sender->is_greeted = answer > 0;
    return answer;
}

spw_status spw__host_sender_drive(spw__host_sender *sender, spw_error *error)
{
    spw_error why;
    if (sender->is_over)
        return end(sender, &sender->reason, error);
    spw_status status = hear(sender, &why);
    int answer = 0;
    if (status == SPW_STATUS_OK && !sender->is_greeted)
        answer = greet(sender);
    if (status == SPW_STATUS_OK && answer >= 0)
        answer = spw__host_sender_give(sender);
    if (answer < 0 && answer != -EAGAIN)
        status = break_off(answer, &why);
    return status == SPW_STATUS_OK ? SPW_STATUS_OK : end(sender, &why, error);
}

bool spw__host_sender_has_given_up(const spw__host_sender *sender)
{
    bool is_chosen =
        sender->said == SPW__HOST_BY_DESCRIPTOR && !sender->uses_descriptors;
    return sender->way > sender->said && !is_chosen &&
           sender->reason.status != SPW_STATUS_PEER_CLOSED;
}

bool spw__host_sender_wants(const spw__host_sender *sender, const spw_payload *payload)
{
    spw__message_references references = {.from_bytes = sender->from_bytes};
    /* A forked child's memory is not the one that the receiver reads. */
    return (sender->way == SPW__HOST_BY_ADDRESS ||
            sender->way == SPW__HOST_BY_DESCRIPTOR) &&
           sender->owner == spw__unix_socket_owner() &&
           spw__host_announcement_count(payload, &references) > 0;
}

spw_status spw__host_sender_write(spw__host_sender *sender, spw_payload *payload,
                                  spw__message_writer **ret_writer,
                                  spw__host_announcement **ret_announcement,
                                  spw_error *error)
{
    spw__message_references references = {
        .from_bytes = sender->from_bytes,
        .by_descriptor = sender->way == SPW__HOST_BY_DESCRIPTOR,
    };
    spw__host_announcement *announcement;
    spw_status status = spw__host_announcement_create(
        sender->context, payload, &references, &announcement, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw__message_writer_create_referenced(sender->context, payload,
                                                   &references, ret_writer, error);
    if (status != SPW_STATUS_OK) {
        spw__host_announcement_free(announcement);
        return status;
    }
    *ret_announcement = announcement;
    return SPW_STATUS_OK;
}

void spw__host_sender_announce(spw__host_sender *sender,
                               spw__host_announcement *announcement)
{
    announcement->number = sender->next_number;
    sender->next_number += announcement->count;
    sender->announced_bytes += announcement->bytes;
    if (sender->last != NULL)
        sender->last->next = announcement;
    else
        sender->first = announcement;
    sender->last = announcement;
}

uint64_t spw__host_sender_announced_bytes(const spw__host_sender *sender)
{
    return sender->announced_bytes;
}

spw__host_announcement *spw__host_sender_take_done(spw__host_sender *sender)
{
    spw__host_announcement *done = sender->done;
    sender->done = NULL;
    return done;
}
