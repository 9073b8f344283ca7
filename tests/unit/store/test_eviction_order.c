/* Who leaves next: by age among those worth writing, small ones only when there is
 * nothing else and enough of them. */
#include "store/eviction_order.h"

#include <string.h>

#include "store/store_state.h"
#include "testing.h"

enum { SMALL = 4096, MEDIUM = 100000, LARGE = SPW__LARGE_BYTES };

static void add(spw__eviction_order *order, spw_entry *entry, uint64_t weight)
{
    memset(entry, 0, sizeof *entry);
    entry->weight = weight;
    spw__order_add(order, entry);
}

static void the_longest_unused_leaves_first_whatever_its_class(void **state)
{
    (void)state;
    spw__eviction_order order = {.small_bytes = SMALL};
    spw_entry entries[4];
    spw__size_class of;
    add(&order, &entries[0], LARGE);
    add(&order, &entries[1], MEDIUM);
    add(&order, &entries[2], 10 * (uint64_t)LARGE);
    add(&order, &entries[3], MEDIUM);
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(spw__order_next(&order, false, false, &of), &entries[i]);
        assert_int_equal(of, i % 2 == 0 ? SPW__CLASS_LARGE : SPW__CLASS_MEDIUM);
        assert_ptr_equal(spw__order_first(&order, of, false), &entries[i]);
        spw__order_remove(&order, &entries[i]);
    }
    assert_null(spw__order_next(&order, false, false, &of));
}

static void using_one_again_makes_it_the_last(void **state)
{
    (void)state;
    spw__eviction_order order = {.small_bytes = SMALL};
    spw_entry entries[2];
    spw__size_class of;
    add(&order, &entries[0], LARGE);
    add(&order, &entries[1], LARGE);
    spw__order_remove(&order, &entries[0]);
    spw__order_add(&order, &entries[0]);
    assert_ptr_equal(spw__order_next(&order, false, false, &of), &entries[1]);
}

static void small_ones_stay_as_long_as_there_are_others(void **state)
{
    (void)state;
    spw__eviction_order order = {.small_bytes = SMALL};
    enum { COUNT = 3 };
    spw_entry entries[COUNT];
    spw_entry medium;
    spw__size_class of;
    for (int i = 0; i < COUNT; i++)
        add(&order, &entries[i], SMALL - 1);
    add(&order, &medium, SMALL);
    assert_ptr_equal(spw__order_next(&order, true, false, &of), &medium);
    spw__order_remove(&order, &medium);
    for (int i = 0; i < COUNT; i++) {
        assert_ptr_equal(spw__order_next(&order, false, false, &of), &entries[i]);
        assert_int_equal(of, SPW__CLASS_SMALL);
        spw__order_remove(&order, &entries[i]);
    }
    assert_null(spw__order_next(&order, false, false, &of));
}

static void one_larger_than_the_target_goes_before_all_others(void **state)
{
    (void)state;
    spw__eviction_order order = {.small_bytes = SMALL, .target_bytes = 2 * LARGE};
    spw_entry entries[2];
    spw__size_class of;
    add(&order, &entries[0], 2 * LARGE);
    add(&order, &entries[1], 2 * LARGE + 1);
    assert_ptr_equal(spw__order_next(&order, false, false, &of), &entries[1]);
    assert_int_equal(of, SPW__CLASS_OVERSIZE);
    spw__order_remove(&order, &entries[1]);
    assert_ptr_equal(spw__order_next(&order, false, false, &of), &entries[0]);
}

static void what_was_read_ahead_goes_only_when_it_is_asked_for(void **state)
{
    (void)state;
    spw__eviction_order order = {.small_bytes = SMALL};
    spw_entry live, ahead = {.weight = LARGE, .is_ahead = true};
    spw__size_class of;
    add(&order, &live, LARGE);
    spw__order_add(&order, &ahead);
    assert_ptr_equal(spw__order_next(&order, false, false, &of), &live);
    assert_ptr_equal(spw__order_next(&order, true, false, &of), &ahead);
    assert_int_equal(of, SPW__CLASS_AHEAD);
    spw__order_remove(&order, &live);
    assert_null(spw__order_next(&order, false, false, &of));
}

static void a_clean_one_leaves_first_until_another_is_four_times_as_old(void **state)
{
    (void)state;
    spw__eviction_order order = {.small_bytes = SMALL};
    spw_entry dirty, clean = {.weight = LARGE, .forms.on_disk = (spw_payload *)&clean};
    spw__size_class of;
    add(&order, &dirty, LARGE); /* used at 1, the clean one at 9 */
    order.uses = 8;
    spw__order_add(&order, &clean);
    static const struct {
        uint64_t uses; /* the ages then are one and nine less */
        bool is_clean;
    } CASES[] = {{9, false}, {11, false}, {12, true}, {13, true}, {1000, true}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        order.uses = CASES[i].uses;
        assert_ptr_equal(spw__order_next(&order, false, false, &of),
                         CASES[i].is_clean ? &clean : &dirty);
        assert_int_equal(of, SPW__CLASS_LARGE);
    }
}

static void while_nothing_can_be_written_only_clean_ones_leave(void **state)
{
    (void)state;
    static const uint64_t WEIGHTS[] = {SMALL - 1, MEDIUM, LARGE, 3 * LARGE};
    spw__eviction_order order = {.small_bytes = SMALL, .target_bytes = 2 * LARGE};
    spw_entry dirty[4], clean[4];
    spw__size_class of;
    for (int i = 0; i < 4; i++) {
        add(&order, &dirty[i], WEIGHTS[i]);
        clean[i] = (spw_entry){.weight = WEIGHTS[i],
                               .forms.on_disk = (spw_payload *)&clean[i]};
        spw__order_add(&order, &clean[i]);
    }
    assert_ptr_equal(spw__order_next(&order, true, false, &of), &dirty[3]);
    static const spw__size_class CLASSES[] = {SPW__CLASS_OVERSIZE, SPW__CLASS_MEDIUM,
                                              SPW__CLASS_LARGE, SPW__CLASS_SMALL};
    static const int IN_ORDER[] = {3, 1, 2, 0};
    for (int i = 0; i < 4; i++) {
        spw_entry *next = spw__order_next(&order, true, true, &of);
        assert_ptr_equal(next, &clean[IN_ORDER[i]]);
        assert_int_equal(of, CLASSES[i]);
        assert_ptr_equal(spw__order_first(&order, of, true), next);
        spw__order_remove(&order, next);
    }
    assert_null(spw__order_next(&order, true, true, &of));
    assert_ptr_equal(spw__order_next(&order, true, false, &of), &dirty[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_unused_leaves_first_whatever_its_class),
        cmocka_unit_test(using_one_again_makes_it_the_last),
        cmocka_unit_test(small_ones_stay_as_long_as_there_are_others),
        cmocka_unit_test(one_larger_than_the_target_goes_before_all_others),
        cmocka_unit_test(what_was_read_ahead_goes_only_when_it_is_asked_for),
        cmocka_unit_test(a_clean_one_leaves_first_until_another_is_four_times_as_old),
        cmocka_unit_test(while_nothing_can_be_written_only_clean_ones_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
