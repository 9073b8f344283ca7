/* Space on disk, given back: files of which nothing is wanted are closed, and what is
 * left in files of which little is moves to others, byte by byte, once that is much, so
 * that those can be closed too. On a thread of the store, one at a time. */
#include <assert.h>
#include <errno.h>

#include "context/allocate.h"
#include "context/error.h"
#include "context/log.h"
#include "memory/checksum.h"
#include "memory/payload_slices.h"
#include "platform/spill_file.h"
#include "store/store_state.h"

enum {
    MOVED_AT_ONCE = 1024, /* entries that are looked for in one walk */
    COPY_BYTES = 4 << 20
};

/* An entry whose bytes are to move. */
typedef struct move {
    spw_entry *entry;     /* one reference */
    spw_payload *on_disk; /* where they are, and then where they were */
} move;

static size_t find(spw_store *store, const spw__segment *segment, move *moves)
{
    size_t count = 0;
    spw__store_lock(store);
    for (spw_entry *entry = store->all.first;
         entry != NULL && count < MOVED_AT_ONCE && !store->is_closed;
         entry = entry->links[SPW__LINK_ALL].next) {
        move *next = &moves[count];
        if (entry->forms.range.segment != segment)
            continue;
        if (spw__payload_share(store, entry->forms.on_disk, &next->on_disk, NULL) !=
            SPW_STATUS_OK)
            break;
        next->entry = spw_entry_ref(entry);
        count++;
    }
    spw__store_unlock(store);
    return count;
}

/* What was copied of the slices with checksums, from one to the next. */
typedef struct seen {
    const spw_slice *next, *end;
    uint64_t bytes; /* of the next one */
    spw__checksum_state sum;
} seen;

static bool has_checksum(const spw_slice *slice)
{
    return slice->kind == SPW_MEMORY_FILE && slice->size > 0 &&
           (slice->flags & SPW_SLICE_HAS_CHECKSUM) != 0;
}

/* See size bytes of a file, from offset on, behind those that were seen before: a disk
 * may lie once, and what it said is not to be kept for ever. Where slices do not lie in
 * order, those that have been passed are left to who reads them. Returns: false if they
 * are not what was written. */
static bool see(seen *all, const char *data, size_t size, uint64_t offset)
{
    while (all->next < all->end) {
        const spw_slice *slice = all->next;
        uint64_t from = slice->offset + all->bytes, left = slice->size - all->bytes;
        if (!has_checksum(slice) || from < offset) {
            all->next++;
            continue;
        }
        if (from - offset >= size)
            return true;
        size_t lead = (size_t)(from - offset);
        size_t step = left < size - lead ? (size_t)left : size - lead;
        if (all->bytes == 0)
            spw__checksum_begin(&all->sum);
        spw__checksum_add(&all->sum, data + lead, step);
        all->bytes += step;
        if (step < left)
            return true;
        all->next++;
        all->bytes = 0;
        if (spw__checksum_end(&all->sum) != slice->checksum)
            return false;
    }
    return true;
}

/* The file that a payload is in, which it holds: the segment goes when nothing is
 * wanted of it any more, which may be while its last value moves. */
static int descriptor_of(const spw_payload *on_disk)
{
    const spw_slice *slice = spw_payload_slices(on_disk);
    while (slice->kind != SPW_MEMORY_FILE) /* the header of what was adopted */
        slice++;
    return spw_file_descriptor(slice->file);
}

/* Returns: in ret_unreadable whether it failed for what is there. */
static spw_status copy(spw_store *store, const spw_payload *on_disk,
                       const spw__range *from, const spw__range *to,
                       bool *ret_unreadable, spw_error *error)
{
    spw_buffer *buffer;
    const spw_slice *slices = spw_payload_slices(on_disk);
    seen all = {.next = slices, .end = slices + spw_payload_count(on_disk)};
    int source = descriptor_of(on_disk);
    int target = spw_file_descriptor(spw__range_file(to));
    size_t room = from->bytes < COPY_BYTES ? from->bytes : COPY_BYTES;
    spw_status status =
        spw_buffer_create(store->context, room, SPW_CHARGE_SPILLING, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (uint64_t done = 0; done < from->bytes && status == SPW_STATUS_OK;) {
        size_t size = from->bytes - done < room ? from->bytes - done : room;
        void *data = spw_buffer_data(buffer);
        int answer = spw__spill_file_read(source, data, size, from->offset + done);
        if (answer >= 0 && !see(&all, data, size, from->offset + done))
            answer = -EIO;
        *ret_unreadable = answer < 0;
        if (answer >= 0)
            answer = spw__spill_file_write(
                target, &(spw__spill_part){.data = data, .size = size}, 1,
                to->offset + done);
        if (answer < 0)
            status = spw__error_set(error, SPW_STATUS_IO, -answer,
                                    "cannot move bytes from one spill file to another");
        done += size;
    }
    spw_buffer_unref(buffer);
    return status;
}

/* The same slices in another range, but for the header of what was adopted, which is in
 * memory. */
static spw_status relocate(spw_store *store, const spw_payload *on_disk,
                           const spw__range *from, const spw__range *to,
                           spw_payload **ret_payload, spw_error *error)
{
    spw_payload *payload;
    size_t count = spw_payload_count(on_disk);
    spw_status status = spw_payload_create(store->context, count, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        spw_slice slice = spw_payload_slices(on_disk)[i];
        if (slice.kind == SPW_MEMORY_FILE) {
            slice.file = spw_file_ref(spw__range_file(to));
            slice.offset = slice.offset - from->offset + to->offset;
        } else {
            (void)spw_buffer_ref(slice.buffer);
        }
        status = spw_payload_append(payload, &slice, error);
        assert(status == SPW_STATUS_OK); /* it was made with room for all of them */
    }
    *ret_payload = payload;
    return SPW_STATUS_OK;
}

/* Let an entry know where its bytes are now, unless it no longer wants those. Returns:
 * in both what is to be let go of. */
static void exchange(move *one, const spw__range *from, spw__range *to,
                     spw_payload **on_disk)
{
    spw_entry *entry = one->entry;
    spw_store *store = entry->store;
    spw__store_lock(store);
    spw__forms *forms = &entry->forms;
    if (forms->range.segment == from->segment && forms->range.offset == from->offset) {
        spw_payload *before = forms->on_disk;
        spw__range before_range = forms->range;
        forms->on_disk = *on_disk;
        forms->range = *to;
        *on_disk = before;
        *to = before_range;
        store->figures.moved_bytes += before_range.bytes;
    }
    spw__store_unlock(store);
}

static spw_status move_one(spw_store *store, move *one, const spw__range *from,
                           bool *ret_unreadable, spw_error *error)
{
    spw__range to;
    spw_payload *on_disk = NULL;
    spw_status status = spw__segments_reserve(store->segments, from->bytes, &to, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = copy(store, one->on_disk, from, &to, ret_unreadable, error);
    if (status == SPW_STATUS_OK)
        status = relocate(store, one->on_disk, from, &to, &on_disk, error);
    if (status == SPW_STATUS_OK)
        exchange(one, from, &to, &on_disk);
    spw_payload_free(on_disk);
    if (status == SPW_STATUS_OK)
        (void)spw__segments_release(store->segments, &to);
    else
        (void)spw__segments_give_up(store->segments, &to);
    return status;
}

/* Returns: whether the entry's bytes are still there, in ret_from where. */
static bool still_there(const move *one, const spw__segment *segment,
                        spw__range *ret_from)
{
    spw_store *store = one->entry->store;
    spw__store_lock(store);
    *ret_from = one->entry->forms.range;
    spw__store_unlock(store);
    return ret_from->segment == segment;
}

/* What is in a segment cannot be read: it stays where it is, unless it has gone. */
static void leave(const move *one, const spw__segment *segment)
{
    spw_store *store = one->entry->store;
    spw__store_lock(store);
    if (one->entry->forms.range.segment == segment)
        spw__segments_leave(store->segments, &one->entry->forms.range);
    spw__store_unlock(store);
}

/* Move all that is in a segment. Returns: false if there is no room for it now. */
static bool empty(spw_store *store, spw__segment *segment, move *moves)
{
    spw_status status = SPW_STATUS_OK;
    bool is_unreadable = false;
    spw_error error;
    size_t count;
    while (status == SPW_STATUS_OK && (count = find(store, segment, moves)) > 0) {
        for (size_t i = 0; i < count; i++) {
            spw__range from;
            if (status == SPW_STATUS_OK && still_there(&moves[i], segment, &from)) {
                status = move_one(store, &moves[i], &from, &is_unreadable, &error);
                if (is_unreadable)
                    leave(&moves[i], segment);
            }
            spw_payload_free(moves[i].on_disk);
            spw_entry_unref(moves[i].entry);
        }
    }
    if (is_unreadable)
        spw__log(store->context, SPW_LOG_INFO,
                 "a spill file that is half empty stays as it is: %s", error.message);
    return status == SPW_STATUS_OK || is_unreadable;
}

static void close_empty(spw_store *store)
{
    if (spw__segments_collect(store->segments) == 0)
        return;
    spw__store_lock(store);
    store->trouble_until_ms = 0;
    spw__store_settle(store);
    spw__store_unlock(store);
}

static spw__segment *next_sparse(spw_store *store)
{
    spw__store_lock(store);
    bool is_short = store->trouble_until_ms > 0;
    spw__store_unlock(store);
    return spw__segments_next_sparse(store->segments, is_short);
}

static void move_sparse(spw_store *store)
{
    spw__segment *segment = next_sparse(store);
    if (segment == NULL)
        return;
    move *moves =
        spw__allocate(store->context, MOVED_AT_ONCE * sizeof *moves, _Alignof(move));
    bool has_room = moves != NULL;
    if (moves == NULL)
        spw__log(store->context, SPW_LOG_INFO,
                 "no memory to empty a spill file: it stays as it is for now");
    for (; segment != NULL && has_room; segment = next_sparse(store)) {
        has_room = empty(store, segment, moves);
        close_empty(store); /* the next one needs the room */
    }
    spw__release(store->context, moves, MOVED_AT_ONCE * sizeof *moves, _Alignof(move));
}

void spw__store_collect(spw__job *job)
{
    spw_store *store = (spw_store *)((char *)job - offsetof(spw_store, collect));
    close_empty(store);
    spw__segments_look(store->segments);
    move_sparse(store);
    close_empty(store);
    spw__store_lock(store);
    bool is_again = store->is_collect_waiting;
    store->is_collect_waiting = false;
    store->collects = is_again;
    if (is_again)
        spw__store_run(store, &store->collect, SPW__JOB_PATIENT);
    (void)pthread_cond_broadcast(&store->changed);
    spw__store_unlock(store);
}

void spw__store_collect_later(spw_store *store)
{
    if (store->collects) {
        store->is_collect_waiting = true;
        return;
    }
    store->collects = true;
    spw__store_run(store, &store->collect, SPW__JOB_PATIENT);
}
