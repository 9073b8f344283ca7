/* Messages with values, as a worker answers who asks for some: a head, and for each
 * value its header and frames; and what becomes of them in memory and on disk. */
#ifndef SPW_TESTS_VALUE_MESSAGES_H
#define SPW_TESTS_VALUE_MESSAGES_H

#include "spillway/store.h"
#include "torture.h"

/* All values of a message have frames of these sizes. */
typedef struct value_message {
    size_t values;
    const size_t *sizes;
    size_t frames;
    unsigned seed;
} value_message;

/* Returns: a payload of the caller's, all of it in memory. */
spw_status value_message_make(spw_context *context, const value_message *message,
                              spw_payload **ret_payload, spw_error *error);
/* A value of a message that was received, its header first. Returns: a payload of the
 * caller's, with references of its own. */
spw_status value_message_value(spw_context *context, const spw_payload *payload,
                               const value_message *message, size_t value,
                               spw_payload **ret_payload, spw_error *error);
/* Fails the test unless a payload, wherever it is, is that value. Errors: of reading
 * it. */
spw_status value_message_check(spw_context *context, const spw_payload *payload,
                               const value_message *message, size_t value,
                               spw_error *error);
/* Whether all frames of a value are ranges of files; fails the test if only some are.
 */
bool value_message_is_on_disk(const spw_payload *value);

/* A store with directories, for values that nobody unpacks. */
typedef struct value_store {
    char directories[2][32];
    spw_store *store;
} value_store;

/* On failure, too, close it afterwards. limit_bytes: of its one directory, 0: none. */
spw_status value_store_open(torture *t, uint64_t target_bytes, uint64_t limit_bytes,
                            value_store *ret_at);
spw_status value_store_open_with_two(torture *t, uint64_t target_bytes,
                                     value_store *ret_at);
/* The first with jobs that run when spw__worker_pool_run_one is called. */
spw_status value_store_open_stepped(torture *t, uint64_t target_bytes,
                                    value_store *ret_at);
void value_store_close(value_store *at);
spw_store_figures value_store_figures(const value_store *at);
/* Wait until its files have no more than so many bytes. */
void value_store_wait_for_space(const value_store *at, uint64_t bytes);

#endif
