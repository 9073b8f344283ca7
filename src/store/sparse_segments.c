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
    if (!segment->is_sealed || segment->is_sparse || segment->is_stuck ||
        segment->wanted == 0 || segment->wanted >= unwanted(segment))
        return;
    segment->is_sparse = true;
    segments->foreign_sparse += segment->is_foreign;
    segment->next = segments->sparse;
    segment->before = NULL;
    if (segment->next != NULL)
        segment->next->before = segment;
    segments->sparse = segment;
}

void spw__sparse_forget(spw__segments *segments, spw__segment *segment)
{
    if (!segment->is_sparse)
        return;
    segment->is_sparse = false;
    segments->foreign_sparse -= segment->is_foreign;
    if (segment->before != NULL)
        segment->before->next = segment->next;
    else
        segments->sparse = segment->next;
    if (segment->next != NULL)
        segment->next->before = segment->before;
    segment->next = segment->before = NULL;
}

static bool is_crowded(const spw__segments *segments)
{
    for (size_t i = 0; i < segments->count; i++) {
        const spw__directory *in = &segments->directories[i];
        if (in->is_tight ||
            in->file_bytes > in->limit_bytes - in->limit_bytes / CROWDED_PARTS)
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

bool spw__sparse_is_due(const spw__segments *segments)
{
    return segments->foreign_sparse > 0 ||
           (segments->sparse != NULL && is_much_unwanted(segments));
}

spw__segment *spw__segments_next_sparse(spw__segments *segments, bool is_short)
{
    if (!spw__segments_are_ours(segments))
        return NULL;
    spw__segment *best = NULL;
    spw__segments_lock(segments);
    bool takes_own = is_short || is_much_unwanted(segments);
    for (spw__segment *one = segments->sparse; one != NULL; one = one->next) {
        if (one->answered_in > segments->round || (!one->is_foreign && !takes_own))
            continue;
        /* Nobody has the space of a foreign one but us. */
        if (best == NULL || one->is_foreign || one->wanted < best->wanted)
            best = one;
        if (one->is_foreign)
            break;
    }
    if (best != NULL)
        best->answered_in = segments->round + 1; /* 0: in none */
    spw__segments_unlock(segments);
    return best;
}

void spw__segments_leave(spw__segments *segments, const spw__range *range)
{
    if (!spw__segments_are_ours(segments))
        return;
    spw__segments_lock(segments);
    range->segment->is_stuck = true;
    spw__sparse_forget(segments, range->segment);
    spw__segments_unlock(segments);
}
