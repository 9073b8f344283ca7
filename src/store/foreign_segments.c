/* Foreign segments: files of peers' stores, in which values are adopted where they lie.
 *
 * A file's space is whole as long as anybody has a descriptor of it. Whoever made it
 * shows that it wants it by what spw__spill_file_hold takes, which goes with its last
 * descriptor, however it ends; we, and others who adopted from it, hold nothing. So
 * what nobody holds is kept for those alone who adopted, and each of them moves its own
 * part out if that is small. A file of which no hold was seen when it came, while there
 * was the descriptor that it came by, is of a file system that knows of no such thing,
 * or came from one who had adopted it: it is never taken for one that was let go of. */
#include <assert.h>

#include "context/error.h"
#include "platform/spill_file.h"
#include "store/segments_state.h"

/* ----- those that are there; with the lock ----- */

/* Returns: NULL when there is none. */
static spw__segment *find(const spw__segments *segments, const spw__file_facts *file)
{
    spw__segment *one = segments->foreign;
    while (one != NULL && (one->device != file->device || one->number != file->number))
        one = one->next_foreign;
    return one;
}

void spw__foreign_forget(spw__segments *segments, spw__segment *segment)
{
    spw__segment **link = &segments->foreign;
    while (*link != segment)
        link = &(*link)->next_foreign;
    *link = segment->next_foreign;
}

/* All of a segment counts in one directory: the first that has the room, or the last.
 */
static void charge(spw__segments *segments, spw__segment *segment, uint64_t space)
{
    if (segment->in != NULL)
        segment->in->file_bytes -= segment->used;
    segment->used += space;
    segment->wanted += space;
    segments->figures.file_bytes += space;
    size_t i = 0;
    while (i + 1 < segments->count &&
           !spw__directory_has_room(&segments->directories[i], segment->used))
        i++;
    segment->in = &segments->directories[i];
    segment->in->file_bytes += segment->used;
}

/* Have a range of the segment of a file, which is made, if it is not there, if the
 * caller has it. Returns: whether there is one; in ret_range it. Takes: made, if it is
 * the segment of the range. */
static bool take(spw__segments *segments, const spw__file_facts *file,
                 spw__segment *made, uint64_t offset, uint64_t bytes,
                 spw__range *ret_range)
{
    spw__segments_lock(segments);
    spw__segment *segment = find(segments, file);
    if (segment == NULL && made != NULL) {
        segment = made;
        segment->next_foreign = segments->foreign;
        segments->foreign = segment;
        segments->figures.foreign_files++;
    }
    if (segment != NULL) {
        charge(segments, segment, spw__segment_space(bytes));
        segments->figures.range_bytes += bytes;
        *ret_range = (spw__range){.segment = segment, .offset = offset, .bytes = bytes};
    }
    spw__segments_unlock(segments);
    return segment != NULL;
}

/* ----- adopting ----- */

/* The same file, opened for ourselves, or as it was received. Returns: a file with one
 * reference; whether its maker was seen to hold it. Errors: NO_MEMORY, IO. */
static spw_status open_own(spw__segments *segments, spw_file *received,
                           spw_file **ret_file, bool *ret_is_hold_seen,
                           spw_error *error)
{
    int descriptor = spw__spill_file_reopen(spw_file_descriptor(received));
    if (descriptor < 0) {
        *ret_file = spw_file_ref(received);
        *ret_is_hold_seen = false; /* we hold it ourselves, and never learn of others */
        return SPW_STATUS_OK;
    }
    *ret_is_hold_seen = spw__spill_file_is_held(descriptor) > 0;
    spw_status status = spw_file_adopt(segments->context, descriptor, ret_file, error);
    if (status != SPW_STATUS_OK)
        spw__regular_file_close(descriptor);
    return status;
}

static spw_status create(spw__segments *segments, spw_file *received,
                         const spw__file_facts *about, spw__segment **ret_segment,
                         spw_error *error)
{
    spw_file *file;
    spw__segment *segment;
    bool is_hold_seen;
    spw_status status = open_own(segments, received, &file, &is_hold_seen, error);
    if (status == SPW_STATUS_OK)
        status = spw__segment_create(segments, file, &segment, error);
    if (status != SPW_STATUS_OK)
        return status;
    segment->is_sealed = true;
    segment->is_foreign = true;
    segment->is_hold_seen = is_hold_seen;
    segment->device = about->device;
    segment->number = about->number;
    *ret_segment = segment;
    return SPW_STATUS_OK;
}

/* What is said from outside must not make any sum wrap. */
static bool is_possible(spw__segments *segments, uint64_t bytes)
{
    spw__segments_figures figures;
    spw__segments_read(segments, &figures);
    return bytes <= SPW__SEGMENT_BYTES_MAX &&
           figures.file_bytes <= SPW__SEGMENT_BYTES_MAX;
}

spw_status spw__segments_adopt(spw__segments *segments, spw_file *file, uint64_t offset,
                               uint64_t bytes, spw__range *ret_range, spw_error *error)
{
    spw__file_facts about;
    spw__segment *made;
    assert(bytes > 0);
    if (!spw__segments_are_ours(segments))
        return spw__error_set(error, SPW_STATUS_IO, 0,
                              "no value is adopted in a forked process");
    if (!is_possible(segments, bytes))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "a value in a file of a peer's takes more bytes than any "
                              "disk has");
    int answer = spw__regular_file_describe(spw_file_descriptor(file), &about);
    if (answer < 0)
        return spw__error_set(error, SPW_STATUS_IO, -answer,
                              "cannot ask which file of a peer's a value is in");
    if (take(segments, &about, NULL, offset, bytes, ret_range))
        return SPW_STATUS_OK;
    spw_status status = create(segments, file, &about, &made, error);
    if (status != SPW_STATUS_OK)
        return status;
    (void)take(segments, &about, made, offset, bytes, ret_range);
    if (ret_range->segment != made) /* somebody was faster */
        spw__segment_free(segments, made);
    return SPW_STATUS_OK;
}

/* ----- whether others still want them ----- */

/* The file of one that was not asked for in this round. Returns: a reference of the
 * caller's, for the segment may go meanwhile; NULL when there is none. */
static spw_file *next_to_ask(spw__segments *segments, uint64_t round)
{
    spw_file *file = NULL;
    spw__segments_lock(segments);
    for (spw__segment *one = segments->foreign; one != NULL && file == NULL;
         one = one->next_foreign) {
        bool is_asked = one->round >= round;
        one->round = is_asked ? one->round : round;
        if (!is_asked && one->is_hold_seen && !one->is_let_go)
            file = spw_file_ref(one->file);
    }
    spw__segments_unlock(segments);
    return file;
}

/* Nobody else wants a file any more, and so nothing is written to it. */
static void note_let_go(spw__segments *segments, const spw_file *file, uint64_t bytes)
{
    spw__segments_lock(segments);
    spw__segment *one = segments->foreign;
    while (one != NULL && one->file != file)
        one = one->next_foreign;
    if (one != NULL) {
        one->is_let_go = true;
        one->capacity = bytes;
        spw__segment_note_if_sparse(segments, one);
    }
    spw__segments_unlock(segments);
}

void spw__segments_look(spw__segments *segments)
{
    if (!spw__segments_are_ours(segments))
        return;
    spw__segments_lock(segments);
    uint64_t round = ++segments->round;
    spw__segments_unlock(segments);
    for (spw_file *file; (file = next_to_ask(segments, round)) != NULL;) {
        spw__file_facts about;
        int descriptor = spw_file_descriptor(file);
        if (spw__spill_file_is_held(descriptor) == 0 &&
            spw__regular_file_describe(descriptor, &about) == 0)
            note_let_go(segments, file, about.bytes);
        spw_file_unref(file);
    }
}
