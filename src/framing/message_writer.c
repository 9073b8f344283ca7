/* A message as it goes out. The prelude and all small frames are copied into one block
 * behind the struct; large frames are pointed to, and so are ranges of files of any
 * size, which are not to be read here. Runs of what is copied are one piece, so a
 * message of small frames is a single piece, and 5,000 of them no 5,000 iovecs.
 * Invariant: pieces[first..count) are unsent, the first of them from skip on. */
#include "framing/message_writer.h"

#include <assert.h>
#include <string.h>

#include "context/allocate.h"
#include "context/error.h"
#include "framing/wire.h"

/* No frame is that large. */
static const spw__message_references NO_REFERENCES = {.from_bytes = UINT64_MAX};

/* Below this a copy costs less than one more piece of a vectored send. */
enum { COPY_BELOW_BYTES = 4096 };

typedef struct piece {
    const spw_slice *file; /* of the payload; NULL: it is memory */
    char *data;            /* of memory */
    size_t size;
} piece;

struct spw__message_writer {
    spw_context *context; /* borrowed: the payload holds a reference */
    spw_payload *payload;
    spw__message_writer *next;
    uint64_t total, unsent, unsent_in_files;
    size_t allocated; /* bytes of this struct with pieces and block */
    size_t first, count;
    size_t skip;
    piece pieces[];
};

/* Whether two frames that follow each other, of which the first is not empty, are
 * shards of one buffer. */
static bool are_side_by_side(const spw_slice *one, const spw_slice *other)
{
    if (one->kind != other->kind)
        return false;
    if (one->kind == SPW_MEMORY_FILE)
        return one->file == other->file && one->offset + one->size == other->offset;
    return (char *)spw_slice_data(one) + one->size == (char *)spw_slice_data(other);
}

/* How many frames go into the first segment, which a stock reader reads into one
 * buffer. The rule is stock's own, so that a stock peer's memory is as it would be:
 * everything that is consumed while the message is decoded, and one buffer that lives
 * on (with all of its shards, which then merge without a copy), unless it would keep
 * alive more than a negligible amount before it. Shards are known by lying side by
 * side. */
static size_t first_segment_frames(const spw_slice *slices, size_t count)
{
    uint64_t before = 0;
    bool has_buffer = false;
    const spw_slice *last =
        NULL; /* of the buffer that lives on; an empty one has no shards */
    for (size_t i = 0; i < count; i++) {
        const spw_slice *slice = &slices[i];
        if (!(slice->flags & SPW_SLICE_TRANSIENT)) {
            uint64_t negligible = slice->size / 20 > 2048 ? slice->size / 20 : 2048;
            if (has_buffer ? last == NULL || !are_side_by_side(last, slice)
                           : before > negligible)
                return i;
            has_buffer = true;
            last = slice->size > 0 ? slice : NULL;
        }
        before += slice->size;
    }
    return count;
}

static bool is_copied(const spw_slice *slice)
{
    return slice->kind == SPW_MEMORY_HOST ? slice->size < COPY_BELOW_BYTES
                                          : slice->size == 0;
}

typedef struct layout {
    const spw__message_references *references;
    uint64_t total; /* bytes in the stream */
    uint64_t first; /* the first number: bytes of the first segment, and a flag */
    size_t block, pieces;
} layout;

static bool is_referenced(const layout *plan, const spw_slice *slice)
{
    return spw__message_references_has(plan->references, slice);
}

static layout lay_out(const spw_slice *slices, size_t count,
                      const spw__message_references *references)
{
    layout plan = {.references = references, .pieces = 1};
    /* Where there are references the segment is the prelude alone, which is all that
     * the number is then good for. */
    size_t segment = 0;
    if (references == &NO_REFERENCES) {
        segment = first_segment_frames(slices, count);
        plan.block = (size_t)spw__wire_prelude_bytes(count);
        plan.first = plan.block - 8;
    } else {
        plan.block = (size_t)spw__wire_referenced_prelude_bytes(count);
        plan.first = SPW__WIRE_REFERENCED | (plan.block - 8);
    }
    plan.total = plan.block;
    bool after_copy = true;
    for (size_t i = 0; i < count; i++) {
        if (is_referenced(&plan, &slices[i]))
            continue;
        plan.total += slices[i].size;
        if (i < segment)
            plan.first += slices[i].size;
        if (is_copied(&slices[i])) {
            plan.block += (size_t)slices[i].size;
            plan.pieces += after_copy ? 0 : 1;
            after_copy = true;
        } else {
            plan.pieces++;
            after_copy = false;
        }
    }
    return plan;
}

static char *put_places(char *next, const spw_slice *slices, size_t count,
                        const layout *plan)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t place = SPW__WIRE_IN_STREAM;
        if (is_referenced(plan, &slices[i]))
            place = plan->references->by_descriptor
                        ? SPW__WIRE_BY_DESCRIPTOR
                        : (uint64_t)(uintptr_t)spw_slice_data(&slices[i]);
        next = spw__wire_put(next, place);
    }
    return next;
}

static void add_piece(spw__message_writer *writer, const spw_slice *file, char *data,
                      uint64_t size)
{
    writer->pieces[writer->count++] =
        (piece){.file = file, .data = data, .size = (size_t)size};
    writer->unsent_in_files += file != NULL ? size : 0;
}

static void fill(spw__message_writer *writer, const spw_slice *slices, size_t count,
                 const layout *plan)
{
    char *block = (char *)(writer->pieces + plan->pieces);
    char *next = block;
    next = spw__wire_put(next, plan->first);
    next = spw__wire_put(next, count);
    for (size_t i = 0; i < count; i++)
        next = spw__wire_put(next, slices[i].size);
    if (plan->references != &NO_REFERENCES)
        next = put_places(next, slices, count, plan);
    char *run = block;
    uint64_t copied = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_referenced(plan, &slices[i]))
            continue;
        if (is_copied(&slices[i])) {
            if (slices[i].size > 0)
                memcpy(next, spw_slice_data(&slices[i]), (size_t)slices[i].size);
            next += slices[i].size;
            copied += slices[i].size;
            continue;
        }
        if (next > run)
            add_piece(writer, NULL, run, (uint64_t)(next - run));
        run = next;
        add_piece(writer, slices[i].kind == SPW_MEMORY_FILE ? &slices[i] : NULL,
                  spw_slice_data(&slices[i]), slices[i].size);
    }
    if (next > run)
        add_piece(writer, NULL, run, (uint64_t)(next - run));
    if (copied > 0)
        spw_context_count_copy(writer->context, SPW_COPY_SMALL_FRAME, copied);
}

spw_status spw__message_writer_create(spw_context *context, spw_payload *payload,
                                      spw__message_writer **ret_writer,
                                      spw_error *error)
{
    return spw__message_writer_create_referenced(context, payload, &NO_REFERENCES,
                                                 ret_writer, error);
}

spw_status
spw__message_writer_create_referenced(spw_context *context, spw_payload *payload,
                                      const spw__message_references *references,
                                      spw__message_writer **ret_writer,
                                      spw_error *error)
{
    const spw_slice *slices = spw_payload_slices(payload);
    size_t count = spw_payload_count(payload);
    assert(references->from_bytes > 0);
    if (count == 0)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a message needs at least one frame");
    layout plan = lay_out(slices, count, references);
    size_t allocated =
        sizeof(spw__message_writer) + plan.pieces * sizeof(piece) + plan.block;
    spw__message_writer *writer =
        spw__allocate(context, allocated, _Alignof(spw__message_writer));
    if (writer == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory to lay out a message of %zu frames", count);
    writer->context = context;
    writer->payload = payload;
    writer->next = NULL;
    writer->total = writer->unsent = plan.total;
    writer->unsent_in_files = 0;
    writer->allocated = allocated;
    writer->first = writer->count = writer->skip = 0;
    fill(writer, slices, count, &plan);
    *ret_writer = writer;
    return SPW_STATUS_OK;
}

void spw__message_writer_free(spw__message_writer *writer)
{
    if (writer == NULL)
        return;
    spw_payload *payload = writer->payload;
    spw__release(writer->context, writer, writer->allocated,
                 _Alignof(spw__message_writer));
    spw_payload_free(payload);
}

spw_payload *spw__message_writer_give_back(spw__message_writer *writer)
{
    spw_payload *payload = writer->payload;
    writer->payload = NULL;
    return payload;
}

uint64_t spw__message_writer_total(const spw__message_writer *writer)
{
    return writer->total;
}

uint64_t spw__message_writer_unsent(const spw__message_writer *writer)
{
    return writer->unsent;
}

uint64_t spw__message_writer_unsent_in_files(const spw__message_writer *writer)
{
    return writer->unsent_in_files;
}

size_t spw__message_writer_pieces(const spw__message_writer *writer,
                                  struct iovec *pieces, size_t limit,
                                  size_t limit_bytes)
{
    size_t n = 0;
    size_t skip = writer->skip;
    for (size_t i = writer->first; i < writer->count && n < limit; i++, n++) {
        const piece *next = &writer->pieces[i];
        if (next->file != NULL)
            break;
        pieces[n].iov_base = next->data + skip;
        pieces[n].iov_len = next->size - skip;
        skip = 0;
        if (pieces[n].iov_len >= limit_bytes) {
            pieces[n].iov_len = limit_bytes;
            return limit_bytes > 0 ? n + 1 : n;
        }
        limit_bytes -= pieces[n].iov_len;
    }
    return n;
}

bool spw__message_writer_next_file(const spw__message_writer *writer,
                                   size_t limit_bytes, spw__file_range *ret_range)
{
    const piece *next = &writer->pieces[writer->first];
    if (writer->first == writer->count || next->file == NULL)
        return false;
    size_t left = next->size - writer->skip;
    *ret_range = (spw__file_range){.descriptor = spw_file_descriptor(next->file->file),
                                   .offset = next->file->offset + writer->skip,
                                   .size = left < limit_bytes ? left : limit_bytes};
    return true;
}

void spw__message_writer_advance(spw__message_writer *writer, uint64_t bytes)
{
    assert(bytes <= writer->unsent);
    writer->unsent -= bytes;
    while (bytes > 0) {
        const piece *next = &writer->pieces[writer->first];
        size_t left = next->size - writer->skip;
        size_t step = bytes < left ? (size_t)bytes : left;
        if (next->file != NULL)
            writer->unsent_in_files -= step;
        if (step < left) {
            writer->skip += step;
            return;
        }
        bytes -= step;
        writer->skip = 0;
        writer->first++;
    }
}

spw__message_writer *spw__message_writer_next(const spw__message_writer *writer)
{
    return writer->next;
}

void spw__message_writer_set_next(spw__message_writer *writer,
                                  spw__message_writer *next)
{
    writer->next = next;
}
