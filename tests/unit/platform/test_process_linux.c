#include "platform/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/memory_map.h"
#include "testing.h"

#define MIB ((size_t)1 << 20)

static void resident_memory_rises_with_what_is_touched(void **state)
{
    (void)state;
    void *data;
    assert_int_equal(spw__memory_map(64 * MIB, SPW__PAGES_SMALL, &data), 0);
    uint64_t before = spw__process_resident_bytes();
    memset(data, 1, 64 * MIB);
    uint64_t touched = spw__process_resident_bytes();
    spw__memory_unmap(data, 64 * MIB);
    uint64_t after = spw__process_resident_bytes();
    assert_true(before > 0);
    /* The kernel counts in batches, so a little may be missing. */
    assert_in_range(touched - before, 60 * MIB, 80 * MIB);
    assert_true(after + 60 * MIB < touched);
}

/* Answers in a child of this process, by its exit code. */
static int in_child(int (*answer)(void))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(answer());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int own_count(void)
{
    return (int)spw__process_fork_count();
}

static int childs_count(void)
{
    return in_child(own_count);
}

static void forks_are_counted_in_the_child(void **state)
{
    (void)state;
    assert_int_equal(own_count(), 0);
    assert_int_equal(in_child(own_count), 1);
    assert_int_equal(in_child(childs_count), 2);
    assert_int_equal(own_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_memory_rises_with_what_is_touched),
        cmocka_unit_test(forks_are_counted_in_the_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
