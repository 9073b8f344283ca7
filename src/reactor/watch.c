/* Watches: descriptors that the poller knows. What an event's tag finds is a slot,
 * whose generation changes when its watch is forgotten. */
#include <errno.h>

#include "context/allocate.h"
#include "reactor/reactor_state.h"

static uint64_t tag_of(const spw_reactor *reactor, uint32_t slot)
{
    return (uint64_t)reactor->slots[slot].generation << 32 | slot;
}

spw__watch *spw__watch_of(const spw_reactor *reactor, uint64_t tag)
{
    uint32_t slot = (uint32_t)tag;
    if (slot >= reactor->slots_used || tag != tag_of(reactor, slot))
        return NULL;
    return reactor->slots[slot].watch;
}

static bool take_slot(spw_reactor *reactor, spw__watch *watch)
{
    uint32_t slot = reactor->free_slot;
    if (slot != SPW__NO_SLOT) {
        reactor->free_slot = reactor->slots[slot].next_free;
    } else {
        if (spw__grow(reactor->context, &reactor->slots, &reactor->slot_capacity,
                      (size_t)reactor->slots_used + 1, sizeof(watch_slot),
                      NULL) != SPW_STATUS_OK)
            return false;
        slot = reactor->slots_used++;
        reactor->slots[slot].generation = 0;
    }
    reactor->slots[slot].watch = watch;
    watch->slot = slot;
    return true;
}

static void give_up_slot(spw_reactor *reactor, uint32_t slot)
{
    reactor->slots[slot].watch = NULL;
    reactor->slots[slot].generation++;
    reactor->slots[slot].next_free = reactor->free_slot;
    reactor->free_slot = slot;
}

static unsigned wanted(const spw__watch *watch)
{
    unsigned ready = 0;
    if (watch->reading.state == SPW__TASK_ARMED)
        ready |= watch->reading.wants;
    if (watch->writing.state == SPW__TASK_ARMED)
        ready |= watch->writing.wants;
    return ready;
}

static int rearm(const spw_reactor *reactor, const spw__watch *watch)
{
    return spw__poller_rearm(reactor->poller, watch->descriptor, wanted(watch),
                             tag_of(reactor, watch->slot));
}

int spw__watch_want(spw_reactor *reactor, spw__watch *watch)
{
    if (watch->reactor != NULL)
        return rearm(reactor, watch);
    if (!take_slot(reactor, watch))
        return -ENOMEM;
    int answer = spw__poller_add(reactor->poller, watch->descriptor, wanted(watch),
                                 tag_of(reactor, watch->slot));
    if (answer < 0)
        give_up_slot(reactor, watch->slot);
    else
        watch->reactor = reactor;
    return answer;
}

void spw__watch_wait_again(spw_reactor *reactor, spw__watch *watch)
{
    if (wanted(watch) == 0 || rearm(reactor, watch) >= 0)
        return;
    if (watch->reading.state == SPW__TASK_ARMED)
        spw__task_finish(&watch->reading);
    if (watch->writing.state == SPW__TASK_ARMED)
        spw__task_finish(&watch->writing);
}

void spw__watch_forget(spw__watch *watch)
{
    spw_reactor *reactor = watch->reactor;
    if (reactor == NULL)
        return;
    watch->reactor = NULL;
    if (!spw__reactor_is_ours(reactor))
        return;
    spw__reactor_lock(reactor);
    spw__poller_remove(reactor->poller, watch->descriptor);
    give_up_slot(reactor, watch->slot);
    spw__reactor_unlock(reactor);
}
