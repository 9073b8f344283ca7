/* Where on disk: segments, files that are only appended to, in one or several
 * directories. Values share them; the space of a segment comes back as a whole, once
 * nothing in it is wanted, so that bytes that were handed to sendfile are never
 * rewritten.
 *
 * A segment takes what is reserved until it is full, then it is sealed. Its file lives
 * until the last range of it is released and the last slice of it is gone, whoever has
 * that. The first segments have first_bytes, and the more there are the larger the next
 * one is, so that descriptors do not run out: see segments.c.
 *
 * A foreign segment is a file of another store's of this host, which a descriptor was
 * had of: values in it are adopted where they lie. It is never written to. What is
 * adopted counts as bytes on disk, though whoever made the file counts them too. */
#ifndef SPW_STORE_SEGMENTS_H
#define SPW_STORE_SEGMENTS_H

#include "spillway/file.h"
#include "spillway/store.h"

typedef struct spw__segments spw__segments;
typedef struct spw__segment spw__segment;

enum {
    SPW__SEGMENT_BYTES = 64 << 20, /* unless told otherwise */
    SPW__SEGMENT_ALIGNMENT = 64    /* where each range begins */
};

/* What bytes take, so that what lies behind them begins where it should. */
static inline uint64_t spw__segment_space(uint64_t bytes)
{
    uint64_t mask = SPW__SEGMENT_ALIGNMENT - 1;
    return (bytes + mask) & ~mask;
}

/* bytes of a segment, from offset on. Holds it until it is released. */
typedef struct spw__range {
    spw__segment *segment; /* NULL: none */
    uint64_t offset, bytes;
} spw__range;

typedef struct spw__segments_figures {
    uint64_t files;         /* of our own, open */
    uint64_t foreign_files; /* of others, open */
    uint64_t file_bytes; /* reserved in ours since they were made, each range rounded up
                            to the alignment: what the disk has; and what is adopted */
    uint64_t range_bytes; /* of which ranges are not released yet */
} spw__segments_figures;

/* Make a private directory in each of those named, after what killed processes left
 * there has been removed. Borrows: directories, during the call.
 * Returns: to be freed by spw__segments_free. Thread: any; blocks on the disk.
 * Errors: NO_MEMORY, INVALID_ARGUMENT (none), IO (one cannot be used; the message names
 * it). */
spw_status spw__segments_create(spw_context *context,
                                const spw_store_directory *directories, size_t count,
                                uint64_t first_bytes, spw__segments **ret_segments,
                                spw_error *error);
/* Remove the directories. Takes: segments (NULL allowed), all of whose ranges have been
 * released; files that slices hold stay open for them. Thread: any; blocks. */
void spw__segments_free(spw__segments *segments);

/* Find room, in the first directory whose limit has it and where a file can be made.
 * bytes > 0. Returns: a range to be released, nothing written yet. Thread: any; blocks
 * on the disk if a file must be made.
 * Errors: LIMIT_EXCEEDED (no directory has the room; the message says what each may
 * have), IO (no file can be made; of the last directory tried. Or this is a forked
 * child, in which the other functions do nothing), NO_MEMORY. */
spw_status spw__segments_reserve(spw__segments *segments, uint64_t bytes,
                                 spw__range *ret_range, spw_error *error);
/* Have a range of a file that another store made, and never writes to again where it
 * is: bytes > 0 from offset on. The first range of a file opens it once more, for
 * ourselves; later ones find that again, by which file it is. It is charged to the
 * first directory whose limit has the room, and where none has, to the last.
 * Borrows: file, whose descriptor is another's. Returns: a range to be released; its
 * file is to be used from then on, and file to be let go of. Thread: any; asks the file
 * system, and reads nothing.
 * Errors: IO (the file cannot be asked about; or this is a forked child), NO_MEMORY,
 * INVALID_ARGUMENT (more bytes than any disk has). */
spw_status spw__segments_adopt(spw__segments *segments, spw_file *file, uint64_t offset,
                               uint64_t bytes, spw__range *ret_range, spw_error *error);
/* Ask of the foreign segments which of them nobody else wants any more: of those
 * next_sparse answers the ones of which we want less than half of the file. It answers
 * each again from now on. Thread: any; asks the file system. */
void spw__segments_look(spw__segments *segments);

/* The file of a range. Borrows: it, until the range is released; whoever makes a slice
 * of it takes a reference. Thread: any. */
spw_file *spw__range_file(const spw__range *range);
/* Give up a range, which was written or not. Takes: range, and sets its segment NULL.
 * Returns: whether collect or next_sparse(false) has something to do. Thread: any;
 * never blocks. */
bool spw__segments_release(spw__segments *segments, spw__range *range);
/* Give up a range into which nothing was written, or not all. As release; but where it
 * is the last of what its file was reserved for, file and disk have the room again.
 * Thread: any; blocks on the disk. */
bool spw__segments_give_up(spw__segments *segments, spw__range *range);
/* What is in the segment of a range cannot be moved: it is answered no more. Borrows:
 * range, not released meanwhile. Thread: any. */
void spw__segments_leave(spw__segments *segments, const spw__range *range);
/* Returns: whether collect or next_sparse(false) has something to do. Thread: any. */
bool spw__segments_are_due(spw__segments *segments);
/* A write into a range failed: for half a minute its directory is passed over, as long
 * as another one may be asked. Returns: whether one may. Thread: any; never blocks. */
bool spw__segments_refuse(spw__segments *segments, const spw__range *range);
/* How many directories there are. Thread: any. */
size_t spw__segments_directories(const spw__segments *segments);
/* Close the files of which nothing is wanted. Returns: bytes that the directories have
 * again, with those of foreign segments that were released since. Thread: any; blocks
 * on the disk. */
uint64_t spw__segments_collect(spw__segments *segments);
/* A sealed segment of which less than half is still wanted, for what is in it to be
 * moved; each is answered once between two calls of look, and of those of our own the
 * one of which least is. As long as more is wanted of all of ours together than is not,
 * they wait: what is wanted of them mostly goes by itself, and what was moved was
 * written in vain. But not where a directory or its disk is nearly full, since moving
 * takes room, nor with is_short, when the disk gave out.
 * Returns: NULL when there is none; only to be compared with those of ranges, for it
 * goes when the last of its own is released. Thread: any. */
spw__segment *spw__segments_next_sparse(spw__segments *segments, bool is_short);
/* Read all figures as one snapshot. Thread: any. */
void spw__segments_read(spw__segments *segments, spw__segments_figures *ret_figures);

#endif
