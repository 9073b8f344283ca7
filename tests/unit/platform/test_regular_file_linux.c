#include "platform/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "file_payloads.h"
#include "testing.h"

static void only_an_ordinary_file_that_can_be_read_will_do(void **state)
{
    (void)state;
    int file = file_open(), ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int directory = open("/tmp", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    int device = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int unread = open("/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    int place = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    assert_true(directory >= 0 && device >= 0 && place >= 0);
    assert_int_equal(spw__regular_file_verify(file), 0);
    assert_int_equal(spw__regular_file_verify(ends[0]), -EINVAL);
    assert_int_equal(spw__regular_file_verify(directory), -EINVAL);
    assert_int_equal(spw__regular_file_verify(device), -EINVAL);
    assert_int_equal(spw__regular_file_verify(place), -EBADF);
    assert_int_equal(spw__regular_file_verify(-1), -EBADF);
    if (unread >= 0) /* where /tmp can have such files */
        assert_int_equal(spw__regular_file_verify(unread), -EBADF);
    int all[] = {file, ends[0], ends[1], directory, device, place, unread};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        spw__regular_file_close(all[i]);
    assert_int_equal(fcntl(file, F_GETFD), -1);
}

static void it_is_told_what_is_cached(void **state)
{
    enum { SIZE = 3 << 20 };
    static char bytes[SIZE];
    (void)state;
    char name[] = "/tmp/spillway-cached-XXXXXX";
    int file = mkstemp(name);
    assert_true(file >= 0);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(write(file, bytes, SIZE), SIZE);
    assert_int_equal(spw__regular_file_is_cached(file, 100, SIZE - 100), 1);
    assert_int_equal(fsync(file), 0);
    assert_int_equal(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(spw__regular_file_is_cached(file, 0, SIZE), 0);
    assert_int_equal(spw__regular_file_is_cached(file, 4095, 1), 0);
    assert_int_equal(pread(file, bytes, SIZE, 0), SIZE);
    assert_int_equal(spw__regular_file_is_cached(file, 4095, SIZE - 4095), 1);
    spw__regular_file_close(file);
    assert_int_equal(spw__regular_file_is_cached(file, 0, 1), -EBADF);
}

static void it_is_told_which_file_it_is(void **state)
{
    (void)state;
    spw__file_facts one, same, other;
    int file = file_open(), another = file_open();
    int duplicate = fcntl(file, F_DUPFD_CLOEXEC, 0);
    assert_int_equal(spw__regular_file_describe(file, &one), 0);
    assert_int_equal(one.bytes, 0);
    assert_int_equal(pwrite(file, "x", 1, 99), 1);
    assert_int_equal(spw__regular_file_describe(duplicate, &same), 0);
    assert_int_equal(spw__regular_file_describe(another, &other), 0);
    assert_int_equal(same.bytes, 100);
    assert_true(same.device == one.device && same.number == one.number);
    assert_true(other.device != one.device || other.number != one.number);
    spw__regular_file_close(duplicate);
    spw__regular_file_close(another);
    spw__regular_file_close(file);
    assert_int_equal(spw__regular_file_describe(file, &one), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_an_ordinary_file_that_can_be_read_will_do),
        cmocka_unit_test(it_is_told_what_is_cached),
        cmocka_unit_test(it_is_told_which_file_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
