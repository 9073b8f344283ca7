/* Slabs. What is known about an item is kept beside the memory and not in it, so that
 * whoever writes past a buffer damages data and not the pool.
 * Invariant: an item is live, or in the list of its state; live + warm + the cold ones
 * are count. */
#include "memory/slab.h"

#include <assert.h>

#include "context/allocate.h"
#include "platform/memory_map.h"

enum { NO_ITEM = UINT16_MAX };
enum { ITEM_LIVE, ITEM_WARM, ITEM_COLD };

static_assert(SPW__SLAB_BYTES / SPW__SLAB_FROM_BYTES < NO_ITEM,
              "an item's number fits its links");

/* Sizes double every 8 classes. */
static size_t base_of(unsigned size_class)
{
    return SPW__SLAB_FROM_BYTES << (size_class / 8);
}

size_t spw__slab_class_bytes(unsigned size_class)
{
    size_t base = base_of(size_class);
    return base + base / 8 * (size_class % 8);
}

unsigned spw__slab_class_of(size_t size)
{
    unsigned size_class = 0;
    while (base_of(size_class + 8) < size)
        size_class += 8;
    size_t base = base_of(size_class), step = base / 8;
    return size > base ? size_class + (unsigned)((size - base + step - 1) / step)
                       : size_class;
}

static uint16_t *head_of(spw__slab *slab, uint8_t state)
{
    return state == ITEM_WARM ? &slab->warm_head : &slab->cold_head;
}

static void push(spw__slab *slab, uint32_t i, uint8_t state)
{
    uint16_t *head = head_of(slab, state);
    spw__slab_item *item = &slab->items[i];
    item->state = state;
    item->previous = NO_ITEM;
    item->next = *head;
    if (*head != NO_ITEM)
        slab->items[*head].previous = (uint16_t)i;
    *head = (uint16_t)i;
}

static void take_out(spw__slab *slab, uint32_t i)
{
    spw__slab_item *item = &slab->items[i];
    if (item->previous != NO_ITEM)
        slab->items[item->previous].next = item->next;
    else
        *head_of(slab, item->state) = item->next;
    if (item->next != NO_ITEM)
        slab->items[item->next].previous = item->previous;
    item->state = ITEM_LIVE;
}

static size_t slab_struct_bytes(size_t count)
{
    return sizeof(spw__slab) + count * sizeof(spw__slab_item);
}

spw__slab *spw__slab_create(spw_context *context, unsigned size_class, void *memory)
{
    size_t item_bytes = spw__slab_class_bytes(size_class);
    uint32_t count = (uint32_t)(SPW__SLAB_BYTES / item_bytes);
    spw__slab *slab =
        spw__allocate(context, slab_struct_bytes(count), _Alignof(spw__slab));
    if (slab == NULL)
        return NULL;
    *slab = (spw__slab){
        .memory = memory,
        .item_bytes = item_bytes,
        .size_class = size_class,
        .count = count,
        .warm_head = NO_ITEM,
        .cold_head = NO_ITEM,
    };
    for (uint32_t i = count; i-- > 0;)
        push(slab, i, ITEM_COLD);
    return slab;
}

void spw__slab_free(spw__slab *slab, spw_context *context)
{
    spw__memory_unmap(slab->memory, SPW__SLAB_BYTES);
    spw__release(context, slab, slab_struct_bytes(slab->count), _Alignof(spw__slab));
}

bool spw__slab_is_full(const spw__slab *slab)
{
    return slab->live == slab->count;
}

void *spw__slab_take(spw__slab *slab, bool *ret_is_warm)
{
    *ret_is_warm = slab->warm > 0;
    uint32_t i = *ret_is_warm ? slab->warm_head : slab->cold_head;
    take_out(slab, i);
    slab->live++;
    slab->warm -= *ret_is_warm;
    return slab->memory + i * slab->item_bytes;
}

void spw__slab_put(spw__slab *slab, void *data, uint32_t now_ms)
{
    uint32_t i = (uint32_t)((size_t)((char *)data - slab->memory) / slab->item_bytes);
    assert(slab->items[i].state == ITEM_LIVE);
    slab->items[i].idle_since_ms = now_ms;
    push(slab, i, ITEM_WARM);
    slab->live--;
    slab->warm++;
}

bool spw__slab_next_run(const spw__slab *slab, uint32_t from, uint32_t now_ms,
                        uint32_t older_than_ms, uint32_t *ret_oldest_ms,
                        spw__slab_run *ret_run)
{
    spw__slab_run run = {from, from, 0};
    for (uint32_t i = from; i < slab->count; i++) {
        const spw__slab_item *item = &slab->items[i];
        uint32_t idle_ms = now_ms - item->idle_since_ms;
        bool is_due = item->state == ITEM_WARM && idle_ms >= older_than_ms;
        if (item->state == ITEM_WARM && !is_due && idle_ms > *ret_oldest_ms)
            *ret_oldest_ms = idle_ms;
        if (is_due || item->state == ITEM_COLD) {
            run.end = i + 1;
            run.warm += is_due;
        } else if (run.warm > 0) {
            break;
        } else {
            run.first = run.end = i + 1;
        }
    }
    if (run.warm == 0)
        return false;
    *ret_run = run;
    return true;
}

void spw__slab_take_run(spw__slab *slab, const spw__slab_run *run)
{
    for (uint32_t i = run->first; i < run->end; i++)
        take_out(slab, i);
    slab->live += run->end - run->first;
    slab->warm -= run->warm;
}

void spw__slab_discard_run(const spw__slab *slab, const spw__slab_run *run)
{
    /* Small items share pages with their neighbours: only those inside are free. */
    size_t page = spw__memory_page_bytes();
    size_t start = (run->first * slab->item_bytes + page - 1) & ~(page - 1);
    size_t end = run->end * slab->item_bytes & ~(page - 1);
    if (start < end)
        spw__memory_discard(slab->memory + start, end - start);
}

void spw__slab_put_run(spw__slab *slab, const spw__slab_run *run)
{
    for (uint32_t i = run->end; i-- > run->first;)
        push(slab, i, ITEM_COLD);
    slab->live -= run->end - run->first;
}
