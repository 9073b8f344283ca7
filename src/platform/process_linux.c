/* The process on Linux. */
#include "platform/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* A fact about the process, as its id is; nothing that anybody could set. */
static _Atomic uint32_t fork_count;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

uint32_t spw__process_fork_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    return atomic_load_explicit(&fork_count, memory_order_relaxed);
}

static ssize_t read_text(const char *path, char *text, size_t room)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    ssize_t size;
    do {
        size = read(descriptor, text, room - 1);
    } while (size < 0 && errno == EINTR);
    (void)close(descriptor);
    if (size >= 0)
        text[size] = '\0';
    return size;
}

uint64_t spw__process_resident_bytes(void)
{
    char text[128];
    uint64_t resident_pages;
    if (read_text("/proc/self/statm", text, sizeof text) <= 0 ||
        sscanf(text, "%*u %" SCNu64, &resident_pages) != 1)
        return 0;
    return resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

unsigned spw__process_core_count(void)
{
    cpu_set_t cores;
    /* Fails where the machine has more cores than the set can name. */
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return CPU_SETSIZE;
    return (unsigned)CPU_COUNT(&cores);
}
