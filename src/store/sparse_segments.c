/* Sparse segments: sealed, and less than half of them is still wanted. What is left in
 * them moves to others, so that their files can be closed, where that is worth it. */
#include "store/segments_state.h"

enum {
    LEFT_FILES = 4,   /* so many of the first size may be in vain, whatever there is */
    CROWDED_PARTS = 4 /* a directory of which less than one such part is free is */
};

/* What the disk has again when all that is wanted of a segment has left it. */
static uint64_t unwanted(const spw__segment *segment)
{
    if (!segment->is_foreign)
        return segment->used - segment->wanted;
    /* It may be wanted several times over, or not be as large as was said. */
    return segment->wanted < segment->capacity ? segment->capacity - segment->wanted
                                               : 0;
}

void spw__segment_note_if_sparse(spw__segments *segments, spw__segment *segment)
{
    if (!segment->is_sealed || segment->was_sparse || segment->wanted == 0 ||
        segment->wanted >= unwanted(segment))
        return;
    segment->was_sparse = true;
    segment->next = segments->sparse;
    segment->before = NULL;
    if (segment->next != NULL)
        segment->next->before = segment;
    segments->sparse = segment;
}

static bool is_crowded(const spw__segments *segments)
{
    for (size_t i = 0; i < segments->count; i++) {
        const spw__directory *in = &segments->directories[i];
        if (in->file_bytes > in->limit_bytes - in->limit_bytes / CROWDED_PARTS)
            return true;
    }
    return false;
}

/* Returns: whether sparse segments of our own are to be emptied. */
static bool is_much_unwanted(const spw__segments *segments)
{
    return segments->own_used - segments->own_wanted >
               segments->own_wanted + LEFT_FILES * segments->first_bytes ||
           is_crowded(segments);
}

spw__segment *spw__sparse_best(const spw__segments *segments, bool is_short)
{
    bool takes_own = is_short || is_much_unwanted(segments);
    spw__segment *best = NULL;
    for (spw__segment *one = segments->sparse; one != NULL; one = one->next) {
        if (one->is_foreign)
            return one; /* nobody has its space but us */
        if (takes_own && (best == NULL || one->wanted < best->wanted))
            best = one;
    }
    return best;
}

void spw__sparse_forget(spw__segments *segments, spw__segment *segment)
{
    if (segment->before != NULL)
        segment->before->next = segment->next;
    else if (segments->sparse == segment)
        segments->sparse = segment->next;
    else
        return; /* it was answered, or never sparse */
    if (segment->next != NULL)
        segment->next->before = segment->before;
    segment->next = segment->before = NULL;
}

spw__segment *spw__segments_next_sparse(spw__segments *segments, bool is_short)
{
    if (!spw__segments_are_ours(segments))
        return NULL;
    spw__segments_lock(segments);
    spw__segment *segment = spw__sparse_best(segments, is_short);
    if (segment != NULL)
        spw__sparse_forget(segments, segment);
    spw__segments_unlock(segments);
    return segment;
}
