/* Threads of the library's own. */
#ifndef SPW_PLATFORM_THREAD_H
#define SPW_PLATFORM_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Start a thread, to be joined, in which all signals are blocked: they are for threads
 * that know what to do with them. stack_bytes is a wish, and name, of up to 15 letters,
 * is for who looks at top. Returns: 0, or an errno. Thread: any. */
int spw__thread_start(pthread_t *ret_thread, size_t stack_bytes, const char *name,
                      void *(*run)(void *argument), void *argument);

#endif
