#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/arrival.h"
#include "world.h"

void world_require(const world *w, bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "seed %" PRIu64 ": %s\n", w->seed, what);
    abort();
}

typedef struct tiers {
    uint64_t counts[3], weights[3]; /* live, packed, on disk */
    uint64_t apart, ahead;
    uint64_t first_to_go; /* weight of those read ahead that may leave */
} tiers;

static void tally(tiers *all, const spw_entry *entry)
{
    const spw__forms *forms = &entry->forms;
    int tier = forms->object != NULL ? 0 : forms->packed != NULL ? 1 : 2;
    if (forms->object == NULL && forms->packed == NULL && forms->on_disk == NULL)
        return;
    all->counts[tier]++;
    all->weights[tier] += entry->weight;
    if (tier < 2)
        all->apart += entry->weight - spw__entry_counted_weight(entry);
    if (entry->is_ahead)
        all->ahead += spw_payload_bytes(forms->packed);
    if (entry->is_ahead && entry->turn == SPW__TURN_WAITING)
        all->first_to_go += entry->weight;
}

static void check_entry(const world *w, const spw_entry *entry)
{
    const spw__forms *forms = &entry->forms;
    bool is_in_memory = forms->object != NULL || forms->packed != NULL;
    world_require(
        w, (is_in_memory || forms->on_disk != NULL) == (entry->lost == SPW_STATUS_OK),
        "an entry has nothing and was not lost, or the other way round");
    world_require(w, (forms->on_disk == NULL) == (forms->range.segment == NULL),
                  "bytes on disk without a range");
    world_require(w, !entry->is_removed, "removed, and still there");
    world_require(w,
                  !entry->is_ahead || (forms->object == NULL && forms->packed != NULL &&
                                       forms->on_disk != NULL),
                  "read ahead, and not there or used");
    bool may_leave = is_in_memory && entry->pins == 0 && !entry->is_coming &&
                     !entry->is_leaving && !entry->cannot_leave &&
                     w->store->segments != NULL;
    world_require(w, may_leave == (entry->turn == SPW__TURN_WAITING),
                  "an entry is not where it belongs");
}

/* Those that were removed, and that somebody has: each once. */
static void tally_removed(const world *w, tiers *all)
{
    for (int i = 0; i < HELD; i++) {
        const spw_entry *entry = w->holds[i].entry;
        bool is_first = entry != NULL && entry->is_removed;
        for (int j = 0; j < i && is_first; j++)
            is_first = w->holds[j].entry != entry;
        if (is_first)
            tally(all, entry);
    }
}

static void check_arrivals(const world *w)
{
    uint64_t reserved = 0;
    for (const spw__arrival *one = w->store->arrivals; one != NULL; one = one->next) {
        world_require(w, one->reserved > 0 || one->range.segment != NULL,
                      "an arrival has nothing, and is among those that have");
        reserved += one->reserved;
    }
    world_require(w, reserved == w->store->arriving_weight,
                  "room is reserved that nobody has");
}

void world_check(const world *w)
{
    const spw_store *store = w->store;
    check_arrivals(w);
    const spw_store_figures *figures = &store->figures;
    const spw_store_tier *said[] = {&figures->live, &figures->packed,
                                    &figures->on_disk};
    tiers all = {0};
    for (const spw_entry *entry = store->all.first; entry != NULL;
         entry = entry->links[SPW__LINK_ALL].next) {
        check_entry(w, entry);
        tally(&all, entry);
    }
    world_require(w, all.first_to_go == store->order.classes[SPW__CLASS_AHEAD].weight,
                  "others are among those read ahead, or they among others");
    world_require(w, store->ahead_bytes <= store->read_ahead_bytes,
                  "more is read ahead than may be");
    world_require(w, store->reading_ahead > 0 || all.ahead == store->ahead_bytes,
                  "what is read ahead is not what is said");
    if (store->leaving.first != NULL || store->spills > 0 || store->reading_ahead > 0)
        return; /* what was removed may be among those that are leaving */
    tally_removed(w, &all);
    for (int i = 0; i < 3; i++)
        world_require(
            w, all.counts[i] == said[i]->count && all.weights[i] == said[i]->weight,
            "the figures are not those of the entries");
    world_require(w, all.apart == store->apart_weight, "not what stands apart");
    world_require(w,
                  store->leaving_bytes == 0 && store->leaving_weight == 0 &&
                      store->unpacked == 0,
                  "something is leaving that nobody knows");
}

void world_check_nothing_can_go(const world *w)
{
    bool is_in_trouble = spw__store_is_in_trouble(w->store);
    for (const spw_entry *entry = w->store->all.first; entry != NULL;
         entry = entry->links[SPW__LINK_ALL].next)
        world_require(w,
                      entry->turn != SPW__TURN_WAITING || entry->weight == 0 ||
                          (is_in_trouble && entry->forms.on_disk == NULL),
                      "what can leave memory stays when somebody asks for it");
}
