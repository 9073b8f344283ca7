#include "visited_meetings.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "platform/unix_socket.h"
#include "transport/host_packet.h"

enum { PROOF = SPW__HOST_NONCE_BYTES + SPW__HOST_SECRET_BYTES };
static uint8_t secret[SPW__HOST_SECRET_BYTES] = "what only this process has";

void visited_meetings_open(torture *t, visited_meetings *at)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    *at = (visited_meetings){.t = t};
    private_place_open(&at->place);
    options.parent = at->place.directory;
    assert_ok(loopback_open_away(t->context, 2, 0, &at->pair, NULL));
    assert_ok(spw_meetings_create(t->context, &options, &at->meetings, NULL));
    loopback_watch_meetings(at->meetings);
}

void visited_meetings_close(visited_meetings *at)
{
    loopback_close(&at->pair);
    spw_meetings_free(at->meetings);
    private_place_close(&at->place);
}

void visited_meetings_expect(const visited_meetings *at)
{
    assert_ok(spw_connection_meet(at->pair.client, at->meetings, NONCE_HERE,
                                  "/tmp/nowhere", NONCE_THERE, NULL));
}

bool visited_meetings_are_readable(const visited_meetings *at)
{
    struct pollfd watched = {spw_meetings_descriptor(at->meetings), POLLIN, 0};
    return poll(&watched, 1, 0) == 1;
}

void visited_meetings_let_in(const visited_meetings *at)
{
    assert_true(visited_meetings_are_readable(at));
    assert_ok(spw_meetings_on_readable(at->meetings, NULL));
}

int visitor_come(const visited_meetings *at)
{
    int visitor = spw__unix_socket_connect(spw_meetings_path(at->meetings));
    assert_true(visitor >= 0);
    return visitor;
}

void visitor_say_hello(int visitor, const uint8_t *nonce, uint64_t version)
{
    uint8_t hello[SPW__HOST_HEAD_BYTES + PROOF];
    struct iovec piece = {hello, sizeof hello};
    spw__host_packet_put(&(spw__host_packet){.kind = SPW__HOST_HELLO,
                                             .epoch = version,
                                             .place = (uintptr_t)secret},
                         hello);
    memcpy(hello + SPW__HOST_HEAD_BYTES, nonce, SPW__HOST_NONCE_BYTES);
    memcpy(hello + SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES, secret, sizeof secret);
    assert_int_equal(spw__unix_socket_send(visitor, &piece, 1, -1), sizeof hello);
}

int visitor_told(int visitor)
{
    uint8_t data[SPW__HOST_HEAD_BYTES];
    struct iovec piece = {data, sizeof data};
    spw__host_packet packet;
    int passed;
    bool is_lost;
    ssize_t size = spw__unix_socket_receive(visitor, &piece, 1, &passed, &is_lost);
    if (size == -EAGAIN)
        return 0;
    if (size <= 0)
        return -1;
    assert_true(spw__host_packet_get(data, (size_t)size, &packet));
    assert_int_equal(packet.kind, SPW__HOST_WAY);
    return (int)packet.way;
}
