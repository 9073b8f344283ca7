/* What two processes of one host ask of the operating system, failing on demand: the
 * calls of platform/unix_socket.h, peer_process.h, shared_memory.h and
 * private_directory.h pass through here as sockets' do through io_fault.h, which arms
 * and counts them ("unix_send", "peer_read", "shared_map" and so on). */
#ifndef SPW_TESTS_HOST_FAULT_H
#define SPW_TESTS_HOST_FAULT_H

#include <stdbool.h>
#include <sys/types.h>

/* We act as that user from now on; (uid_t)-1: as who we are. */
void host_fault_set_user(uid_t user);
/* From now on every call of that function answers -os_errno; 0: it is made again. */
void host_fault_refuse_reads(int os_errno);
void host_fault_refuse_memfds(int os_errno);
void host_fault_refuse_maps(int os_errno);
/* The next descriptor that comes is lost, as where a process may have no more. */
void host_fault_lose_descriptor(void);
/* Called after the next read of a peer's memory, before what follows from it. */
void host_fault_after_read(void (*function)(void *argument), void *argument);

#endif
