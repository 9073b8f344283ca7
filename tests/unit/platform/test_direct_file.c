/* Direct I/O: at whatever place, what is written is what is read, by either way. */
#include "platform/direct_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "platform/regular_file.h"
#include "testing.h"

enum { SIZE = 3 << 20, THROUGH = 1 << 18 };

static char *aligned(size_t size)
{
    char *data = aligned_alloc(SPW__DIRECT_BYTES, size);
    assert_non_null(data);
    memset(data, 0, size);
    return data;
}

/* Write SIZE bytes in three parts, of which the first is small, and the last MiB by the
 * cache. Returns: how many, or what went wrong. */
static int write_some(int file, const char *bytes, uint64_t offset, char *through)
{
    const spw__spill_part parts[] = {
        {.data = bytes, .size = 13},
        {.data = bytes + 13, .size = 1 << 20},
        {.data = bytes + 13 + (1 << 20), .size = SIZE - 13 - (1 << 20)},
    };
    spw__direct_write write;
    int done = 0, answer;
    spw__direct_write_begin(&write, file, parts, 3, offset, through, THROUGH);
    while ((answer = spw__direct_write_step(&write)) > 0) {
        assert_true(answer <= THROUGH);
        done += answer;
        if (done >= 2 << 20)
            spw__direct_write_end(&write);
    }
    spw__direct_write_end(&write);
    return answer < 0 ? answer : done;
}

static void what_is_written_is_read_wherever_it_is(void **state)
{
    static const uint64_t OFFSETS[] = {0, 64, 4095, 4096, 1 << 20, 123457};
    (void)state;
    char *bytes = malloc(SIZE), *through = aligned(THROUGH);
    char *plain = malloc(SIZE), *direct = aligned(SIZE + 2 * SPW__DIRECT_BYTES);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7 + (i >> 11));
    for (size_t i = 0; i < sizeof OFFSETS / sizeof OFFSETS[0]; i++) {
        uint64_t offset = OFFSETS[i];
        int file = spw__spill_file_create("/tmp");
        assert_true(file >= 0);
        assert_true(write_some(file, bytes, offset, through) == SIZE);
        assert_true(spw__spill_file_read(file, plain, SIZE, offset) >= 0);
        assert_memory_equal(plain, bytes, SIZE);
        char *placed = direct + offset % SPW__DIRECT_BYTES;
        memset(direct, 0, SIZE + SPW__DIRECT_BYTES);
        assert_true(spw__direct_file_read(file, placed, SIZE, offset) >= 0);
        assert_memory_equal(placed, bytes, SIZE);
        /* Memory that lies elsewhere in its page. */
        assert_true(spw__direct_file_read(file, placed + 8, SIZE - 8, offset) >= 0);
        assert_memory_equal(placed + 8, bytes, SIZE - 8);
        spw__regular_file_close(file);
    }
    free(bytes);
    free(through);
    free(plain);
    free(direct);
}

static void neighbours_in_a_page_stay(void **state)
{
    (void)state;
    char *bytes = malloc(SIZE), *through = aligned(THROUGH), found[100];
    memset(bytes, 'b', SIZE);
    int file = spw__spill_file_create("/tmp");
    assert_true(file >= 0);
    char before[100], after[100];
    memset(before, 'a', sizeof before);
    memset(after, 'c', sizeof after);
    const spw__spill_part first = {.data = before, .size = sizeof before};
    const spw__spill_part last = {.data = after, .size = sizeof after};
    assert_true(spw__spill_file_write(file, &first, 1, 0) >= 0);
    assert_true(write_some(file, bytes, sizeof before, through) == SIZE);
    assert_true(spw__spill_file_write(file, &last, 1, sizeof before + SIZE) >= 0);
    assert_true(spw__spill_file_read(file, found, sizeof found, 0) >= 0);
    assert_memory_equal(found, before, sizeof before);
    assert_true(spw__spill_file_read(file, found, sizeof found, SIZE + 100) >= 0);
    assert_memory_equal(found, after, sizeof after);
    spw__regular_file_close(file);
    free(bytes);
    free(through);
}

static void the_end_of_a_file_is_told(void **state)
{
    (void)state;
    char *data = aligned(SIZE), *through = aligned(THROUGH);
    int file = spw__spill_file_create("/tmp");
    assert_true(file >= 0);
    assert_true(write_some(file, data, 0, through) == SIZE);
    assert_int_equal(spw__direct_file_read(file, data, SIZE, SPW__DIRECT_BYTES),
                     -ENODATA);
    spw__regular_file_close(file);
    free(data);
    free(through);
}

static void a_file_that_is_only_read_is_opened_for_that(void **state)
{
    (void)state;
    char *data = aligned(SIZE);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    int direct = spw__spill_file_open_direct(file);
    if (direct >= 0) { /* not every file system has it */
        assert_int_equal(fcntl(direct, F_GETFL) & O_ACCMODE, O_RDONLY);
        spw__regular_file_close(direct);
    }
    assert_true(spw__direct_file_read(file, data, 2 * SPW__DIRECT_BYTES, 0) >= 0);
    assert_memory_equal(data, "\177ELF", 4);
    spw__regular_file_close(file);
    assert_int_equal(spw__spill_file_open_direct(file), -EBADF);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_wherever_it_is),
        cmocka_unit_test(neighbours_in_a_page_stay),
        cmocka_unit_test(the_end_of_a_file_is_told),
        cmocka_unit_test(a_file_that_is_only_read_is_opened_for_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
