/* Same host: bodies that do not go through the stream. Two peers that believe to share
 * a host meet on a Unix socket that the receiver listens on (host_door.h) and whose
 * path and a nonce it told in the handshake. From then on that socket is a side channel
 * of one TCP connection and one direction: host_sender.h at the end that has the
 * bodies, host_receiver.h at the other. The stream stays the truth about order: there a
 * message announces which of its bodies come by reference (docs/wire_format.md, "Same
 * host"), and they are counted from the first on.
 *
 * The ways, best first. The receiver decides; it steps down when a way turns out to be
 * refused, never up, and says from which body on (and which byte of it), so that
 * nothing that was announced under an older way is lost: it comes again by the new one.
 *  1. By address: the receiver reads the sender's memory. A body counts only if the
 *     secret that the sender showed it is there after the bytes, in the same memory,
 *     and after that the process still runs and the socket has not hung up.
 *  2. By descriptor: the sender fills a memfd for each body, seals it and passes it;
 *     the receiver maps it, or, where the frame has to lie beside others, reads it.
 *  3. By stream: new messages have all bodies in the stream, and what was announced
 *     before that comes as bytes over the side channel.
 * A sender that cannot fill a descriptor sends bytes as well; the receiver takes
 * either.
 *
 * The contract of the sender: it shuts the side channel down before it lets go of any
 * buffer that it has announced and whose receipt has not been acknowledged (which is
 * spw__host_sender_shutdown, always before anything else at the end of a connection).
 * The receiver's check after a read is sufficient because of that. A connection that is
 * closed in order waits until nothing is announced (spw__host_sender_announced_bytes):
 * what has been sent is in the kernel's hands, what was announced is not.
 *
 * How a connection uses it, one thread at a time for each end:
 *  - Send. Once there is a first large message: spw__host_sender_create, and drive
 *    it by the readiness of its descriptor. A message for which spw__host_sender_wants
 *    says so is made by spw__host_sender_write, not by spw__message_writer_create;
 *    once its writer is in the send queue, spw__host_sender_announce. The buffers stay
 *    pinned until drive has heard that they were taken: take_done then hands them out,
 *    to be let go of where release callbacks may run. drive says when the connection
 *    is to end: something was announced and can never be had.
 *  - Receive. The listener gives each connection that it accepts on its door to
 *    spw__host_receiver_create and drives it until there is a nonce, by which it finds
 *    the connection that it told that nonce, and hands it over; then _admit. Whenever
 *    the connection's reader is_remote, spw__host_receiver_fetch instead of reading
 *    from the stream: OK, go on; AGAIN, wait until the side channel is readable.
 *    Nothing of the stream is needed meanwhile, so it must not be armed for that.
 */
#ifndef SPW_TRANSPORT_HOST_LINK_H
#define SPW_TRANSPORT_HOST_LINK_H

#include "transport/host_packet.h"

typedef enum spw__host_way {
    SPW__HOST_MEETING = 0, /* nothing is agreed yet: bodies go in the stream */
    SPW__HOST_BY_ADDRESS = 1,
    SPW__HOST_BY_DESCRIPTOR = 2,
    SPW__HOST_BY_STREAM = 3
} spw__host_way;

/* What is smaller goes in the stream (docs/decisions/0008-same-host.md). */
#define SPW__HOST_FROM_BYTES ((uint64_t)256 << 10)

/* What an end waits for on its descriptor. */
enum { SPW__HOST_READ = 1u << 0, SPW__HOST_WRITE = 1u << 1 };

#endif
