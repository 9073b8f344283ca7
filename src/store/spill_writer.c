/* Writing. Each slice begins on a boundary in its file, with zeros before it, so that
 * what is read back together is aligned as well as what is read alone. Items that lie
 * behind each other in one file are one write. */
#include "store/spill_writer.h"

#include <inttypes.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/checksum.h"
#include "memory/past_cache.h"
#include "platform/clock.h"
#include "platform/spill_file.h"
#include "spillway/codec.h"

/* What is gathered until it is written. */
typedef struct pending {
    spw_context *context;
    spw__spill_part *parts;
    size_t count, capacity;
    spw_file *file;       /* borrowed; NULL: nothing is pending */
    uint64_t offset, end; /* in the file */
    spw__spill *spill;    /* which knows how fast the disk is */
    bool has_failed;      /* the file took nothing */
} pending;

static const char zeros[SPW__SEGMENT_ALIGNMENT];

static uint64_t range_bytes(const spw_payload *payload)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < spw_payload_count(payload); i++)
        bytes += spw__segment_space(spw_payload_slices(payload)[i].size);
    return bytes > 0 ? bytes : SPW__SEGMENT_ALIGNMENT;
}

static bool is_direct(const pending *p)
{
    return p->end - p->offset >= SPW__DIRECT_FROM_BYTES &&
           spw__disk_is_fast(&p->spill->speed, spw__clock_ms());
}

static spw_status write_pending(pending *p, spw_error *error)
{
    if (p->file == NULL || p->count == 0)
        return SPW_STATUS_OK;
    int descriptor = spw_file_descriptor(p->file);
    int answer = is_direct(p)
                     ? spw__write_past_cache(p->context, descriptor, p->parts, p->count,
                                             p->offset, &p->spill->speed)
                     : spw__spill_file_write(descriptor, p->parts, p->count, p->offset);
    if (answer < 0) {
        p->has_failed = true;
        return spw__error_set(error, SPW_STATUS_IO, -answer,
                              "cannot write %" PRIu64 " bytes to disk, in the worker's "
                              "local directory or where it is told to spill",
                              p->end - p->offset);
    }
    p->count = 0;
    p->file = NULL;
    return SPW_STATUS_OK;
}

static spw_status add_part(pending *p, const void *data, size_t size, spw_error *error)
{
    if (size == 0)
        return SPW_STATUS_OK;
    spw_status status = spw__grow(p->context, &p->parts, &p->capacity, p->count + 1,
                                  sizeof *p->parts, error);
    if (status != SPW_STATUS_OK)
        return status;
    p->parts[p->count++] = (spw__spill_part){.data = data, .size = size};
    p->end += size;
    return SPW_STATUS_OK;
}

/* Note one slice to be written at the end of what is pending. Returns: in ret_on_disk
 * where it will be. */
static spw_status add_slice(pending *p, const spw_slice *slice, spw_slice *ret_on_disk,
                            spw_error *error)
{
    const void *data = spw_slice_data(slice);
    *ret_on_disk = *slice;
    ret_on_disk->kind = SPW_MEMORY_FILE;
    ret_on_disk->flags |= SPW_SLICE_HAS_CHECKSUM;
    ret_on_disk->file = p->file;
    ret_on_disk->offset = p->end;
    ret_on_disk->checksum = spw__checksum(data, slice->size);
    spw_status status = add_part(p, data, slice->size, error);
    return status == SPW_STATUS_OK
               ? add_part(p, zeros, spw__segment_space(slice->size) - slice->size,
                          error)
               : status;
}

/* Find a range for an item, and note what is to be written to it. */
static spw_status add_item(spw_store *store, spw__spill_item *item, pending *p,
                           spw_error *error)
{
    const spw_payload *stored = item->stored != NULL ? item->stored : item->packed;
    size_t count = spw_payload_count(stored);
    spw_status status = spw__segments_reserve(store->segments, range_bytes(stored),
                                              &item->range, error);
    if (status == SPW_STATUS_OK)
        status = spw_payload_create(store->context, count, &item->on_disk, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_file *file = spw__range_file(&item->range);
    if (file != p->file || item->range.offset != p->end) {
        status = write_pending(p, error);
        if (status != SPW_STATUS_OK)
            return status;
        p->file = file;
        p->offset = p->end = item->range.offset;
    }
    for (size_t i = 0; i < count && status == SPW_STATUS_OK; i++) {
        spw_slice on_disk;
        status = add_slice(p, &spw_payload_slices(stored)[i], &on_disk, error);
        if (status != SPW_STATUS_OK)
            break;
        (void)spw_file_ref(file);
        status = spw_payload_append(item->on_disk, &on_disk, error);
        if (status != SPW_STATUS_OK)
            spw_file_unref(file);
    }
    return status;
}

/* ----- compression ----- */

/* Less is not worth that it must be undone. */
static size_t worthwhile(uint64_t size)
{
    return size - size / 8;
}

enum { COMPRESS_FROM_BYTES = 4096 };

/* As little as may be, so that what does not shrink is found out early. */
static size_t room_for(const spw_store *store, size_t size)
{
    return store->codec == SPW_CODEC_SNAPPY ? spw_codec_bound(store->codec, size)
                                            : worthwhile(size);
}

/* The slice, or what it is compressed. Returns: in ret_slice, with a reference of the
 * caller's. */
static void compress_slice(spw_store *store, const spw_slice *slice,
                           spw_slice *ret_slice)
{
    spw_buffer *buffer = NULL;
    size_t size;
    *ret_slice = *slice;
    if (slice->codec != SPW_CODEC_NONE || slice->size < COMPRESS_FROM_BYTES) {
        (void)spw_buffer_ref(slice->buffer);
        return;
    }
    size_t room = room_for(store, slice->size);
    spw_status status =
        spw_buffer_create(store->context, room, SPW_CHARGE_SPILLING, &buffer, NULL);
    if (status == SPW_STATUS_OK)
        status = spw_codec_compress(store->codec, spw_slice_data(slice), slice->size,
                                    spw_buffer_data(buffer), room, &size, NULL);
    if (status != SPW_STATUS_OK || size > worthwhile(slice->size)) {
        /* It does not shrink, or memory is short: it is written as it is. */
        spw_buffer_unref(buffer);
        (void)spw_buffer_ref(slice->buffer);
        return;
    }
    ret_slice->buffer = buffer;
    ret_slice->offset = 0;
    ret_slice->size = size;
    ret_slice->codec = (uint32_t)store->codec;
}

/* Put what it is compressed in the place of what an item has. */
static spw_status compress_item(spw_store *store, spw__spill_item *item,
                                spw_error *error)
{
    spw_payload *compressed;
    size_t count = spw_payload_count(item->packed);
    spw_status status = spw_payload_create(store->context, count, &compressed, error);
    if (status != SPW_STATUS_OK)
        return status;
    for (size_t i = 0; i < count && status == SPW_STATUS_OK; i++) {
        spw_slice slice;
        compress_slice(store, &spw_payload_slices(item->packed)[i], &slice);
        status = spw_payload_append(compressed, &slice, error);
        if (status != SPW_STATUS_OK)
            spw_buffer_unref(slice.buffer);
    }
    if (status != SPW_STATUS_OK) {
        spw_payload_free(compressed);
        return status;
    }
    item->stored = compressed;
    return SPW_STATUS_OK;
}

/* ----- all of it ----- */

static void undo(spw_store *store, spw__spill *spill)
{
    for (size_t i = spill->count; i-- > 0;) { /* the last first: see give_up */
        spw__spill_item *item = &spill->items[i];
        spw_payload_free(item->on_disk);
        item->on_disk = NULL;
        (void)spw__segments_give_up(store->segments, &item->range);
    }
    /* Now, before the trouble is noted: when files are closed later, that ends it, and
     * a file in which nothing could be written is no space that came back. */
    (void)spw__segments_collect(store->segments);
}

static spw_status compress_all(spw_store *store, spw__spill *spill, spw_error *error)
{
    if (store->codec == SPW_CODEC_NONE)
        return SPW_STATUS_OK;
    spw_status status = SPW_STATUS_OK;
    uint64_t before = spw__clock_ns();
    for (size_t i = 0; i < spill->count && status == SPW_STATUS_OK; i++)
        status = compress_item(store, &spill->items[i], error);
    spill->compress_ns = spw__clock_ns() - before;
    return status;
}

/* Returns: whether what could not be written is to be tried again, for there is another
 * directory. */
static bool pass_on(spw_store *store, const spw__spill *spill, const pending *p)
{
    for (size_t i = 0; i < spill->count && p->has_failed; i++) {
        const spw__range *range = &spill->items[i].range;
        if (range->segment != NULL && spw__range_file(range) == p->file)
            return spw__segments_refuse(store->segments, range);
    }
    return false;
}

/* Returns: whether to try again. */
static bool try_write(spw_store *store, spw__spill *spill, spw_status *ret_status,
                      spw_error *error)
{
    pending p = {.context = store->context, .spill = spill};
    spw_status status = SPW_STATUS_OK;
    for (size_t i = 0; i < spill->count && status == SPW_STATUS_OK; i++)
        status = add_item(store, &spill->items[i], &p, error);
    if (status == SPW_STATUS_OK)
        status = write_pending(&p, error);
    bool is_again = status != SPW_STATUS_OK && pass_on(store, spill, &p);
    if (status != SPW_STATUS_OK)
        undo(store, spill);
    spw__release(store->context, p.parts, p.capacity * sizeof *p.parts, sizeof(void *));
    *ret_status = status;
    return is_again;
}

spw_status spw__spill_write(spw__spill *spill, spw_error *error)
{
    spw_store *store = spill->store;
    spw_status status = compress_all(store, spill, error);
    uint64_t before = spw__clock_ns();
    size_t tries = spw__segments_directories(store->segments);
    while (status == SPW_STATUS_OK && try_write(store, spill, &status, error) &&
           --tries > 0)
        status = SPW_STATUS_OK;
    spill->write_ns = spw__clock_ns() - before;
    for (size_t i = 0; i < spill->count; i++) {
        spw_payload_free(spill->items[i].stored);
        spill->items[i].stored = NULL;
        if (status == SPW_STATUS_OK)
            spill->written_bytes += spill->items[i].range.bytes;
    }
    return status;
}
