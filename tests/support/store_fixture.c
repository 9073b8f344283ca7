#include "store_fixture.h"

#include <sched.h>
#include <string.h>

#include "store/store_state.h"

static void *work(void *user)
{
    store_fixture *f = user;
    spw_store_event event;
    do {
        spw_store_work(f->store, -1, &event);
        if (event.kind == SPW_STORE_FAILED) {
            memcpy(f->last_failure, event.error.message, sizeof f->last_failure);
            f->last_status = event.error.status;
            f->failed++;
        } else if (event.kind == SPW_STORE_LEFT) {
            f->left++;
        }
        spw_entry_unref(event.entry);
    } while (event.kind != SPW_STORE_CLOSED);
    return NULL;
}

spw_status store_fixture_open_as(torture *t, store_fixture *f,
                                 spw_store_options *options, uint64_t limit_bytes,
                                 bool is_stepped)
{
    *f = (store_fixture){.objects.context = t->context};
    spw_store_directory directories[COUNT_OF(f->places)];
    for (size_t i = 0; i < COUNT_OF(directories); i++) {
        private_place_open(&f->places[i]);
        directories[i] = (spw_store_directory){.path = f->places[i].directory,
                                               .limit_bytes = limit_bytes};
    }
    options->ops = stored_object_ops;
    options->self = &f->objects;
    options->directories = directories;
    if (options->directory_count == 0)
        options->directory_count = 1;
    return is_stepped ? spw__store_create(t->context, options, 0, &f->store, &t->error)
                      : spw_store_create(t->context, options, &f->store, &t->error);
}

spw_status store_fixture_open_with(torture *t, store_fixture *f,
                                   spw_store_options *options, uint64_t limit_bytes)
{
    return store_fixture_open_as(t, f, options, limit_bytes, false);
}

spw_status store_fixture_open(torture *t, store_fixture *f, uint64_t target_bytes)
{
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.target_bytes = target_bytes;
    return store_fixture_open_with(t, f, &options, 0);
}

void store_fixture_start_work(store_fixture *f)
{
    assert_int_equal(pthread_create(&f->worker, NULL, work, f), 0);
    f->has_worker = true;
}

void store_fixture_close(store_fixture *f)
{
    if (f->store != NULL)
        spw_store_close(f->store);
    if (f->has_worker)
        assert_int_equal(pthread_join(f->worker, NULL), 0);
    spw_store_free(f->store);
    assert_int_equal(f->objects.live, 0);
    for (size_t i = 0; i < COUNT_OF(f->places); i++)
        private_place_close(&f->places[i]);
}

spw_store_figures store_fixture_figures(store_fixture *f)
{
    spw_store_figures all;
    spw_store_read_figures(f->store, &all);
    return all;
}

/* What is to leave has left. */
void store_fixture_wait_until_quiet(store_fixture *f)
{
    while (store_fixture_figures(f).leaving_bytes > 0)
        (void)sched_yield();
}

spw_status store_fixture_put(torture *t, store_fixture *f, unsigned number, size_t size,
                             spw_entry **ret_entry)
{
    stored_object *object = stored_object_create(&f->objects, number, size);
    spw_status status =
        spw_store_put(f->store, "a key", 5, object, size, ret_entry, &t->error);
    if (status != SPW_STATUS_OK)
        stored_object_unref(object);
    return status;
}

spw_status store_fixture_put_packed(torture *t, store_fixture *f, unsigned number,
                                    size_t size, spw_entry **ret_entry)
{
    spw_payload *payload;
    spw_status status =
        stored_object_payload(t->context, number, size, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_store_put_packed(f->store, "packed", 6, payload, size, ret_entry,
                                  &t->error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

spw_status store_fixture_check(torture *t, spw_entry *entry, unsigned number,
                               size_t size)
{
    void *object;
    spw_status status = spw_entry_acquire(entry, &object, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    stored_object_check(object, number, size);
    stored_object_unref(object);
    spw_entry_unpin(entry);
    return SPW_STATUS_OK;
}

void store_fixture_remove_all(spw_entry **entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (entries[i] != NULL)
            spw_store_remove(entries[i]);
}
