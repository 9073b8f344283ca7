/* Connections of ours over real loopback sockets: two against each other, or one
 * against a raw socket that does what no connection of ours would. */
#ifndef SPW_TESTS_LOOPBACK_H
#define SPW_TESTS_LOOPBACK_H

#include "spillway/listener.h"
#include "private_place.h"
#include "spillway/reactor.h"
#include "spillway/same_host.h"
#include "torture.h"

typedef struct loopback {
    spw_listener *listener;
    spw_connection *client, *server;
    spw_reactor *reactor;         /* NULL: without threads */
    spw_completions *completions; /* of both ends */
    spw_meetings *meetings;       /* of both ends; NULL: they meet nowhere */
    private_place place;          /* of the meetings */
} loopback;

/* On failure, too, close it afterwards. */
spw_status loopback_open(spw_context *context, const char *host, loopback *ret_pair,
                         spw_error *error);
/* The same with other options. */
spw_status loopback_open_with(spw_context *context, const char *host,
                              const spw_connection_options *options, loopback *ret_pair,
                              spw_error *error);
/* The same with threads (0: the default) for what is more than inline_bytes. */
spw_status loopback_open_away(spw_context *context, unsigned threads,
                              uint64_t inline_bytes, loopback *ret_pair,
                              spw_error *error);
/* The same with the default of inline bytes, and both ends expect each other at
 * meetings with these options (NULL: the default). */
spw_status loopback_open_host(spw_context *context, unsigned threads,
                              const spw_meetings_options *options, loopback *ret_pair,
                              spw_error *error);
/* Send something large, so that sender goes to meet receiver, and wait until it knows
 * what came of that. */
spw_status loopback_meet(torture *t, spw_connection *sender, spw_connection *receiver);
/* Wait until all that sender has sent or announced is taken. */
spw_status loopback_settle(spw_connection *sender, spw_connection *receiver,
                           spw_error *error);
/* Meetings that loopback_step watches as well, from now on (NULL: none). */
void loopback_watch_meetings(spw_meetings *meetings);
/* How many news they had, and the last; *ret_last lives until the next. */
unsigned loopback_news(const char **ret_last);
void loopback_close(loopback *pair);
/* Whether this machine has IPv6 at all. */
bool loopback_has_ipv6(void);

/* Wait for a connection and accept it. */
spw_status loopback_accept(spw_listener *listener,
                           const spw_connection_options *options,
                           spw_connection **ret_connection, spw_error *error);
/* Wait until one of two connections (either may be NULL) is ready, and let it read or
 * write; or until something is among their completions, and take that back. Fails the
 * test when neither gets ready: a wake-up was lost. Returns: what on_writable answers.
 */
spw_status loopback_step(spw_connection *one, spw_connection *other, spw_error *error);
/* Step until receiver has a message. Errors: those of either. */
spw_status loopback_receive(spw_connection *receiver, spw_connection *other,
                            spw_payload **ret_payload, spw_error *error);

/* Send what payload_make makes; receive it and fail the test if it is anything else. */
spw_status loopback_send_made(torture *t, spw_connection *sender, const size_t *sizes,
                              size_t count, unsigned seed);
spw_status loopback_receive_made(torture *t, spw_connection *receiver,
                                 spw_connection *sender, const size_t *sizes,
                                 size_t count, unsigned seed);

/* The same in a scenario: with its torture, and leaving it on failure. */
#define SEND(sender, sizes, seed)                                                      \
    TRY(loopback_send_made(t, sender, sizes, COUNT_OF(sizes), seed))
#define RECEIVE(receiver, sender, sizes, seed)                                         \
    TRY(loopback_receive_made(t, receiver, sender, sizes, COUNT_OF(sizes), seed))

/* Whether a thread has something of it. */
bool loopback_is_away(const spw_connection *connection);

/* A connection of ours whose peer is a blocking descriptor to misbehave with. */
typedef struct raw_pair {
    spw_listener *listener;
    int raw; /* -1 once closed */
    spw_connection *ours;
    spw_reactor *reactor; /* NULL: without threads */
    spw_completions *completions;
} raw_pair;

raw_pair raw_pair_open(spw_context *context);
/* The same with threads for what is more than inline_bytes. */
raw_pair raw_pair_open_away(spw_context *context, uint64_t inline_bytes);
void raw_pair_close(raw_pair *pair);
/* Send the first part of a message from the raw end, and have ours begin to receive it
 * until that direction is away. */
void raw_pair_begin_away(const raw_pair *pair, const char *wire, size_t part);
void raw_pair_send(const raw_pair *pair, const void *data, size_t size);
/* Close the raw end, in order or so that ours sees a reset. */
void raw_pair_close_peer(raw_pair *pair);
void raw_pair_reset_peer(raw_pair *pair);

/* The connection has ended with that, says so again, and has nothing to watch. */
#define assert_ended(connection, expected)                                             \
    assert_ended_as(connection, SPW_STATUS_##expected)
void assert_ended_as(spw_connection *connection, spw_status expected);

#endif
