/* Segments in directories of their own, and ranges in them. */
#ifndef SPW_TESTS_SEGMENTS_FIXTURE_H
#define SPW_TESTS_SEGMENTS_FIXTURE_H

#include "private_place.h"
#include "store/segments.h"
#include "torture.h"

enum { MIB = 1 << 20, PLACES = 2 };

typedef struct segments_fixture {
    private_place places[PLACES];
    spw_store_directory directories[PLACES];
    spw__segments *segments; /* NULL: none yet */
} segments_fixture;

/* The directories alone, each with a limit (0: none). */
void open_places(segments_fixture *f, uint64_t limit_bytes);
/* With segments in the first count of them. */
void open_all(torture *t, segments_fixture *f, size_t count, uint64_t limit_bytes);
/* Fails unless nothing is left in them. */
void close_places(segments_fixture *f);

/* Fails where there is no room. */
spw__range reserve(segments_fixture *f, uint64_t bytes);
void release_all(segments_fixture *f, spw__range *ranges, size_t count);
spw__segments_figures read_figures(segments_fixture *f);
void assert_figures(segments_fixture *f, uint64_t files, uint64_t file_bytes,
                    uint64_t range_bytes);

#endif
