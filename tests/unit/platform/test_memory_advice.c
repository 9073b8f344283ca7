#include "platform/memory_advice.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testing.h"

#define MIB ((size_t)1 << 20)

/* Bytes from start on, as far as to end, that the kernel says are advised ("hg"). */
static size_t advised_bytes(uintptr_t start, uintptr_t end)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    char line[512];
    size_t sum = 0;
    unsigned long from = 0, to = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long first, last;
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {
            from = first > start ? first : start;
            to = last < end ? last : end;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL &&
                   from < to) {
            sum += to - from;
        }
    }
    fclose(maps);
    return sum;
}

static char *map(size_t size)
{
    char *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void a_large_range_is_advised_page_by_page(void **state)
{
    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0)
        skip();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = map(8 * MIB);
    memory[page] = 7;
    /* From inside the first page to inside the last: only whole pages inside count. */
    spw__memory_advise_huge(memory + 16, 8 * MIB - 32);
    assert_int_equal(advised_bytes((uintptr_t)memory, (uintptr_t)memory + 8 * MIB),
                     8 * MIB - 2 * page);
    assert_int_equal(memory[page], 7);
    assert_int_equal(munmap(memory, 8 * MIB), 0);
}

static void a_small_range_is_left_alone(void **state)
{
    (void)state;
    char *memory = map(8 * MIB);
    spw__memory_advise_huge(memory, 4 * MIB - 1);
    spw__memory_advise_huge(NULL, 0);
    assert_int_equal(advised_bytes((uintptr_t)memory, (uintptr_t)memory + 8 * MIB), 0);
    assert_int_equal(munmap(memory, 8 * MIB), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_large_range_is_advised_page_by_page),
        TEST(a_small_range_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
