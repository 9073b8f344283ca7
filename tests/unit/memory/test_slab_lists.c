#include "memory/slab_lists.h"

#include "counted_context.h"
#include "platform/memory_map.h"
#include "testing.h"

enum { SLABS = 3, SIZE = 1 << 20 };

typedef struct fixture {
    counted_context counted;
    spw__slab_lists lists;
    spw__slab *slabs[SLABS]; /* of one size */
} fixture;

static void open_slabs(fixture *f)
{
    *f = (fixture){0};
    counted_context_open(&f->counted, 0, 0);
    for (int i = 0; i < SLABS; i++) {
        void *memory;
        assert_int_equal(spw__memory_map(SPW__SLAB_BYTES, SPW__PAGES_SMALL, &memory),
                         0);
        f->slabs[i] =
            spw__slab_create(f->counted.context, spw__slab_class_of(SIZE), memory);
        assert_non_null(f->slabs[i]);
        spw__slab_lists_add(&f->lists, f->slabs[i]);
    }
}

static void close_slabs(fixture *f)
{
    for (int i = 0; i < SLABS; i++)
        spw__slab_free(f->slabs[i], f->counted.context);
    counted_context_close(&f->counted);
}

static const spw__slab_class *class_of(const fixture *f)
{
    return &f->lists.classes[spw__slab_class_of(SIZE)];
}

static void *take(spw__slab *slab)
{
    bool is_warm;
    return spw__slab_take(slab, &is_warm);
}

static size_t count_all(const fixture *f)
{
    size_t count = 0;
    for (const spw__slab *slab = f->lists.all; slab != NULL; slab = slab->all_next) {
        assert_true(slab->all_next == NULL || slab->all_next->all_previous == slab);
        count++;
    }
    return count;
}

static void a_slab_gives_nothing_before_it_is_sorted_in(void **state)
{
    (void)state;
    fixture f;
    open_slabs(&f);
    assert_int_equal(count_all(&f), SLABS);
    assert_null(class_of(&f)->cold);
    spw__slab_lists_sort(&f.lists, f.slabs[0]);
    assert_ptr_equal(class_of(&f)->cold, f.slabs[0]);
    assert_null(class_of(&f)->warm);
    close_slabs(&f);
}

static void slabs_change_lists_with_their_items(void **state)
{
    (void)state;
    fixture f;
    open_slabs(&f);
    for (int i = 0; i < SLABS; i++)
        spw__slab_lists_sort(&f.lists, f.slabs[i]);
    void *item = take(f.slabs[1]); /* in the middle of the list */
    spw__slab_put(f.slabs[1], item, 1);
    spw__slab_lists_sort(&f.lists, f.slabs[1]);
    assert_ptr_equal(class_of(&f)->warm, f.slabs[1]);
    assert_null(f.slabs[1]->next);
    assert_ptr_equal(class_of(&f)->cold, f.slabs[2]);
    assert_ptr_equal(f.slabs[2]->next, f.slabs[0]);
    while (!spw__slab_is_full(f.slabs[1]))
        (void)take(f.slabs[1]);
    spw__slab_lists_sort(&f.lists, f.slabs[1]);
    assert_null(class_of(&f)->warm);
    assert_false(f.slabs[1]->is_listed);
    spw__slab_put(f.slabs[1], item, 2);
    spw__slab_lists_sort(&f.lists, f.slabs[1]);
    spw__slab_lists_sort(&f.lists, f.slabs[1]); /* nothing has changed */
    assert_ptr_equal(class_of(&f)->warm, f.slabs[1]);
    assert_null(f.slabs[1]->next);
    close_slabs(&f);
}

static void a_removed_slab_is_in_no_list(void **state)
{
    static const int ORDER[SLABS] = {1, 2, 0};
    (void)state;
    fixture f;
    open_slabs(&f);
    spw__slab_lists_sort(&f.lists, f.slabs[0]);
    spw__slab_lists_sort(&f.lists, f.slabs[1]);
    for (int i = 0; i < SLABS; i++) { /* one of them was never sorted in */
        spw__slab_lists_remove(&f.lists, f.slabs[ORDER[i]]);
        assert_int_equal(count_all(&f), SLABS - 1 - i);
        assert_ptr_equal(class_of(&f)->cold, i < 2 ? f.slabs[0] : NULL);
    }
    close_slabs(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slab_gives_nothing_before_it_is_sorted_in),
        cmocka_unit_test(slabs_change_lists_with_their_items),
        cmocka_unit_test(a_removed_slab_is_in_no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
