#include "platform/memory_map.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testing.h"

#define MIB ((size_t)1 << 20)

/* Pages of a range that have memory; SIZE_MAX when not all of them are mapped. */
static size_t resident_pages(void *data, size_t size)
{
    size_t count = size / spw__memory_page_bytes(), resident = 0;
    unsigned char *pages = calloc(count, 1);
    assert_non_null(pages);
    if (mincore(data, size, pages) != 0) {
        assert_int_equal(errno, ENOMEM);
        free(pages);
        return SIZE_MAX;
    }
    for (size_t i = 0; i < count; i++)
        resident += pages[i] & 1;
    free(pages);
    return resident;
}

/* Whether the kernel says that an address is so advised: "hg", "nh". */
static bool is_advised(const void *data, const char *flag)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    char line[512];
    bool is_inside = false, is_found = false;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long first, last;
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
            is_inside = (uintptr_t)data >= first && (uintptr_t)data < last;
        else if (is_inside && strncmp(line, "VmFlags:", 8) == 0)
            is_found = strstr(line, flag) != NULL;
    }
    fclose(maps);
    return is_found;
}

static bool has_huge_pages(void)
{
    return access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;
}

static void huge_pages_begin_where_one_can(void **state)
{
    (void)state;
    size_t page = spw__memory_page_bytes();
    static const size_t MIBS[] = {2, 3, 64};
    for (size_t i = 0; i < COUNT_OF(MIBS); i++) {
        size_t size = MIBS[i] * MIB + page;
        void *data;
        assert_int_equal(spw__memory_map(size, SPW__PAGES_HUGE, &data), 0);
        assert_int_equal((uintptr_t)data % SPW__HUGE_PAGE_BYTES, 0);
        assert_int_equal(resident_pages(data, size), 0);
        if (has_huge_pages())
            assert_true(is_advised(data, " hg"));
        memset(data, 1, size);
        assert_int_equal(resident_pages(data, size), size / page);
        spw__memory_unmap(data, size);
        assert_int_equal(resident_pages(data, page), SIZE_MAX);
    }
}

static void a_touched_small_page_is_one_page(void **state)
{
    (void)state;
    void *data;
    assert_int_equal(spw__memory_map(32 * MIB, SPW__PAGES_SMALL, &data), 0);
    if (has_huge_pages())
        assert_true(is_advised(data, " nh"));
    for (size_t at = 0; at < 32 * MIB; at += MIB) {
        assert_int_equal(((char *)data)[at], 0);
        ((char *)data)[at] = 1;
    }
    assert_int_equal(resident_pages(data, 32 * MIB), 32);
    spw__memory_unmap(data, 32 * MIB);
    assert_int_equal(resident_pages(data, MIB), SIZE_MAX);
}

static void what_is_discarded_reads_as_zero(void **state)
{
    (void)state;
    size_t page = spw__memory_page_bytes();
    void *mapped;
    assert_int_equal(spw__memory_map(4 * page, SPW__PAGES_SMALL, &mapped), 0);
    char *data = mapped;
    memset(data, 7, 4 * page);
    spw__memory_discard(data + page, 2 * page);
    spw__memory_discard(data, 0);
    assert_int_equal(resident_pages(data, 4 * page), 2);
    assert_int_equal(data[page - 1], 7);
    assert_int_equal(data[page], 0);
    assert_int_equal(data[3 * page - 1], 0);
    assert_int_equal(data[3 * page], 7);
    spw__memory_unmap(data, 4 * page);
}

static void a_part_can_be_unmapped(void **state)
{
    (void)state;
    void *mapped;
    assert_int_equal(spw__memory_map(4 * MIB, SPW__PAGES_HUGE, &mapped), 0);
    char *data = mapped;
    memset(data, 7, 4 * MIB);
    spw__memory_unmap(data, 2 * MIB);
    assert_int_equal(resident_pages(data, MIB), SIZE_MAX);
    assert_int_equal(data[2 * MIB], 7);
    spw__memory_unmap(data + 2 * MIB, 2 * MIB);
    assert_int_equal(resident_pages(data + 2 * MIB, MIB), SIZE_MAX);
}

static void what_is_moved_is_there_and_nowhere_else(void **state)
{
    (void)state;
    void *from, *to;
    assert_int_equal(spw__memory_map(4 * MIB, SPW__PAGES_HUGE, &from), 0);
    assert_int_equal(spw__memory_map(6 * MIB, SPW__PAGES_HUGE, &to), 0);
    memset(from, 7, 4 * MIB);
    memset(to, 8, 6 * MIB);
    assert_int_equal(spw__memory_move(from, 2 * MIB, (char *)to + 2 * MIB), 0);
    const char *data = to;
    assert_int_equal(data[2 * MIB - 1], 8);
    assert_int_equal(data[2 * MIB], 7);
    assert_int_equal(data[4 * MIB - 1], 7);
    assert_int_equal(data[4 * MIB], 8);
    assert_int_equal(resident_pages(from, MIB), SIZE_MAX);
    assert_int_equal(((char *)from)[2 * MIB], 7);
    assert_int_equal(spw__memory_move(from, 2 * MIB, to), -EFAULT); /* not mapped */
    spw__memory_unmap((char *)from + 2 * MIB, 2 * MIB);
    spw__memory_unmap(to, 6 * MIB);
}

static void moved_pages_leave_zeros(void **state)
{
    (void)state;
    size_t page = spw__memory_page_bytes();
    void *from, *to;
    assert_int_equal(spw__memory_map(2 * MIB, SPW__PAGES_HUGE, &from), 0);
    assert_int_equal(spw__memory_map(2 * MIB, SPW__PAGES_HUGE, &to), 0);
    memset(from, 7, 2 * MIB);
    assert_int_equal(
        spw__memory_move_pages((char *)from + page, 3 * page, (char *)to + 5 * page),
        0);
    assert_int_equal(((char *)from)[page - 1], 7);
    assert_int_equal(((char *)from)[page], 0);
    assert_int_equal(((char *)from)[4 * page], 7);
    assert_int_equal(((char *)to)[5 * page], 7);
    assert_int_equal(((char *)to)[8 * page - 1], 7);
    assert_int_equal(((char *)to)[8 * page], 0);
    spw__memory_unmap(from, 2 * MIB);
    spw__memory_unmap(to, 2 * MIB);
}

/* Pages that were moved beside others are a mapping of their own. */
static void mappings_are_told_apart_to_the_page(void **state)
{
    (void)state;
    size_t page = spw__memory_page_bytes();
    static const size_t PAGES[] = {1, 2, 7, 16, 17, 100};
    for (size_t i = 0; i < COUNT_OF(PAGES); i++) {
        void *from, *to;
        size_t first = 40 * page, size = PAGES[i] * page;
        assert_int_equal(spw__memory_map(2 * MIB, SPW__PAGES_HUGE, &from), 0);
        assert_int_equal(spw__memory_map(2 * MIB, SPW__PAGES_HUGE, &to), 0);
        char *data = to;
        memset(from, 7, 2 * MIB);
        memset(to, 8, 2 * MIB);
        assert_int_equal(spw__memory_move_pages(from, size, data + first), 0);
        assert_int_equal(spw__memory_mapping_part(data, 2 * MIB), first);
        assert_int_equal(spw__memory_mapping_part(data, first), first);
        assert_int_equal(spw__memory_mapping_part(data + page, 2 * MIB - page),
                         first - page);
        assert_int_equal(spw__memory_mapping_part(data + first, 2 * MIB - first), size);
        size_t rest = 2 * MIB - first - size;
        assert_int_equal(spw__memory_mapping_part(data + first + size, rest), rest);
        assert_int_equal(resident_pages(data, 2 * MIB), 2 * MIB / page);
        assert_int_equal(data[first], 7);
        /* What is asked about has not grown. */
        spw__memory_unmap(data + first + size, rest);
        assert_int_equal(spw__memory_mapping_part(data + first, size), size);
        assert_int_equal(resident_pages(data + first + size, page), SIZE_MAX);
        spw__memory_unmap(data, first + size);
        spw__memory_unmap(from, 2 * MIB);
    }
}

static void what_cannot_be_mapped_is_said(void **state)
{
    (void)state;
    size_t page = spw__memory_page_bytes();
    void *data = &page;
    assert_int_equal(spw__memory_map(SIZE_MAX & ~(page - 1), SPW__PAGES_HUGE, &data),
                     -ENOMEM);
    assert_int_equal(
        spw__memory_map(SIZE_MAX / 2 & ~(page - 1), SPW__PAGES_HUGE, &data), -ENOMEM);
    assert_int_equal(
        spw__memory_map(SIZE_MAX / 2 & ~(page - 1), SPW__PAGES_SMALL, &data), -ENOMEM);
    assert_ptr_equal(data, &page);
}

/* The kernel joins neighbouring mappings, so to unmap one of ours may need one more
 * than there are; at the limit it is refused. */
static void at_the_limit_of_mappings_the_memory_goes_all_the_same(void **state)
{
    (void)state;
    size_t page = spw__memory_page_bytes();
    const size_t pages = 200000;
    FILE *limit = fopen("/proc/sys/vm/max_map_count", "r");
    unsigned long most = 0;
    if (limit == NULL || fscanf(limit, "%lu", &most) != 1 || most > pages / 2)
        skip();
    fclose(limit);
    void *mapped;
    assert_int_equal(spw__memory_map(3 * page, SPW__PAGES_SMALL, &mapped), 0);
    char *data = mapped;
    memset(data, 7, 3 * page);
    /* Every second page is another mapping. */
    char *many =
        mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(many, MAP_FAILED);
    size_t done = 1;
    while (done < pages && mprotect(many + done * page, page, PROT_READ) == 0)
        done += 2;
    int reached = done < pages;
    spw__memory_unmap(data + page, page);
    size_t left = resident_pages(data, 3 * page);
    munmap(many, pages * page);
    assert_true(reached);
    assert_int_equal(left, 2);
    assert_int_equal(data[0], 7);
    assert_int_equal(data[2 * page], 7);
    spw__memory_unmap(data, 3 * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_pages_begin_where_one_can),
        cmocka_unit_test(a_touched_small_page_is_one_page),
        cmocka_unit_test(what_is_discarded_reads_as_zero),
        cmocka_unit_test(a_part_can_be_unmapped),
        cmocka_unit_test(what_is_moved_is_there_and_nowhere_else),
        cmocka_unit_test(moved_pages_leave_zeros),
        cmocka_unit_test(mappings_are_told_apart_to_the_page),
        cmocka_unit_test(what_cannot_be_mapped_is_said),
        cmocka_unit_test(at_the_limit_of_mappings_the_memory_goes_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
