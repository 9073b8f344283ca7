/* The store, simulated: a single thread does what many would, in an order that follows
 * from a seed. Whatever blocks (a disk, a pack, an unpack) lets others act in its
 * middle, down to a few levels, the disk fails, fills and lies, and time jumps. An
 * array of what was put says what has to come out. A seed that fails, fails again:
 *
 *     simulate_store FIRST_SEED COUNT [STEPS]
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coverage.h"
#include "disk_fault.h"
#include "fake_system.h"
#include "io_fault.h"
#include "store/read_back.h"
#include "stored_arrivals.h"
#include "testing.h"
#include "world.h"

static size_t any_size(world *w)
{
    switch (below(w, 8)) {
    case 0:
        return 0;
    case 1:
    case 2:
        return below(w, 4096);
    case 3:
        return below(w, one_in(w, 4) ? SIZE_MAX_BYTES : 100000);
    default:
        return below(w, 30000);
    }
}

/* ----- what somebody does ----- */

static void take_out(slot *s)
{
    spw_entry *entry = s->entry;
    *s = (slot){0};
    spw_store_remove(entry);
}

/* Takes: object. */
static void put_spilled(world *w, slot *s, stored_object *object, size_t weight)
{
    spw_entry *entry;
    slot made = {.number = object->number, .size = object->size};
    bool cannot_pack = object->cannot_pack;
    spw_error error;
    spw_status status =
        spw_store_put_spilled(w->store, "k", 1, object, weight, &entry, &error);
    if (status != SPW_STATUS_OK) {
        world_require(w, cannot_pack || w->disk_fails || w->store->segments == NULL,
                      "put spilled");
        stored_object_check(object, made.number, made.size);
        stored_object_unref(object);
        return;
    }
    world_require(w, (spw_entry_forms(entry) & SPW_ENTRY_ON_DISK) != 0,
                  "put spilled, and not on disk");
    if (s->entry != NULL)
        take_out(s); /* somebody was faster */
    made.entry = entry;
    *s = made;
}

static void put(world *w, slot *s)
{
    spw_status status;
    spw_entry *entry;
    unsigned number = ++w->numbers;
    size_t size = any_size(w);
    char key[16];
    size_t key_size = (size_t)snprintf(key, sizeof key, "k%zu", (size_t)(s - w->slots));
    if (one_in(w, 3)) {
        spw_payload *payload;
        status =
            stored_object_payload(w->counted.context, number, size, &payload, NULL);
        world_require(w, status == SPW_STATUS_OK, "no payload");
        status =
            spw_store_put_packed(w->store, key, key_size, payload, size, &entry, NULL);
    } else {
        stored_object *object = stored_object_create(&w->objects, number, size);
        object->cannot_pack = one_in(w, 20);
        /* Sizes that an owner tells are wrong by much. */
        size_t weight = one_in(w, 5) ? size / 30 : size;
        if (one_in(w, 6)) {
            put_spilled(w, s, object, weight);
            return;
        }
        status = spw_store_put(w->store, key, key_size, object, weight, &entry, NULL);
    }
    world_require(w, status == SPW_STATUS_OK, "put");
    *s = (slot){.entry = entry, .number = number, .size = size};
}

static void meanwhile(void *user);

/* Of who receives, and waits for the disk: false, its connection is lost. */
static bool wait_for_disk(void *user)
{
    world *w = user;
    meanwhile(w);
    (void)spw__worker_pool_run_one(w->store->pool);
    return !one_in(w, 30);
}

/* A value arrives, and is put unless that fails, or nobody wants it any more. */
static void receive(world *w)
{
    unsigned number = ++w->numbers;
    size_t size = SPW__LARGE_BYTES + below(w, SPW__LARGE_BYTES / 4);
    spw_payload *sent, *received;
    spw_status status =
        stored_object_payload(w->counted.context, number, size, &sent, NULL);
    world_require(w, status == SPW_STATUS_OK, "no payload");
    status = stored_arrival_bring(w->store, w->counted.context, sent, wait_for_disk, w,
                                  &received, NULL);
    spw_payload_free(sent);
    if (status != SPW_STATUS_OK) {
        world_require(w,
                      status == SPW_STATUS_CLOSED ||
                          (status == SPW_STATUS_IO && w->disk_fails),
                      "a value cannot arrive");
        return;
    }
    slot *s =
        &w->slots[below(w, SLOTS)]; /* whoever acted meanwhile may have filled it */
    spw_entry *entry;
    if (s->entry != NULL || one_in(w, 4)) {
        spw_payload_free(received);
        return;
    }
    bool is_on_disk =
        spw_payload_slices(received)[spw_payload_count(received) - 2].kind ==
        SPW_MEMORY_FILE;
    status = spw_store_put_packed(w->store, "r", 1, received, size, &entry, NULL);
    world_require(w, status == SPW_STATUS_OK, "put what arrived");
    world_require(w, !is_on_disk || spw_entry_forms(entry) == SPW_ENTRY_ON_DISK,
                  "what came to disk is not there");
    w->received += is_on_disk;
    *s = (slot){.entry = entry, .number = number, .size = size};
}

/* Have a value where the peer has it. */
static void adopt(world *w)
{
    unsigned number = ++w->numbers;
    size_t size = 1 + any_size(w);
    spw_payload *handed = peer_hand_over(w, below(w, PEERS), number, size);
    slot *s = &w->slots[below(w, SLOTS)];
    spw_entry *entry;
    if (handed == NULL || s->entry != NULL || one_in(w, 8)) {
        spw_payload_free(handed);
        return;
    }
    spw_status status =
        spw_store_put_packed(w->store, "a", 1, handed, size, &entry, NULL);
    if (status != SPW_STATUS_OK) {
        world_require(
            w, status == SPW_STATUS_INVALID_ARGUMENT && w->store->segments == NULL,
            "adopt");
        spw_payload_free(handed);
        return;
    }
    world_require(w, spw_entry_forms(entry) == SPW_ENTRY_ON_DISK,
                  "what was adopted is not on disk");
    w->adopted++;
    if (s->entry != NULL)
        take_out(s); /* somebody was faster */
    *s = (slot){.entry = entry, .number = number, .size = size};
}

static hold *free_hold(world *w)
{
    for (int i = 0; i < HELD; i++)
        if (w->holds[i].entry == NULL && w->holds[i].payload == NULL)
            return &w->holds[i];
    return NULL;
}

/* Nobody below us on the stack, who cannot go on before we do, is at it. */
static bool would_wait(const spw_entry *entry)
{
    return entry->is_coming && entry->ahead == NULL && entry->forms.object == NULL;
}

static void acquire(world *w, slot *s)
{
    void *object;
    spw_error error;
    hold *h = free_hold(w);
    if (h == NULL || would_wait(s->entry))
        return;
    spw_entry *entry = spw_entry_ref(s->entry);
    unsigned number = s->number;
    size_t size = s->size;
    *h = (hold){.entry = entry};
    spw_status status = spw_entry_acquire(entry, &object, &error);
    if (status == SPW_STATUS_OK) {
        stored_object_check(object, number, size);
        *h = (hold){.entry = entry,
                    .object = object,
                    .is_pinned = true,
                    .number = number,
                    .size = size};
        w->acquired++;
        return;
    }
    *h = (hold){0};
    world_require(w, w->disk_fails, "a value was lost by a disk that did not fail");
    world_require(w, status == SPW_STATUS_IO || status == SPW_STATUS_CORRUPT,
                  "acquire answers something else");
    world_require(w,
                  (spw_entry_forms(entry) & SPW_ENTRY_LOST) != 0 || entry->is_removed,
                  "not said to be lost");
    if (s->entry == entry)
        s->is_lost = true;
    w->losses++;
    spw_entry_unref(entry);
}

static void try_acquire(slot *s)
{
    stored_object *object = spw_entry_try_acquire(s->entry);
    if (object == NULL)
        return;
    stored_object_check(object, s->number, s->size);
    stored_object_unref(object);
    spw_entry_unpin(s->entry);
}

/* Hold what would be sent. */
static void hold_payload(world *w, slot *s)
{
    hold *h = free_hold(w);
    spw_payload *payload;
    if (h == NULL)
        return;
    spw_status status = spw_entry_payload(s->entry, &payload, NULL);
    if (status == SPW_STATUS_OK)
        *h = (hold){.payload = payload, .number = s->number, .size = s->size};
    else
        world_require(w, status == SPW_STATUS_UNSUPPORTED || s->is_lost, "payload");
}

static void let_go(world *w, hold *h)
{
    hold had = *h;
    if (had.object == NULL && had.payload == NULL)
        return; /* nothing, or somebody below us is about to fill it */
    *h = (hold){0};
    if (had.object != NULL) {
        stored_object_check(had.object, had.number, had.size);
        if (had.is_pinned) {
            spw_entry_unpin(had.entry);
            had.is_pinned = false;
            *h = had;
            return;
        }
        if (one_in(w, 2))
            spw_entry_revive(had.entry, had.object);
        else
            stored_object_unref(had.object);
        spw_entry_unref(had.entry);
    } else if (had.payload != NULL) {
        /* It is as it was, whatever became of its entry. */
        spw_payload *read;
        spw__read_back_figures figures = {0};
        calm_disk();
        unsigned depth = w->depth;
        w->depth = DEPTH_MAX; /* nobody acts meanwhile, and brings trouble back */
        world_require(w,
                      spw__read_back(w->counted.context, had.payload, false, &read,
                                     &figures, NULL) == SPW_STATUS_OK,
                      "what was to be sent is gone");
        w->depth = depth;
        stored_object_check_payload(read, had.number, had.size);
        spw_payload_free(read);
        spw_payload_free(had.payload);
    }
}

static void spill(world *w, slot *s)
{
    spw_entry *entry = s->entry;
    if (entry->is_leaving && entry->turn != SPW__TURN_LEAVING)
        return;
    (void)spw_entry_ref(entry);
    spw_error error;
    spw_status status = spw_entry_spill(entry, &error);
    if (status == SPW_STATUS_OK)
        world_require(w,
                      (spw_entry_forms(entry) & SPW_ENTRY_ON_DISK) != 0 ||
                          entry->is_removed || entry->lost != SPW_STATUS_OK,
                      "spilled, and not on disk");
    else
        world_require(w,
                      status == SPW_STATUS_UNSUPPORTED || w->disk_fails || s->is_lost,
                      "spill fails");
    spw_entry_unref(entry);
}

static void work(world *w)
{
    spw_store_event event;
    spw_store_work(w->store, 0, &event);
    if (event.kind == SPW_STORE_LEFT)
        w->left++;
    if (event.kind == SPW_STORE_FAILED)
        w->failed++;
    spw_entry_unref(event.entry);
}

static void evict(world *w)
{
    uint64_t before = w->store->figures.live.weight + w->store->figures.packed.weight;
    int64_t weight = spw_store_evict(w->store, below(w, SIZE_MAX_BYTES));
    world_require(w, weight == -1 || (uint64_t)weight <= before,
                  "evict answers too much");
    if (weight == -1 && w->store->leaving_bytes == 0 && w->store->unpacked == 0)
        world_check_nothing_can_go(w);
}

static void act(world *w);

/* In the middle of whatever blocks. */
static void meanwhile(void *user)
{
    world *w = user;
    if (w->depth >= DEPTH_MAX)
        return;
    w->depth++;
    for (size_t n = below(w, 3); n > 0; n--)
        act(w);
    w->depth--;
}

static void meanwhile_on_disk(void *user, disk_fault_way way)
{
    (void)way;
    meanwhile(user);
}

/* One of an entry, or of one whose object somebody still has. entry may be NULL. */
static void read_ahead(world *w, spw_entry *entry)
{
    const hold *h = &w->holds[below(w, HELD)];
    if (h->object != NULL && !h->is_pinned)
        entry = h->entry;
    w->ahead += entry != NULL && spw_entry_read_ahead(entry);
}

/* Notes what is about to be done. Returns: whether there is an entry to do it to. */
static bool about_to(const world *w, act_kind kind, const slot *s)
{
    if (s->entry != NULL)
        coverage_note_act(kind, w->depth, s->entry);
    return s->entry != NULL;
}

/* The same of what is done to no entry. */
static void about_to_do(const world *w, act_kind kind)
{
    coverage_note_act(kind, w->depth, NULL);
}

static void put_or_replace(world *w, slot *s)
{
    if (s->entry != NULL && one_in(w, 2) && about_to(w, ACT_REMOVE, s))
        take_out(s);
    if (s->entry == NULL) {
        about_to_do(w, ACT_PUT);
        put(w, s);
    }
}

/* What concerns others than the store's owner, and the passing of time. */
static void act_around(world *w, unsigned which)
{
    if (which == 0) {
        bool adopts = one_in(w, 2);
        about_to_do(w, adopts ? ACT_ADOPT : ACT_PEER);
        if (adopts)
            adopt(w);
        else
            peer_act(w, below(w, PEERS));
        return;
    }
    if (one_in(w, 16)) {
        about_to_do(w, ACT_RECEIVE);
        receive(w);
    }
    if (one_in(w, 4)) {
        about_to_do(w, ACT_TROUBLE);
        trouble_disk(w);
    }
    w->now_ms += below(w, one_in(w, 10) ? 60000 : 100);
    fake_clock_set(w->now_ms);
}

static void act(world *w)
{
    slot *s = &w->slots[below(w, SLOTS)];
    unsigned which = (unsigned)below(w, 18);
    switch (which) {
    case 0:
    case 1:
    case 2:
        put_or_replace(w, s);
        break;
    case 3:
        if (about_to(w, ACT_REMOVE, s))
            take_out(s);
        break;
    case 4:
    case 5:
    case 6:
        if (about_to(w, ACT_ACQUIRE, s))
            acquire(w, s);
        break;
    case 7:
        if (about_to(w, ACT_TRY_ACQUIRE, s))
            try_acquire(s);
        break;
    case 8:
        if (about_to(w, ACT_HOLD, s))
            hold_payload(w, s);
        break;
    case 9:
    case 10:
        about_to_do(w, ACT_LET_GO);
        let_go(w, &w->holds[below(w, HELD)]);
        break;
    case 11:
        if (about_to(w, ACT_SPILL, s))
            spill(w, s);
        break;
    case 12:
        about_to_do(w, ACT_EVICT);
        evict(w);
        break;
    case 13:
        about_to_do(w, ACT_RUN_JOB);
        (void)spw__worker_pool_run_one(w->store->pool);
        break;
    case 14:
        about_to_do(w, ACT_WORK);
        work(w);
        break;
    case 15:
        (void)about_to(w, ACT_READ_AHEAD, s);
        read_ahead(w, s->entry);
        break;
    default:
        act_around(w, which - 16);
    }
}

/* ----- a run ----- */

static void open_world(world *w, uint64_t seed)
{
    *w = (world){.seed = seed, .random = seed, .now_ms = 1000000};
    fake_clock_set(w->now_ms);
    counted_context_open(&w->counted, 0, 0);
    world_place_open(w, &w->place);
    w->objects.context = w->counted.context;
    w->objects.during = meanwhile;
    w->objects.user = w;
    w->disk_fails = one_in(w, 2);
    disk_fault_reset();
    disk_fault_during(DISK_FAULT_READING | DISK_FAULT_WRITING | DISK_FAULT_CREATING |
                          DISK_FAULT_REOPENING,
                      meanwhile_on_disk, w);
    static const uint64_t LIMITS[] = {0, 1 << 20, 8 << 20, 64 << 20};
    static const uint64_t TARGETS[] = {0, 1, 200000, 4 << 20};
    spw_store_directory directory = {.path = w->place.directory,
                                     .limit_bytes = LIMITS[below(w, 4)]};
    if (directory.limit_bytes > 0 && directory.limit_bytes < (64 << 20))
        w->disk_fails = true; /* it fills */
    spw_store_options options = SPW_STORE_OPTIONS_INIT;
    options.ops = stored_object_ops;
    options.self = &w->objects;
    options.directories = &directory;
    options.directory_count = one_in(w, 20) ? 0 : 1;
    options.target_bytes = TARGETS[below(w, 4)];
    options.in_flight_bytes = one_in(w, 3) ? 100000 : 0;
    options.read_ahead_bytes = LIMITS[below(w, 3)];
    options.file_bytes = one_in(w, 2) ? 200000 : 2 << 20;
    options.codec = one_in(w, 4) ? SPW_CODEC_LZ4 : SPW_CODEC_NONE;
    world_require(w,
                  spw__store_create(w->counted.context, &options, 0, &w->store, NULL) ==
                      SPW_STATUS_OK,
                  "create");
    peer_open(w, one_in(w, 2) ? 200000 : 2 << 20);
}

static void close_world(world *w)
{
    disk_fault_during(0, NULL, NULL);
    w->objects.during = NULL;
    bool peer_is_first = one_in(w, 2);
    if (peer_is_first)
        peer_close(w);
    for (int i = 0; i < HELD; i++) {
        let_go(w, &w->holds[i]); /* unpinned, and then given back */
        let_go(w, &w->holds[i]);
    }
    if (one_in(w, 2)) {
        /* All that is there comes out. */
        calm_disk();
        for (int i = 0; i < SLOTS; i++)
            if (w->slots[i].entry != NULL && !w->slots[i].is_lost) {
                acquire(w, &w->slots[i]);
                let_go(w, &w->holds[0]);
                let_go(w, &w->holds[0]);
            }
    }
    bool is_first = one_in(w, 2);
    for (int i = 0; i < SLOTS && is_first; i++)
        if (w->slots[i].entry != NULL)
            take_out(&w->slots[i]);
    spw_store_free(w->store);
    for (int i = 0; i < SLOTS && !is_first; i++)
        if (w->slots[i].entry != NULL)
            take_out(&w->slots[i]);
    world_require(w, w->objects.live == 0, "objects are left");
    if (!peer_is_first)
        peer_close(w);
    counted_context_close(&w->counted);
    private_place_close(&w->place);
    fake_clock_set(0);
    calm_disk();
    disk_fault_reset();
}

/* What one seed gave back serves the next, instead of going to the system and coming
 * again page by page. */
static void keep_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 256 << 20);
    (void)mallopt(M_TOP_PAD, 16 << 20);
}

int main(int argc, char **argv)
{
    keep_memory();
    if (argc < 3) {
        fprintf(stderr, "usage: %s FIRST_SEED COUNT [STEPS]\n", argv[0]);
        return 2;
    }
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    uint64_t steps = argc > 3 ? strtoull(argv[3], NULL, 10) : 150;
    uint64_t losses = 0, acquired = 0, left = 0, failed = 0, moved = 0, ahead = 0,
             received = 0, adopted = 0, runs = 0;
    static world w;
    failing_seed_watch(&w);
    for (uint64_t seed = first; seed < first + count; seed++) {
        open_world(&w, seed);
        for (uint64_t i = 0; i < steps; i++) {
            act(&w);
            world_check(&w);
        }
        losses += w.losses;
        acquired += w.acquired;
        left += w.left;
        failed += w.failed;
        ahead += w.ahead;
        moved += w.store->figures.moved_bytes;
        received += w.received;
        adopted += w.adopted;
        coverage_note_end(w.store);
        close_world(&w);
        runs++;
    }
    failing_seed_unwatch();
    printf("simulated %" PRIu64 " seeds from %" PRIu64 ": %" PRIu64
           " values got, %" PRIu64 " times values left, %" PRIu64 " failures, %" PRIu64
           " lost by a bad disk, %" PRIu64 " bytes moved, %" PRIu64
           " read ahead, %" PRIu64 " came to disk, %" PRIu64 " were adopted\n",
           runs, first, acquired, left, failed, losses, moved, ahead, received,
           adopted);
    coverage_print();
    return acquired > 0 && left > 0 && ahead > 0 && received > 0 && adopted > 0 ? 0 : 1;
}
