/* What the library asks the operating system about the process at the other end of a
 * Unix socket: who it is, whether it still runs, and what stands in its memory. Every
 * such call goes through here, so that a test can make any of them fail.
 *
 * Every function answers a value >= 0, or the negative errno of what went wrong. An
 * interrupted call is repeated, nothing else is. Thread: any. */
#ifndef SPW_PLATFORM_PEER_PROCESS_H
#define SPW_PLATFORM_PEER_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct spw__peer_process {
    pid_t pid; /* in our own namespace; 0: it is in none that we can see into */
    uid_t uid;
    int descriptor; /* a pidfd, which no later process of that pid answers for */
} spw__peer_process;

/* Who connected a Unix socket, or listens on it, by the kernel's word.
 * Returns: pid and uid, with no descriptor yet (-1). */
int spw__peer_process_identify(int socket, spw__peer_process *ret_peer);
/* Take hold of the process, so that its end can be seen: peer->descriptor. By the
 * socket itself where the kernel can, else by the pid, which by then may be another's:
 * whoever relies on the process reads something from it that only the right one has,
 * afterwards. */
int spw__peer_process_hold(int socket, spw__peer_process *peer);
/* Returns: 1, or 0 once it has ended. */
int spw__peer_process_is_alive(const spw__peer_process *peer);
/* Let go of the descriptor. */
void spw__peer_process_release(spw__peer_process *peer);

/* Bytes from an address there to a place here. */
typedef struct spw__peer_piece {
    void *to;
    uint64_t address;
    size_t size;
} spw__peer_piece;

/* Read all the pieces, in order. By pid: whether it was the right process is for the
 * caller to find out. Errors: EPERM, ENOSYS (refused), ESRCH (it ended), EFAULT (there
 * is no such memory) and others; some pieces may have been read. */
int spw__peer_process_read(const spw__peer_process *peer, const spw__peer_piece *pieces,
                           size_t count);

/* Take a descriptor of our own of what a process has open by a number. By pid: whether
 * it was the right process is for the caller to find out, by what was taken. Returns: a
 * descriptor, not inherited by child processes. Errors: EPERM, ENOSYS (refused), ESRCH
 * (it ended), EBADF (it has nothing open there) and others. */
int spw__peer_process_take_descriptor(pid_t pid, int number);

/* Let pid, and nobody else, read our memory where Yama restricts that to ancestors
 * (ptrace_scope 1). A process has one such permission to give, which is our thread
 * group's: given to one pid, it is refused to others (-EBUSY) until that one has been
 * disallowed as often as it was allowed. Nothing happens on a system without Yama. */
int spw__peer_process_allow(pid_t pid);
void spw__peer_process_disallow(pid_t pid);

/* The user that this process acts as. */
uid_t spw__peer_process_own_user(void);

/* What tells one run of one machine from every other. */
enum { SPW__BOOT_ID_BYTES = 37 }; /* with the zero at its end */
int spw__boot_id(char text[SPW__BOOT_ID_BYTES]);
/* Bytes that nobody can guess. */
int spw__random_bytes(void *data, size_t size);

#endif
