/* Shared memory, on real memfds. */
#include "platform/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testing.h"

enum { SIZE = 100000 };

static char content[SIZE];

static int make(bool is_sealed)
{
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (char)(i * 7 + i / 256);
    int memory = spw__shared_memory_create();
    assert_true(memory >= 0);
    /* In two parts, the second of which makes it grow. */
    assert_int_equal(spw__shared_memory_fill(memory, 0, content, 5000), 0);
    assert_int_equal(spw__shared_memory_fill(memory, 5000, content + 5000, SIZE - 5000),
                     0);
    if (is_sealed)
        assert_int_equal(spw__shared_memory_seal(memory), 0);
    return memory;
}

static void children_do_not_inherit_it(void **state)
{
    (void)state;
    int memory = make(false);
    assert_true(fcntl(memory, F_GETFD) & FD_CLOEXEC);
    spw__shared_memory_close(memory);
}

static void what_is_filled_is_mapped(void **state)
{
    (void)state;
    int memory = make(true);
    void *data = NULL;
    assert_int_equal(spw__shared_memory_verify(memory, SIZE), 0);
    assert_int_equal(spw__shared_memory_map(memory, SIZE, &data), 0);
    assert_memory_equal(data, content, SIZE);
    spw__shared_memory_close(memory);
    assert_memory_equal(data, content, SIZE);
    spw__shared_memory_unmap(data, SIZE);
}

static void what_one_writes_the_other_does_not_see(void **state)
{
    (void)state;
    int memory = make(true);
    void *mine, *yours;
    assert_int_equal(spw__shared_memory_map(memory, SIZE, &mine), 0);
    assert_int_equal(spw__shared_memory_map(memory, SIZE, &yours), 0);
    memset(mine, 1, SIZE);
    assert_memory_equal(yours, content, SIZE);
    char got[100];
    assert_int_equal(spw__shared_memory_read(memory, 0, got, sizeof got), 0);
    assert_memory_equal(got, content, sizeof got);
    spw__shared_memory_unmap(mine, SIZE);
    spw__shared_memory_unmap(yours, SIZE);
    spw__shared_memory_close(memory);
}

static void a_sealed_one_does_not_change(void **state)
{
    (void)state;
    int memory = make(true);
    assert_int_equal(spw__shared_memory_fill(memory, 0, "x", 1), -EPERM);
    assert_int_equal(spw__shared_memory_fill(memory, SIZE, "x", 1), -EPERM);
    assert_int_equal(ftruncate(memory, 10), -1);
    assert_int_equal(ftruncate(memory, 2 * SIZE), -1);
    assert_int_equal(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_ptr_equal(mmap(NULL, SIZE, PROT_WRITE, MAP_SHARED, memory, 0), MAP_FAILED);
    spw__shared_memory_close(memory);
}

static void one_that_somebody_can_write_is_not_sealed(void **state)
{
    (void)state;
    int memory = make(false);
    void *data = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    assert_int_equal(spw__shared_memory_seal(memory), -EBUSY);
    munmap(data, SIZE);
    spw__shared_memory_close(memory);
}

static void what_is_not_sealed_in_every_way_is_refused(void **state)
{
    (void)state;
    static const int SEALS[] = {F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL};
    for (int missing = 0; missing < 4; missing++) {
        int memory = make(false), seals = 0;
        for (int i = 0; i < 4; i++)
            seals |= i != missing ? SEALS[i] : 0;
        assert_int_equal(fcntl(memory, F_ADD_SEALS, seals), 0);
        assert_int_equal(spw__shared_memory_verify(memory, SIZE), -EPERM);
        spw__shared_memory_close(memory);
    }
}

static void what_is_no_shared_memory_is_refused(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(spw__shared_memory_verify(ends[0], SIZE), -EINVAL);
    assert_int_equal(spw__shared_memory_verify(-1, SIZE), -EBADF);
    close(ends[0]);
    close(ends[1]);
    /* Huge pages can be sealed as well, and can run out under a reader. */
    int huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (huge < 0)
        return;
    assert_int_equal(spw__shared_memory_seal(huge), 0);
    assert_int_equal(spw__shared_memory_verify(huge, 0), -EINVAL);
    close(huge);
}

static void another_size_is_refused(void **state)
{
    (void)state;
    int memory = make(true);
    assert_int_equal(spw__shared_memory_verify(memory, SIZE - 1), -EMSGSIZE);
    assert_int_equal(spw__shared_memory_verify(memory, SIZE + 1), -EMSGSIZE);
    spw__shared_memory_close(memory);
}

static void it_is_read_up_to_its_end(void **state)
{
    (void)state;
    int memory = make(true);
    char got[200];
    assert_int_equal(spw__shared_memory_read(memory, SIZE - 200, got, 200), 0);
    assert_memory_equal(got, content + SIZE - 200, 200);
    assert_int_equal(spw__shared_memory_read(memory, SIZE - 199, got, 200), -EIO);
    assert_int_equal(spw__shared_memory_read(-1, 0, got, 200), -EBADF);
    spw__shared_memory_close(memory);
}

static void what_cannot_be_mapped_is_told(void **state)
{
    (void)state;
    void *data = &data;
    assert_int_equal(spw__shared_memory_map(-1, SIZE, &data), -EBADF);
    assert_ptr_equal(data, &data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_do_not_inherit_it),
        cmocka_unit_test(what_is_filled_is_mapped),
        cmocka_unit_test(what_one_writes_the_other_does_not_see),
        cmocka_unit_test(a_sealed_one_does_not_change),
        cmocka_unit_test(one_that_somebody_can_write_is_not_sealed),
        cmocka_unit_test(what_is_not_sealed_in_every_way_is_refused),
        cmocka_unit_test(what_is_no_shared_memory_is_refused),
        cmocka_unit_test(another_size_is_refused),
        cmocka_unit_test(it_is_read_up_to_its_end),
        cmocka_unit_test(what_cannot_be_mapped_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
