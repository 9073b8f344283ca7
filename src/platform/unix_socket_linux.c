/* Unix sockets on Linux. SOCK_SEQPACKET: a packet is never cut, so nobody has to keep
 * half of one, and a socket that belongs to somebody else, which is most likely a
 * stream, refuses to be connected. */
#include "platform/unix_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* More descriptors than ours ever pass in one packet, so that a peer that passes more
 * is seen, and they are closed, and nothing is cut. */
enum { ROOM_DESCRIPTORS = 4 };

static int open_socket(void)
{
    int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return descriptor >= 0 ? descriptor : -errno;
}

static int make_address(const char *path, struct sockaddr_un *ret_address)
{
    size_t size = strlen(path) + 1;
    if (size > sizeof ret_address->sun_path)
        return -ENAMETOOLONG;
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, size);
    return 0;
}

/* Whoever can write into the directory can put a socket of theirs in place of ours, and
 * whoever can enter it can connect. */
static int check_directory(const char *path)
{
    char directory[SPW__UNIX_PATH_BYTES];
    const char *end = strrchr(path, '/');
    struct stat about;
    if (end == NULL)
        return -EACCES;
    size_t size = (size_t)(end - path);
    memcpy(directory, path, size);
    directory[size] = '\0';
    if (lstat(directory, &about) != 0)
        return -errno;
    bool is_private = S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
                      (about.st_mode & (S_IRWXG | S_IRWXO)) == 0;
    return is_private ? 0 : -EACCES;
}

int spw__unix_socket_listen(const char *path, int backlog)
{
    struct sockaddr_un address;
    int answer = make_address(path, &address);
    if (answer == 0)
        answer = check_directory(path);
    if (answer < 0)
        return answer;
    int descriptor = open_socket();
    if (descriptor < 0)
        return descriptor;
    if (bind(descriptor, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(descriptor, backlog) != 0) {
        answer = -errno;
        (void)close(descriptor);
        return answer;
    }
    return descriptor;
}

int spw__unix_socket_connect(const char *path)
{
    struct sockaddr_un address;
    int answer = make_address(path, &address);
    if (answer < 0)
        return answer;
    int descriptor = open_socket();
    if (descriptor < 0)
        return descriptor;
    do {
        answer = connect(descriptor, (const struct sockaddr *)&address, sizeof address);
    } while (answer != 0 && errno == EINTR);
    if (answer != 0) {
        answer = -errno;
        (void)close(descriptor);
        return answer;
    }
    return descriptor;
}

int spw__unix_socket_accept(int descriptor)
{
    int accepted;
    do {
        accepted = accept4(descriptor, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (accepted < 0 && errno == EINTR);
    return accepted >= 0 ? accepted : -errno;
}

ssize_t spw__unix_socket_send(int descriptor, const struct iovec *pieces, size_t count,
                              int passed)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof passed)];
    } control = {.room = {0}};
    struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = count};
    if (passed >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof passed);
        memcpy(CMSG_DATA(head), &passed, sizeof passed);
    }
    ssize_t sent;
    do {
        sent = sendmsg(descriptor, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : -errno;
}

/* Keep the first descriptor that came and close the others. Returns: how many came. */
static size_t take_descriptors(struct msghdr *message, int *ret_passed)
{
    size_t came = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++, came++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
            if (came == 0)
                *ret_passed = descriptor;
            else
                (void)close(descriptor);
        }
    }
    return came;
}

ssize_t spw__unix_socket_receive(int descriptor, const struct iovec *pieces,
                                 size_t count, int *ret_passed, bool *ret_is_lost)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(ROOM_DESCRIPTORS * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = (struct iovec *)pieces,
                             .msg_iovlen = count,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    int passed = -1;
    ssize_t received;
    do {
        received = recvmsg(descriptor, &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0)
        return -errno;
    size_t came = take_descriptors(&message, &passed);
    if (received == 0 && passed >= 0) {
        /* An empty packet, which nobody of ours sends, is taken for the end. */
        (void)close(passed);
        passed = -1;
    }
    if (came > 1 || message.msg_flags & MSG_TRUNC) {
        if (passed >= 0)
            (void)close(passed);
        return -EMSGSIZE;
    }
    *ret_passed = passed;
    *ret_is_lost = came == 0 && message.msg_flags & MSG_CTRUNC;
    return received;
}

int spw__unix_socket_is_hung_up(int descriptor)
{
    struct pollfd watched = {.fd = descriptor, .events = POLLRDHUP};
    int ready;
    do {
        ready = poll(&watched, 1, 0);
    } while (ready < 0 && errno == EINTR);
    return ready >= 0 ? ready : -errno;
}

pid_t spw__unix_socket_owner(void)
{
    return getpid();
}

/* Neither of these can fail in a way that leaves something to do. */
void spw__unix_socket_shutdown(int descriptor, pid_t owner)
{
    if (owner == getpid())
        (void)shutdown(descriptor, SHUT_RDWR);
}

void spw__unix_socket_close(int descriptor)
{
    (void)close(descriptor);
}
