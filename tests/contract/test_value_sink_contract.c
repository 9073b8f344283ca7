/* What every sink for values must do, whoever fills the table, and wherever it has them
 * go: the same cases for each. A store fills it, in several ways. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "memory/checksum.h"
#include "memory/value_sink.h"
#include "store/store_state.h"
#include "value_messages.h"

enum { MIB = 1 << 20, HEADER_BYTES = 70 };

typedef enum destination { TO_MEMORY, TO_A_PLACE, TO_DISK } destination;

typedef struct sink_subject {
    uint64_t target_bytes, limit_bytes;
    bool is_stepped;         /* jobs run when the test waits, else in threads */
    destination destination; /* of values of 1 MiB and more */
} sink_subject;

static sink_subject on_disk = {.target_bytes = 1, .destination = TO_DISK};
static sink_subject on_disk_stepped = {
    .target_bytes = 1, .is_stepped = true, .destination = TO_DISK};
static sink_subject in_room = {.target_bytes = 64 * MIB, .destination = TO_A_PLACE};
static sink_subject without_target = {.destination = TO_MEMORY};
static sink_subject on_a_full_disk = {
    .target_bytes = 1, .limit_bytes = MIB, .destination = TO_MEMORY};

/* ----- who receives ----- */

typedef struct receiver {
    const sink_subject *subject;
    torture *t;
    value_store at;
    spw_value_sink *sink;
    spw_slice header;
    _Atomic unsigned wakes;
    /* The value under way. */
    const uint64_t *sizes;
    uint64_t count;
    spw__value_room room;
    uint64_t frame, filled;
    unsigned calls; /* of the sink that have answered OK, and how many may */
    unsigned calls_max;
} receiver;

static void wake(void *user)
{
    ((receiver *)user)->wakes++;
}

static unsigned char byte_of(uint64_t frame, uint64_t at)
{
    return (unsigned char)(frame * 101 + at * 7 + at / 251);
}

/* After an answer, before which it had been woken so often. Returns: whether to ask
 * again, and then it is worth that. */
static bool is_to_ask_again(receiver *r, spw_status status, unsigned before)
{
    if (status != SPW_STATUS_AGAIN)
        return false;
    while (r->wakes == before) {
        if (r->subject->is_stepped)
            assert_true(spw__worker_pool_run_one(r->at.store->pool));
        else
            (void)sched_yield();
    }
    return true;
}

static void check_answer(receiver *r, spw_status status, const spw_error *error)
{
    r->calls += status == SPW_STATUS_OK;
    if (status == SPW_STATUS_OK)
        return;
    assert_int_equal(error->status, status);
    assert_true(error->message[0] != '\0');
}

static spw_status begin(receiver *r, const uint64_t *sizes, uint64_t count)
{
    spw_status status;
    spw_error error = {0};
    unsigned before;
    r->sizes = sizes;
    r->count = count;
    r->frame = r->filled = 0;
    r->room = (spw__value_room){0};
    do {
        before = r->wakes;
        status =
            r->sink->ops->begin(r->sink, &r->header, sizes, count, &r->room, &error);
        check_answer(r, status, &error);
        if (status != SPW_STATUS_OK)
            assert_true(r->room.place == NULL && r->room.file == NULL);
    } while (is_to_ask_again(r, status, before));
    assert_true(r->room.place == NULL || r->room.file == NULL);
    for (uint64_t i = 0; r->room.file != NULL && i < count; i++) {
        const spw_slice *slice = &r->room.slices[i];
        assert_int_equal(slice->kind, SPW_MEMORY_FILE);
        assert_int_equal(slice->size, sizes[i]);
        if (i > 0)
            assert_true(slice->offset >= slice[-1].offset + sizes[i - 1]);
    }
    return status;
}

static void next_frame(receiver *r)
{
    while (r->frame < r->count && r->filled == r->sizes[r->frame]) {
        r->frame++;
        r->filled = 0;
    }
}

/* Fill a window, or as much of it as piece. */
static spw_status fill(receiver *r, size_t piece)
{
    char untouched;
    void *data = &untouched;
    size_t size = 77;
    spw_status status;
    spw_error error = {0};
    unsigned before;
    do {
        before = r->wakes;
        status = r->sink->ops->window(r->sink, &data, &size, &error);
        check_answer(r, status, &error);
        if (status != SPW_STATUS_OK)
            assert_true(data == &untouched && size == 77);
    } while (is_to_ask_again(r, status, before));
    if (status != SPW_STATUS_OK)
        return status;
    uint64_t rest = r->sizes[r->frame] - r->filled;
    assert_in_range(size, rest < SPW__WINDOW_LEAST ? rest : SPW__WINDOW_LEAST, rest);
    size = size < piece ? size : piece;
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)data)[i] = byte_of(r->frame, r->filled + i);
    r->sink->ops->wrote(r->sink, size);
    r->filled += size;
    next_frame(r);
    return SPW_STATUS_OK;
}

static spw_status finish(receiver *r)
{
    spw_status status;
    spw_error error = {0};
    unsigned before;
    do {
        before = r->wakes;
        status = r->sink->ops->finish(r->sink, &error);
        check_answer(r, status, &error);
    } while (is_to_ask_again(r, status, before));
    return status;
}

/* Until it is whole, or fails, or so many calls have been answered. */
static spw_status receive(receiver *r, const uint64_t *sizes, uint64_t count,
                          size_t piece)
{
    if (r->calls == r->calls_max)
        return SPW_STATUS_OK;
    spw_status status = begin(r, sizes, count);
    next_frame(r);
    if (r->room.file == NULL)
        return status;
    while (status == SPW_STATUS_OK && r->frame < count && r->calls < r->calls_max)
        status = fill(r, piece);
    if (status == SPW_STATUS_OK && r->calls < r->calls_max)
        status = finish(r);
    return status;
}

static void let_go(receiver *r)
{
    spw__place_unref(r->room.place);
    spw_file_unref(r->room.file);
    r->room = (spw__value_room){0};
}

static void check_on_disk(const receiver *r)
{
    for (uint64_t i = 0; i < r->count; i++) {
        const spw_slice *slice = &r->room.slices[i];
        size_t size = (size_t)slice->size;
        unsigned char *read = malloc(size + 1);
        assert_non_null(read);
        assert_int_equal(
            pread(spw_file_descriptor(r->room.file), read, size, (off_t)slice->offset),
            size);
        for (size_t at = 0; at < size; at++)
            if (read[at] != byte_of(i, at))
                fail_msg("byte %zu of frame %d is not what was written", at, (int)i);
        assert_true((slice->flags & SPW_SLICE_HAS_CHECKSUM) != 0);
        assert_true(slice->checksum == spw__checksum(read, size));
        free(read);
    }
}

/* ----- a store and its sink ----- */

static spw_status make_sink(receiver *r, const char *only_with)
{
    spw_status status =
        spw_store_create_sink(r->at.store, only_with, &r->sink, &r->t->error);
    if (status != SPW_STATUS_OK)
        return status;
    r->sink->wake = wake;
    r->sink->user = r;
    r->calls = 0;
    r->calls_max = UINT32_MAX;
    return SPW_STATUS_OK;
}

static torture *open_receiver(void **made, void *const *state, receiver *r)
{
    *r = (receiver){.subject = *state};
    assert_int_equal(torture_setup(made), 0);
    r->t = *made;
    if (r->subject->is_stepped)
        assert_ok(value_store_open_stepped(r->t, r->subject->target_bytes, &r->at));
    else
        assert_ok(value_store_open(r->t, r->subject->target_bytes,
                                   r->subject->limit_bytes, &r->at));
    r->header = (spw_slice){
        .kind = SPW_MEMORY_HOST, .size = HEADER_BYTES, .plain_size = HEADER_BYTES};
    assert_ok(spw_buffer_create(r->t->context, HEADER_BYTES, SPW_CHARGE_HELD,
                                &r->header.buffer, NULL));
    memset(spw_buffer_data(r->header.buffer), 'h', HEADER_BYTES);
    return r->t;
}

static void free_sink(receiver *r)
{
    r->sink->ops->free(r->sink);
    r->sink = NULL;
}

/* Nothing of what was received is left, in memory or on disk. */
static void check_nothing_left(receiver *r)
{
    while (r->subject->is_stepped && spw__worker_pool_run_one(r->at.store->pool))
        ;
    value_store_wait_for_space(&r->at, 0);
    assert_int_equal(value_store_figures(&r->at).arriving_bytes, 0);
}

static void close_receiver(void **made, receiver *r)
{
    value_store_close(&r->at);
    spw_buffer_unref(r->header.buffer);
    assert_int_equal(torture_teardown(made), 0);
}

/* ----- cases ----- */

static const uint64_t ONE[] = {MIB + 1};
static const uint64_t SEVERAL[] = {0, 70000, MIB - 1, 3, 0};
static const uint64_t LARGE[] = {3 * MIB};
static const uint64_t SMALL[] = {100, 0, 5000};

static const struct {
    const uint64_t *sizes;
    uint64_t count;
} VALUES[] = {{SMALL, COUNT_OF(SMALL)},
              {ONE, COUNT_OF(ONE)},
              {SEVERAL, COUNT_OF(SEVERAL)},
              {LARGE, COUNT_OF(LARGE)},
              {ONE, COUNT_OF(ONE)}};

static void values_of_one_message_come_where_they_belong(void **state)
{
    static const size_t PIECES[] = {SIZE_MAX, 30011, SPW__WINDOW_LEAST};
    void *made;
    receiver r;
    (void)open_receiver(&made, state, &r);
    for (size_t p = 0; p < COUNT_OF(PIECES); p++) {
        assert_ok(make_sink(&r, NULL));
        for (size_t i = 0; i < COUNT_OF(VALUES); i++) {
            destination expected =
                VALUES[i].sizes == SMALL ? TO_MEMORY : r.subject->destination;
            assert_ok(receive(&r, VALUES[i].sizes, VALUES[i].count, PIECES[p]));
            assert_int_equal(r.room.place != NULL, expected == TO_A_PLACE);
            assert_int_equal(r.room.file != NULL, expected == TO_DISK);
            if (r.room.file != NULL)
                check_on_disk(&r);
            let_go(&r);
        }
        free_sink(&r);
        check_nothing_left(&r);
    }
    close_receiver(&made, &r);
}

/* What somebody has of a value outlives the sink by which it came. */
static void what_has_come_outlives_its_sink(void **state)
{
    void *made;
    receiver r;
    (void)open_receiver(&made, state, &r);
    assert_ok(make_sink(&r, NULL));
    assert_ok(receive(&r, SEVERAL, COUNT_OF(SEVERAL), SIZE_MAX));
    free_sink(&r);
    if (r.room.file != NULL) {
        const spw_slice *slices = r.room.slices;
        assert_true((slices[1].flags & SPW_SLICE_HAS_CHECKSUM) != 0);
        check_on_disk(&r);
    }
    let_go(&r);
    check_nothing_left(&r);
    close_receiver(&made, &r);
}

/* Wherever a message ends, nothing is left of it, and nobody is woken for it. */
static void one_that_is_given_up_leaves_nothing(void **state)
{
    void *made;
    receiver r;
    (void)open_receiver(&made, state, &r);
    bool is_whole = false;
    for (unsigned calls = 0; !is_whole; calls++) {
        assert_ok(make_sink(&r, NULL));
        r.calls_max = calls;
        assert_ok(receive(&r, SEVERAL, COUNT_OF(SEVERAL), 200000));
        is_whole = r.calls < calls;
        free_sink(&r);
        unsigned woken = r.wakes;
        let_go(&r);
        check_nothing_left(&r);
        assert_int_equal(r.wakes, woken);
    }
    close_receiver(&made, &r);
}

/* The same where it waits for the disk. */
static void one_that_is_given_up_while_it_waits_leaves_nothing(void **state)
{
    void *made;
    receiver r;
    spw_error error;
    (void)open_receiver(&made, state, &r);
    assert_ok(make_sink(&r, NULL));
    spw_status status =
        r.sink->ops->begin(r.sink, &r.header, LARGE, 1, &r.room, &error);
    assert_true(status == SPW_STATUS_OK || status == SPW_STATUS_AGAIN);
    free_sink(&r);
    unsigned woken = r.wakes;
    let_go(&r);
    check_nothing_left(&r);
    assert_int_equal(r.wakes, woken);
    close_receiver(&made, &r);
}

static void each_failed_allocation_is_survived(void **state)
{
    void *made;
    receiver r;
    torture *t = open_receiver(&made, state, &r);
    spw_status status;
    uint64_t n = 0;
    do {
        t->allocator.fail_at = 0;
        assert_ok(make_sink(&r, NULL));
        t->allocator.fail_at = t->allocator.calls + ++n;
        status = receive(&r, ONE, COUNT_OF(ONE), SIZE_MAX);
        assert_true(status == SPW_STATUS_OK || status == SPW_STATUS_NO_MEMORY);
        bool has_failed = t->allocator.calls >= t->allocator.fail_at;
        t->allocator.fail_at = 0;
        if (r.room.file != NULL && status == SPW_STATUS_OK)
            check_on_disk(&r);
        free_sink(&r);
        let_go(&r);
        check_nothing_left(&r);
        if (!has_failed)
            break;
    } while (true);
    print_message("each of %d allocations failed once\n", (int)n - 1);
    close_receiver(&made, &r);
}

/* A disk that fails before anything has come is not used, and one that does later ends
 * the message. */
static void a_disk_that_fails_ends_the_message_or_is_not_used(void **state)
{
    void *made;
    receiver r;
    (void)open_receiver(&made, state, &r);
    for (unsigned n = 1; n <= 3; n++) {
        /* Each has a store whose disk was well until now. */
        value_store_close(&r.at);
        assert_ok(value_store_open(r.t, r.subject->target_bytes, r.subject->limit_bytes,
                                   &r.at));
        const sink_subject threaded = {r.subject->target_bytes, r.subject->limit_bytes,
                                       false, r.subject->destination};
        const sink_subject *given = r.subject;
        r.subject = &threaded;
        assert_ok(make_sink(&r, NULL));
        io_fault_arm_call("spill_write", n, EIO);
        spw_status status = receive(&r, LARGE, COUNT_OF(LARGE), SIZE_MAX);
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        if (given->destination != TO_DISK || n == 1) {
            assert_ok(status);
            assert_null(r.room.file);
        } else {
            assert_int_equal(status, SPW_STATUS_IO);
        }
        free_sink(&r);
        let_go(&r);
        check_nothing_left(&r);
        r.subject = given;
    }
    close_receiver(&made, &r);
}

/* A store may be closed, and freed, before its sink. */
static void one_that_ends_before_its_sink_answers(void **state)
{
    void *made;
    receiver r;
    (void)open_receiver(&made, state, &r);
    assert_ok(make_sink(&r, NULL));
    r.calls_max = 2;
    assert_ok(receive(&r, LARGE, COUNT_OF(LARGE), SIZE_MAX));
    bool is_on_disk = r.room.file != NULL;
    value_store_close(&r.at);
    if (is_on_disk) {
        assert_int_equal(fill(&r, SIZE_MAX), SPW_STATUS_CLOSED);
        assert_int_equal(finish(&r), SPW_STATUS_CLOSED);
    } else {
        let_go(&r);
        assert_ok(begin(&r, LARGE, COUNT_OF(LARGE)));
        assert_true(r.room.place == NULL && r.room.file == NULL);
    }
    free_sink(&r);
    let_go(&r);
    spw_buffer_unref(r.header.buffer);
    assert_int_equal(torture_teardown(&made), 0);
}

static void it_is_for_messages_that_have_its_text(void **state)
{
    static const struct {
        const char *text;
        bool is_for;
    } CASES[] = {{NULL, true}, {"", true}, {"hhh", true}, {"other", false}};
    void *made;
    receiver r;
    (void)open_receiver(&made, state, &r);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        spw_slice empty = r.header;
        empty.size = 0;
        assert_ok(make_sink(&r, CASES[i].text));
        bool is_any = r.sink->ops->is_for == NULL;
        assert_int_equal(is_any || r.sink->ops->is_for(r.sink, &r.header),
                         CASES[i].is_for);
        assert_int_equal(is_any || r.sink->ops->is_for(r.sink, &empty), i < 2);
        free_sink(&r);
    }
    close_receiver(&made, &r);
}

#define CASE(test, subject)                                                            \
    {                                                                                  \
#test "(" #subject ")", test, NULL, NULL, &subject                             \
    }
#define CONTRACT(subject)                                                              \
    CASE(values_of_one_message_come_where_they_belong, subject),                       \
        CASE(what_has_come_outlives_its_sink, subject),                                \
        CASE(one_that_is_given_up_leaves_nothing, subject),                            \
        CASE(one_that_is_given_up_while_it_waits_leaves_nothing, subject),             \
        CASE(each_failed_allocation_is_survived, subject),                             \
        CASE(a_disk_that_fails_ends_the_message_or_is_not_used, subject),              \
        CASE(one_that_ends_before_its_sink_answers, subject),                          \
        CASE(it_is_for_messages_that_have_its_text, subject)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONTRACT(on_disk),        CONTRACT(on_disk_stepped), CONTRACT(in_room),
        CONTRACT(without_target), CONTRACT(on_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
