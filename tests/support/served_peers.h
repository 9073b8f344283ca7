/* A listener that serves on threads, and raw peers of it that do as they like. */
#ifndef SPW_TESTS_SERVED_PEERS_H
#define SPW_TESTS_SERVED_PEERS_H

#include <sched.h>
#include <time.h>

#include "loopback.h"

static const size_t GREETING[] = {900}, FAR_GREETING[] = {40};
static const size_t SMALL[] = {120, 0, 100};
static const size_t LARGE[] = {1000, 3 << 20, 70000};
enum { NEAR_SEED = 5, FAR_SEED = 6, MOST_PEERS = 1100, LOST_AFTER_S = 20 };

typedef struct served_peers {
    spw_reactor *reactor;
    spw_completions *completions;
    spw_listener *listener;
    int raw[MOST_PEERS]; /* -1 once closed */
    size_t peers;
} served_peers;

/* A listener with threads that it does not use yet. On failure, too, close it. */
spw_status served_peers_listen(torture *t, served_peers *f, int backlog);
/* Let threads accept, greet and receive. */
spw_status served_peers_begin(torture *t, served_peers *f);
/* Both. */
spw_status served_peers_open_with(torture *t, served_peers *f, int backlog);
/* The same, which has to succeed. */
void served_peers_open(torture *t, served_peers *f);

/* A blocking peer; close ends it, too. */
int served_peers_connect_from(served_peers *f, const char *own_host);
int served_peers_connect(served_peers *f);
/* The peer of that number goes. */
void served_peers_end(served_peers *f, size_t peer);
void served_peers_close(served_peers *f);
/* The next connection, as its owner takes it. */
spw_connection *served_peers_take(served_peers *f);

void raw_send(int raw, const char *data, size_t size);
/* A message that payload_make makes. */
void raw_send_made(torture *t, int raw, const size_t *sizes, size_t count,
                   unsigned seed);
/* The peer receives a greeting. */
void assert_greeted(torture *t, int raw, const size_t *size, unsigned seed);
/* A message that is there already. */
void assert_waits(spw_connection *connection, const size_t *sizes, size_t count,
                  unsigned seed);

/* Wait, without a turn for the owner, until a figure of the context is that. */
#define wait_for_figure(t, name, value)                                                \
    do {                                                                               \
        time_t began_ = time(NULL);                                                    \
        while (torture_figures(t).name < (value)) {                                    \
            if (time(NULL) - began_ > LOST_AFTER_S)                                    \
                fail_msg(#name " stays at %llu",                                       \
                         (unsigned long long)torture_figures(t).name);                 \
            sched_yield();                                                             \
        }                                                                              \
    } while (0)

#endif
