/* The window: what a file has, in pieces, if the system has it not in its cache. */
#include "transport/file_window.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

enum { SIZE = (5 << 20) + 1234, FROM = 777 };

static char *make_bytes(void)
{
    char *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 31 + (i >> 12));
    return bytes;
}

/* A file that is in the system's cache, or only on disk. */
static int make_file(const char *bytes, bool is_cached)
{
    char name[] = "/tmp/spillway-window-XXXXXX";
    int descriptor = mkstemp(name);
    assert_true(descriptor >= 0);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(write(descriptor, bytes, SIZE), SIZE);
    if (!is_cached) {
        assert_int_equal(fsync(descriptor), 0);
        assert_int_equal(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    }
    return descriptor;
}

static spw__file_range range_of(int descriptor, size_t done)
{
    return (spw__file_range){
        .descriptor = descriptor, .offset = FROM + done, .size = SIZE - FROM - done};
}

static void what_is_not_cached_comes_in_pieces(void **state)
{
    torture *t = *state;
    char *bytes = make_bytes();
    int descriptor = make_file(bytes, false);
    spw__file_window window = {0};
    size_t done = 0, pieces = 0;
    while (done < SIZE - FROM) {
        spw__file_range range = range_of(descriptor, done);
        struct iovec piece;
        if (!spw__file_window_get(&window, t->context, &range, &piece))
            break; /* the end is too short to be worth it */
        /* A socket takes what it likes. */
        size_t sent = piece.iov_len < 1000000 ? piece.iov_len : 1000000;
        assert_memory_equal(piece.iov_base, bytes + FROM + done, sent);
        spw__file_window_advance(&window, sent);
        done += sent;
        pieces++;
    }
    assert_true(pieces >= 4);
    assert_true(SIZE - FROM - done < 1 << 20);
    assert_int_equal(window.left, 0);
    spw__file_window_clear(&window);
    assert_null(window.buffer);
    close(descriptor);
    free(bytes);
}

static void what_is_cached_or_short_is_left_to_sendfile(void **state)
{
    torture *t = *state;
    char *bytes = make_bytes();
    spw__file_window window = {0};
    struct iovec piece;
    int cached = make_file(bytes, true), cold = make_file(bytes, false);
    spw__file_range range = range_of(cached, 0), brief = range_of(cold, 0);
    brief.size = 1000;
    assert_false(spw__file_window_get(&window, t->context, &range, &piece));
    assert_false(spw__file_window_get(&window, t->context, &brief, &piece));
    assert_null(window.buffer);
    close(cached);
    close(cold);
    free(bytes);
}

static void what_cannot_be_read_is_left_to_sendfile(void **state)
{
    torture *t = *state;
    char *bytes = make_bytes();
    spw__file_window window = {0};
    struct iovec piece;
    int cold = make_file(bytes, false);
    spw__file_range range = range_of(cold, 0);
    range.offset += SIZE; /* behind its end */
    assert_false(spw__file_window_get(&window, t->context, &range, &piece));
    assert_null(window.buffer);
    torture_limit(t, 1 << 20); /* and so is what there is no memory for */
    range = range_of(cold, 0);
    assert_false(spw__file_window_get(&window, t->context, &range, &piece));
    close(cold);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(what_is_not_cached_comes_in_pieces),
        SCENARIO(what_is_cached_or_short_is_left_to_sendfile),
        SCENARIO(what_cannot_be_read_is_left_to_sendfile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
