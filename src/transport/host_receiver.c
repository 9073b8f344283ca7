/* The receiver's end: it hears who the sender is, decides by which way bodies come, and
 * says how far it has got. The invariants are in host_receiver_state.h. */
#include "transport/host_receiver.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"
#include "transport/host_receiver_state.h"

spw_status spw__host_receiver_create(spw_context *context, int descriptor,
                                     spw__host_receiver **ret_receiver,
                                     spw_error *error)
{
    spw__host_receiver *receiver =
        spw__allocate(context, sizeof *receiver, _Alignof(spw__host_receiver));
    if (receiver == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a side channel");
    *receiver = (spw__host_receiver){
        .context = context,
        .descriptor = descriptor,
        .owner = spw__unix_socket_owner(),
        .peer = {.descriptor = -1},
        .memfd = -1,
    };
    *ret_receiver = receiver;
    return SPW_STATUS_OK;
}

void spw__host_receiver_drop_memfd(spw__host_receiver *receiver)
{
    if (receiver->memfd >= 0)
        spw__shared_memory_close(receiver->memfd);
    receiver->memfd = -1;
}

void spw__host_receiver_free(spw__host_receiver *receiver)
{
    if (receiver == NULL)
        return;
    spw__host_receiver_drop_memfd(receiver);
    spw__peer_process_release(&receiver->peer);
    spw__unix_socket_shutdown(receiver->descriptor, receiver->owner);
    spw__unix_socket_close(receiver->descriptor);
    spw__release(receiver->context, receiver, sizeof *receiver,
                 _Alignof(spw__host_receiver));
}

int spw__host_receiver_descriptor(const spw__host_receiver *receiver)
{
    return receiver->descriptor;
}

unsigned spw__host_receiver_interest(const spw__host_receiver *receiver)
{
    if (receiver->is_over)
        return 0;
    unsigned interest =
        !receiver->is_greeted || receiver->is_waiting ? SPW__HOST_READ : 0;
    bool has_to_say = receiver->has_way || receiver->has_to_tell;
    return has_to_say ? interest | SPW__HOST_WRITE : interest;
}

const uint8_t *spw__host_receiver_nonce(const spw__host_receiver *receiver)
{
    return receiver->is_greeted ? receiver->nonce : NULL;
}

spw__host_way spw__host_receiver_way(const spw__host_receiver *receiver)
{
    return receiver->way;
}

const spw_error *spw__host_receiver_reason(const spw__host_receiver *receiver)
{
    return &receiver->reason;
}

uint64_t spw__host_receiver_bytes(const spw__host_receiver *receiver, spw__host_way way)
{
    return receiver->bytes[way];
}

spw_status spw__host_receiver_end(spw__host_receiver *receiver, const spw_error *why,
                                  spw_error *error)
{
    if (!receiver->is_over) {
        receiver->is_over = true;
        receiver->reason = *why;
        spw__host_receiver_drop_memfd(receiver);
        spw__unix_socket_shutdown(receiver->descriptor, receiver->owner);
    }
    if (error != NULL)
        *error = receiver->reason;
    return receiver->reason.status;
}

spw_status spw__host_receiver_tell_gone(int answer, spw_error *error)
{
    if (answer == 0 || answer == -EPIPE || answer == -ECONNRESET)
        return spw__error_set(error, SPW_STATUS_PEER_CLOSED, -answer,
                              "the sender has closed the side channel");
    return spw__error_set(error, SPW_STATUS_IO, -answer, "the side channel failed");
}

static int say(const spw__host_receiver *receiver, const spw__host_packet *packet)
{
    uint8_t head[SPW__HOST_HEAD_BYTES];
    struct iovec piece = {head, sizeof head};
    spw__host_packet_put(packet, head);
    return (int)spw__unix_socket_send(receiver->descriptor, &piece, 1, -1);
}

spw_status spw__host_receiver_say(spw__host_receiver *receiver, spw_error *error)
{
    int answer = 0;
    if (receiver->has_way) {
        answer = say(receiver, &receiver->way_packet);
        receiver->has_way = answer < 0;
    }
    if (answer >= 0 && receiver->has_to_tell) {
        spw__host_packet taken = {.kind = SPW__HOST_TAKEN,
                                  .epoch = receiver->epoch,
                                  .number = receiver->taken};
        answer = say(receiver, &taken);
        receiver->has_to_tell = answer < 0;
    }
    return answer >= 0 || answer == -EAGAIN
               ? SPW_STATUS_OK
               : spw__host_receiver_tell_gone(answer, error);
}

static spw_status hear_hello(spw__host_receiver *receiver, spw_error *error)
{
    uint8_t data[SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES + SPW__HOST_SECRET_BYTES];
    struct iovec piece = {data, sizeof data};
    spw__host_packet hello;
    int passed = -1;
    bool is_lost;
    ssize_t size =
        spw__unix_socket_receive(receiver->descriptor, &piece, 1, &passed, &is_lost);
    if (size == -EAGAIN)
        return spw__error_set(error, SPW_STATUS_AGAIN, 0, "no hello yet");
    if (size <= 0 && size != -EMSGSIZE)
        return spw__host_receiver_tell_gone((int)size, error);
    if (passed >= 0)
        spw__shared_memory_close(passed);
    if (size != (ssize_t)sizeof data ||
        !spw__host_packet_get(data, (size_t)size, &hello) ||
        hello.kind != SPW__HOST_HELLO || hello.epoch != SPW__HOST_VERSION ||
        passed >= 0)
        return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                              "whoever connected does not speak our side channel's "
                              "version %d",
                              SPW__HOST_VERSION);
    receiver->secret_address = hello.place;
    memcpy(receiver->nonce, data + SPW__HOST_HEAD_BYTES, SPW__HOST_NONCE_BYTES);
    memcpy(receiver->secret, data + SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES,
           SPW__HOST_SECRET_BYTES);
    receiver->is_greeted = true;
    return SPW_STATUS_OK;
}

/* Before it is admitted a sender says nothing more; and if it hangs up, nobody need
 * wait for it. */
static spw_status hear_nothing(spw__host_receiver *receiver, spw_error *error)
{
    uint8_t data;
    struct iovec piece = {&data, sizeof data};
    int passed = -1;
    bool is_lost;
    ssize_t size =
        spw__unix_socket_receive(receiver->descriptor, &piece, 1, &passed, &is_lost);
    if (size == -EAGAIN)
        return SPW_STATUS_OK;
    if (size <= 0 && size != -EMSGSIZE)
        return spw__host_receiver_tell_gone((int)size, error);
    if (passed >= 0)
        spw__shared_memory_close(passed);
    return spw__error_set(error, SPW_STATUS_PROTOCOL, 0,
                          "whoever connected speaks out of turn");
}

spw_status spw__host_receiver_drive(spw__host_receiver *receiver, spw_error *error)
{
    spw_error why;
    spw_status status;
    if (receiver->is_over)
        return spw__host_receiver_end(receiver, &receiver->reason, error);
    if (!receiver->is_greeted)
        status = hear_hello(receiver, &why);
    else if (receiver->way == SPW__HOST_MEETING)
        status = hear_nothing(receiver, &why);
    else
        status = spw__host_receiver_say(receiver, &why);
    if (status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN)
        return status;
    return spw__host_receiver_end(receiver, &why, error);
}

void spw__host_receiver_step_down(spw__host_receiver *receiver, spw__host_way way,
                                  int answer, uint64_t filled, const char *what)
{
    spw__host_receiver_drop_memfd(receiver);
    receiver->way = way;
    receiver->epoch++;
    receiver->way_packet = (spw__host_packet){
        .kind = SPW__HOST_WAY,
        .epoch = receiver->epoch,
        .number = receiver->taken,
        .place = filled,
        .way = way,
        .os_errno = (uint32_t)-answer,
    };
    receiver->has_way = true;
    (void)spw__error_set(&receiver->reason, SPW_STATUS_UNSUPPORTED, -answer, "%s",
                         what);
}

void spw__host_receiver_read(void *argument)
{
    spw__host_reading *wanted = argument;
    const spw__host_receiver *receiver = wanted->receiver;
    uint8_t secret[SPW__HOST_SECRET_BYTES];
    spw__peer_piece pieces[2] = {
        {wanted->to, wanted->address, wanted->size},
        {secret, receiver->secret_address, sizeof secret},
    };
    wanted->answer = spw__peer_process_read(&receiver->peer, pieces, 2);
    if (wanted->answer == 0 && memcmp(secret, receiver->secret, sizeof secret) != 0)
        wanted->answer = -ESTALE;
}

/* Can we read its memory? Returns: 0, or a negative errno. */
static int try_memory(spw__host_receiver *receiver)
{
    int answer = spw__peer_process_identify(receiver->descriptor, &receiver->peer);
    if (answer == 0 && receiver->peer.uid != spw__peer_process_own_user())
        answer = -EPERM;
    if (answer == 0)
        answer = spw__peer_process_hold(receiver->descriptor, &receiver->peer);
    if (answer < 0)
        return answer;
    spw__host_reading nothing = {.receiver = receiver};
    spw__host_receiver_read(&nothing);
    return nothing.answer;
}

spw_status spw__host_receiver_admit(spw__host_receiver *receiver, spw__host_way best,
                                    spw_error *error)
{
    spw_error why;
    if (receiver->is_over)
        return spw__host_receiver_end(receiver, &receiver->reason, error);
    assert(receiver->is_greeted && receiver->way == SPW__HOST_MEETING);
    int answer = best == SPW__HOST_BY_ADDRESS ? try_memory(receiver) : -ECANCELED;
    if (answer == 0) {
        spw__host_receiver_step_down(receiver, SPW__HOST_BY_ADDRESS, 0, 0, "");
        receiver->reason = (spw_error){.status = SPW_STATUS_OK};
    } else {
        spw__host_receiver_step_down(
            receiver, best == SPW__HOST_BY_STREAM ? best : SPW__HOST_BY_DESCRIPTOR,
            answer, 0, "the sender's memory cannot be read");
    }
    spw_status status = spw__host_receiver_say(receiver, &why);
    return status == SPW_STATUS_OK ? SPW_STATUS_OK
                                   : spw__host_receiver_end(receiver, &why, error);
}
