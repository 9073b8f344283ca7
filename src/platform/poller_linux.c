/* Waiting on Linux: epoll and eventfd. */
#include "platform/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int control(int poller, int operation, int descriptor, uint32_t events,
                   uint64_t tag)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(poller, operation, descriptor, &event) == 0 ? 0 : -errno;
}

static uint32_t once(unsigned ready)
{
    return EPOLLONESHOT | (ready & SPW__READY_READ ? EPOLLIN : 0u) |
           (ready & SPW__READY_WRITE ? EPOLLOUT : 0u);
}

int spw__poller_open(void)
{
    int poller = epoll_create1(EPOLL_CLOEXEC);
    return poller >= 0 ? poller : -errno;
}

int spw__poller_add(int poller, int descriptor, unsigned ready, uint64_t tag)
{
    return control(poller, EPOLL_CTL_ADD, descriptor, once(ready), tag);
}

int spw__poller_rearm(int poller, int descriptor, unsigned ready, uint64_t tag)
{
    return control(poller, EPOLL_CTL_MOD, descriptor, once(ready), tag);
}

int spw__poller_add_sign(int poller, int sign, uint64_t tag)
{
    return control(poller, EPOLL_CTL_ADD, sign, EPOLLIN, tag);
}

void spw__poller_remove(int poller, int descriptor)
{
    /* Fails only for a descriptor that is not watched, which is what is wanted. */
    (void)control(poller, EPOLL_CTL_DEL, descriptor, 0, 0);
}

int spw__poller_wait(int poller, int timeout_ms, spw__poller_event *ret_event)
{
    struct epoll_event event;
    int count;
    do {
        count = epoll_wait(poller, &event, 1, timeout_ms);
    } while (count < 0 && errno == EINTR);
    if (count <= 0)
        return count < 0 ? -errno : 0;
    unsigned ready = 0;
    if (event.events & EPOLLIN)
        ready |= SPW__READY_READ;
    if (event.events & EPOLLOUT)
        ready |= SPW__READY_WRITE;
    if (event.events & (EPOLLHUP | EPOLLERR))
        ready |= SPW__READY_READ | SPW__READY_WRITE;
    *ret_event = (spw__poller_event){.ready = ready, .tag = event.data.u64};
    return 1;
}

int spw__sign_open(void)
{
    int sign = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return sign >= 0 ? sign : -errno;
}

void spw__sign_raise(int sign)
{
    /* The counter of a raised sign may be full, and then it is raised already. */
    (void)eventfd_write(sign, 1);
}

void spw__sign_clear(int sign)
{
    eventfd_t count;
    (void)eventfd_read(sign, &count); /* fails only where it was not raised */
}

void spw__poller_close(int descriptor)
{
    (void)close(descriptor);
}
