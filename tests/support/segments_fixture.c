#include "segments_fixture.h"

void open_places(segments_fixture *f, uint64_t limit_bytes)
{
    *f = (segments_fixture){0};
    for (int i = 0; i < PLACES; i++) {
        private_place_open(&f->places[i]);
        f->directories[i] = (spw_store_directory){f->places[i].directory, limit_bytes};
    }
}

void close_places(segments_fixture *f)
{
    spw__segments_free(f->segments);
    for (int i = 0; i < PLACES; i++)
        private_place_close(&f->places[i]);
}

void open_all(torture *t, segments_fixture *f, size_t count, uint64_t limit_bytes)
{
    open_places(f, limit_bytes);
    assert_ok(spw__segments_create(t->context, f->directories, count,
                                   SPW__SEGMENT_BYTES, &f->segments, NULL));
}

spw__range reserve(segments_fixture *f, uint64_t bytes)
{
    spw__range range = {0};
    assert_ok(spw__segments_reserve(f->segments, bytes, &range, NULL));
    assert_non_null(range.segment);
    assert_int_equal(range.bytes, bytes);
    assert_int_equal(range.offset % SPW__SEGMENT_ALIGNMENT, 0);
    return range;
}

void release_all(segments_fixture *f, spw__range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)spw__segments_release(f->segments, &ranges[i]);
}

spw__segments_figures read_figures(segments_fixture *f)
{
    spw__segments_figures figures;
    spw__segments_read(f->segments, &figures);
    return figures;
}

void assert_figures(segments_fixture *f, uint64_t files, uint64_t file_bytes,
                    uint64_t range_bytes)
{
    spw__segments_figures figures = read_figures(f);
    assert_int_equal(figures.files, files);
    assert_int_equal(figures.file_bytes, file_bytes);
    assert_int_equal(figures.range_bytes, range_bytes);
}
