/* A state of an entry is the set of what is true of it. Few of the sets can be: how
 * many were seen, and how many together with what was done then, says how far the seeds
 * have gone. */
#include "coverage.h"

#include <inttypes.h>
#include <stdio.h>

#include "disk_fault.h"
#include "world.h"

static const char *const ACTS[ACT_COUNT] = {
    "put", "removed", "acquired", "tried",    "held", "let go",  "spilled", "eviction",
    "job", "work",    "ahead",    "adoption", "peer", "receipt", "trouble"};

static const char *const TRAITS[] = {"live",    "packed", "on disk",   "lost",
                                     "pinned",  "coming", "leaving",   "in line",
                                     "waiting", "ahead",  "unpackable"};
enum { TRAIT_COUNT = sizeof TRAITS / sizeof TRAITS[0], STATES = 1 << TRAIT_COUNT };

static struct {
    uint64_t acts[ACT_COUNT], depths[DEPTH_MAX + 1], traits[TRAIT_COUNT];
    bool states[STATES], pairs[ACT_COUNT][STATES];
    uint64_t slow; /* runs */
} all;

static unsigned state_of(const spw_entry *entry)
{
    const bool traits[TRAIT_COUNT] = {entry->forms.object != NULL,
                                      entry->forms.packed != NULL,
                                      entry->forms.on_disk != NULL,
                                      entry->lost != SPW_STATUS_OK,
                                      entry->pins > 0,
                                      entry->is_coming,
                                      entry->is_leaving,
                                      entry->turn == SPW__TURN_LEAVING,
                                      entry->turn == SPW__TURN_WAITING,
                                      entry->is_ahead || entry->ahead != NULL,
                                      entry->cannot_leave};
    unsigned state = 0;
    for (unsigned i = 0; i < TRAIT_COUNT; i++)
        state |= (unsigned)traits[i] << i;
    return state;
}

void coverage_note_act(act_kind kind, unsigned depth, const spw_entry *entry)
{
    all.acts[kind]++;
    all.depths[depth]++;
    if (entry == NULL)
        return;
    unsigned state = state_of(entry);
    for (unsigned i = 0; i < TRAIT_COUNT; i++)
        all.traits[i] += state >> i & 1;
    all.states[state] = true;
    all.pairs[kind][state] = true;
}

void coverage_note_end(const spw_store *store)
{
    all.slow += store->speed.slow_until_ms > 0;
}

static void print_disk(void)
{
    disk_fault_figures disk = disk_fault_read_figures();
    printf("disk: %" PRIu64 " files (%" PRIu64 " failed), %" PRIu64 " writes (%" PRIu64
           " failed, %" PRIu64 " found it full), %" PRIu64 " reads (%" PRIu64
           " failed, %" PRIu64 " cut short, %" PRIu64
           " with a wrong bit); slow at the end of %" PRIu64 " runs\n",
           disk.creates, disk.creates_failed, disk.writes, disk.writes_failed,
           disk.writes_full, disk.reads, disk.reads_failed, disk.reads_cut,
           disk.reads_corrupt, all.slow);
}

void coverage_print(void)
{
    unsigned states = 0, pairs = 0;
    printf("acts:");
    for (int i = 0; i < ACT_COUNT; i++)
        printf(" %s %" PRIu64, ACTS[i], all.acts[i]);
    printf("\ndepths:");
    for (int i = 0; i <= DEPTH_MAX; i++)
        printf(" %" PRIu64, all.depths[i]);
    printf("\n");
    print_disk();
    printf("entries acted upon:");
    for (unsigned i = 0; i < TRAIT_COUNT; i++)
        printf(" %s %" PRIu64, TRAITS[i], all.traits[i]);
    for (int state = 0; state < STATES; state++) {
        states += all.states[state];
        for (int i = 0; i < ACT_COUNT; i++)
            pairs += all.pairs[i][state];
    }
    printf("; %u states, %u with what was done then\n", states, pairs);
}
