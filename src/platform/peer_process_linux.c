/* The peer's process on Linux. */
#include "platform/peer_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5; headers are older */
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438 /* since Linux 5.6 */
#endif
#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

/* Pieces that one call takes. IOV_MAX is 1,024, but then the lists alone are 32 KiB. */
enum { PIECES_PER_CALL = 64 };

int spw__peer_process_identify(int socket, spw__peer_process *ret_peer)
{
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return -errno;
    *ret_peer = (spw__peer_process){
        .pid = credentials.pid, .uid = credentials.uid, .descriptor = -1};
    return 0;
}

int spw__peer_process_hold(int socket, spw__peer_process *peer)
{
    int descriptor = -1;
    socklen_t size = sizeof descriptor;
    if (peer->pid <= 0)
        return -ESRCH;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &descriptor, &size) != 0) {
        if (errno != ENOPROTOOPT)
            return -errno;
        descriptor = (int)syscall(SYS_pidfd_open, peer->pid, 0);
        if (descriptor < 0)
            return -errno;
    }
    peer->descriptor = descriptor;
    return 0;
}

int spw__peer_process_is_alive(const spw__peer_process *peer)
{
    struct pollfd watched = {.fd = peer->descriptor, .events = POLLIN};
    int ready;
    do {
        ready = poll(&watched, 1, 0);
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return -errno;
    return ready == 0;
}

void spw__peer_process_release(spw__peer_process *peer)
{
    if (peer->descriptor >= 0)
        (void)close(peer->descriptor);
    peer->descriptor = -1;
}

/* The first pieces from skip bytes into the first of them on. Returns: how many. */
static size_t list(const spw__peer_piece *pieces, size_t count, size_t skip,
                   struct iovec *here, struct iovec *there)
{
    size_t n = 0;
    for (; n < count && n < PIECES_PER_CALL; n++) {
        here[n] = (struct iovec){(char *)pieces[n].to + skip, pieces[n].size - skip};
        /* An address of another process, which is no pointer of ours. */
        there[n] = (struct iovec){(void *)(uintptr_t)(pieces[n].address + skip),
                                  pieces[n].size - skip};
        skip = 0;
    }
    return n;
}

int spw__peer_process_read(const spw__peer_process *peer, const spw__peer_piece *pieces,
                           size_t count)
{
    struct iovec here[PIECES_PER_CALL], there[PIECES_PER_CALL];
    size_t done = 0; /* bytes read, from the first of pieces on */
    for (;;) {
        for (; count > 0 && done >= pieces->size; pieces++, count--)
            done -= pieces->size;
        if (count == 0)
            return 0;
        size_t n = list(pieces, count, done, here, there);
        ssize_t got = process_vm_readv(peer->pid, here, n, there, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        /* Where a call stopped short, the next one says why. */
        if (got <= 0)
            return got < 0 ? -errno : -EFAULT;
        done += (size_t)got;
    }
}

int spw__peer_process_take_descriptor(pid_t pid, int number)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0)
        return -errno;
    int taken = (int)syscall(SYS_pidfd_getfd, process, number, 0);
    int answer = taken >= 0 ? taken : -errno;
    (void)close(process);
    return answer;
}

/* The permission is the process's own, as its id is: nothing that a context has. */
static struct {
    pthread_mutex_t lock;
    pid_t pid;
    unsigned times;
} allowed = {.lock = PTHREAD_MUTEX_INITIALIZER};

int spw__peer_process_allow(pid_t pid)
{
    int answer = 0;
    (void)pthread_mutex_lock(&allowed.lock);
    if (allowed.times > 0 && allowed.pid != pid)
        answer = -EBUSY;
    /* EINVAL: there is no Yama. */
    else if (allowed.times == 0 &&
             prctl(PR_SET_PTRACER, (unsigned long)pid, 0, 0, 0) != 0 && errno != EINVAL)
        answer = -errno;
    if (answer == 0) {
        allowed.pid = pid;
        allowed.times++;
    }
    (void)pthread_mutex_unlock(&allowed.lock);
    return answer;
}

void spw__peer_process_disallow(pid_t pid)
{
    (void)pthread_mutex_lock(&allowed.lock);
    if (allowed.times > 0 && allowed.pid == pid && --allowed.times == 0)
        (void)prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    (void)pthread_mutex_unlock(&allowed.lock);
}

uid_t spw__peer_process_own_user(void)
{
    return geteuid();
}

int spw__boot_id(char text[SPW__BOOT_ID_BYTES])
{
    int descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -errno;
    char read_text[SPW__BOOT_ID_BYTES];
    ssize_t got;
    do {
        got = read(descriptor, read_text, sizeof read_text);
    } while (got < 0 && errno == EINTR);
    int answer = got < 0 ? -errno : 0;
    (void)close(descriptor);
    if (answer < 0)
        return answer;
    /* 36 characters and the end of the line. */
    if (got != SPW__BOOT_ID_BYTES || read_text[got - 1] != '\n')
        return -EIO;
    memcpy(text, read_text, SPW__BOOT_ID_BYTES - 1);
    text[SPW__BOOT_ID_BYTES - 1] = '\0';
    return 0;
}

int spw__random_bytes(void *data, size_t size)
{
    char *next = data;
    while (size > 0) {
        ssize_t got = getrandom(next, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        next += got;
        size -= (size_t)got;
    }
    return 0;
}
