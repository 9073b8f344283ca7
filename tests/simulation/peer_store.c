/* A store of a peer's on the same host: what it spills is adopted. Its own jobs run
 * when peer_act is called, and when somebody waits for one. */
#include "handed_files.h"
#include "testing.h"
#include "world.h"

void peer_open(world *w, uint64_t file_bytes)
{
    world_place_open(w, &w->peer_place);
    spw_store_directory directory = {.path = w->peer_place.directory};
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.ops = stored_object_ops;
    options.self = &w->objects;
    options.directories = &directory;
    options.directory_count = 1;
    options.file_bytes = file_bytes;
    spw_status status =
        spw__store_create(w->counted.context, &options, 0, &w->peer, NULL);
    world_require(w, status == SPW_STATUS_OK, "create a peer");
}

void peer_close(world *w)
{
    for (int i = 0; i < PEERS; i++)
        if (w->peers[i] != NULL)
            spw_store_remove(w->peers[i]);
    spw_store_free(w->peer);
    private_place_close(&w->peer_place);
}

static spw_payload *handed(world *w, spw_entry *entry)
{
    spw_payload *stored, *payload;
    spw_error error;
    if (spw_entry_spill(entry, &error) != SPW_STATUS_OK) {
        world_require(w, w->disk_fails, "spill at a peer");
        return NULL;
    }
    spw_status status = spw_entry_payload(entry, &stored, NULL);
    world_require(w, status == SPW_STATUS_OK, "get what a peer spilled");
    /* With checksums, for the disk may lie. */
    status = handed_payload(w->counted.context, stored, true, &payload, NULL);
    world_require(w, status == SPW_STATUS_OK, "hand over");
    spw_payload_free(stored);
    return payload;
}

spw_payload *peer_hand_over(world *w, size_t place, unsigned number, size_t size)
{
    spw_payload *payload;
    spw_entry *entry;
    spw_status status =
        stored_object_payload(w->counted.context, number, size, &payload, NULL);
    world_require(w, status == SPW_STATUS_OK, "no payload");
    status = spw_store_put_packed(w->peer, "p", 1, payload, size, &entry, NULL);
    world_require(w, status == SPW_STATUS_OK, "put at a peer");
    payload = handed(w, entry);
    spw_entry *before = w->peers[place];
    w->peers[place] = entry;
    if (before != NULL)
        spw_store_remove(before);
    return payload;
}

void peer_act(world *w, size_t place)
{
    spw_entry *entry = w->peers[place];
    w->peers[place] = NULL;
    if (entry != NULL)
        spw_store_remove(entry);
    (void)spw__worker_pool_run_one(w->peer->pool);
}
