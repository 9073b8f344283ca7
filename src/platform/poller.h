/* What the library asks of the operating system in order to wait: for many descriptors
 * at once, and for a sign from another thread.
 *
 * Functions that answer an int answer a value >= 0 or the negative errno of what went
 * wrong. Thread: any; several may wait at one poller, and each event goes to one. */
#ifndef SPW_PLATFORM_POLLER_H
#define SPW_PLATFORM_POLLER_H

#include <stdint.h>

enum { SPW__READY_READ = 1u << 0, SPW__READY_WRITE = 1u << 1 };

typedef struct spw__poller_event {
    unsigned ready; /* SPW__READY_...; both when the descriptor has failed or hung up */
    uint64_t tag;
} spw__poller_event;

/* Returns: a poller. */
int spw__poller_open(void);
/* Watch a descriptor until one event has come of it, and then not until rearm. */
int spw__poller_add(int poller, int descriptor, unsigned ready, uint64_t tag);
int spw__poller_rearm(int poller, int descriptor, unsigned ready, uint64_t tag);
/* Watch a sign, which shows to every thread that waits until it is cleared. */
int spw__poller_add_sign(int poller, int sign, uint64_t tag);
void spw__poller_remove(int poller, int descriptor);
/* Block until there is an event, or for timeout_ms (-1: for ever); an interrupted wait
 * begins anew. Returns: 1 when there is one, 0 when the time is over. */
int spw__poller_wait(int poller, int timeout_ms, spw__poller_event *ret_event);

/* A descriptor that is readable from raise to clear. Returns: the descriptor. */
int spw__sign_open(void);
void spw__sign_raise(int sign);
void spw__sign_clear(int sign);

/* Close a poller or a sign. */
void spw__poller_close(int descriptor);

#endif
