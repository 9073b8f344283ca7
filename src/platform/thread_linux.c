/* Threads on Linux. */
#include "platform/thread.h"

#include <signal.h>

int spw__thread_start(pthread_t *ret_thread, size_t stack_bytes, const char *name,
                      void *(*run)(void *argument), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int answer = pthread_attr_init(&attributes);
    if (answer != 0)
        return answer;
    (void)pthread_attr_setstacksize(&attributes, stack_bytes); /* else the default */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    answer = pthread_create(ret_thread, &attributes, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (answer == 0)
        (void)pthread_setname_np(*ret_thread, name);
    return answer;
}
