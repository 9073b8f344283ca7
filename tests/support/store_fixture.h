/* A store with a directory of its own, and a thread of its owner's that works for it,
 * for tests that put numbered objects into it. */
#ifndef SPW_TESTS_STORE_FIXTURE_H
#define SPW_TESTS_STORE_FIXTURE_H

#include <pthread.h>

#include "private_place.h"
#include "stored_objects.h"
#include "torture.h"

typedef struct store_fixture {
    stored_objects objects;
    private_place places[2];
    spw_store *store;
    pthread_t worker;
    bool has_worker;
    _Atomic unsigned left, failed;
    char last_failure[232];
    spw_status last_status;
} store_fixture;

/* Limit: of what may be in each directory; 0: none. Options may say how many of those
 * there are, which are the fixture's. A stepped store's jobs run when a test runs
 * them, or waits for one. */
spw_status store_fixture_open_as(torture *t, store_fixture *f,
                                 spw_store_options *options, uint64_t limit_bytes,
                                 bool is_stepped);
spw_status store_fixture_open_with(torture *t, store_fixture *f,
                                   spw_store_options *options, uint64_t limit_bytes);
spw_status store_fixture_open(torture *t, store_fixture *f, uint64_t target_bytes);
void store_fixture_start_work(store_fixture *f);
/* Fails the test if an object is left. */
void store_fixture_close(store_fixture *f);
spw_store_figures store_fixture_figures(store_fixture *f);
/* Until what is to leave has left. */
void store_fixture_wait_until_quiet(store_fixture *f);
/* Put the object of a number, which weighs its size. */
spw_status store_fixture_put(torture *t, store_fixture *f, unsigned number, size_t size,
                             spw_entry **ret_entry);
spw_status store_fixture_put_packed(torture *t, store_fixture *f, unsigned number,
                                    size_t size, spw_entry **ret_entry);
/* Get the object, which must be that of the number. */
spw_status store_fixture_check(torture *t, spw_entry *entry, unsigned number,
                               size_t size);
/* Those that are there: others are NULL. */
void store_fixture_remove_all(spw_entry **entries, size_t count);

#endif
