#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "partition_run.h"
#include "torture.h"

enum { INPUTS = 8 };

/* Who reads from the disk: the thread that tests, or another. */
typedef struct watch {
    pthread_t tester;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned own, others;
    void (*once)(void), (*once_others)(void); /* at the next read */
    partition_run *run;
} watch;

static void note(void *argument, disk_fault_way way)
{
    watch *w = argument;
    (void)way;
    pthread_mutex_lock(&w->lock);
    bool is_own = pthread_equal(pthread_self(), w->tester);
    void (**at)(void) = is_own ? &w->once : &w->once_others;
    void (*once)(void) = *at;
    *at = NULL;
    if (once != NULL)
        once();
    if (is_own)
        w->own++;
    else
        w->others++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void begin_watch(watch *w, partition_run *run)
{
    *w = (watch){.tester = pthread_self(), .run = run};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    disk_fault_during(DISK_FAULT_READING, note, w);
}

static void end_watch(watch *w)
{
    disk_fault_during(0, NULL, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

/* Until others have begun so many reads. */
static void wait_for_others(watch *w, unsigned count)
{
    pthread_mutex_lock(&w->lock);
    while (w->others < count)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* Each partition with rows is in four chunks. */
static void open_rows(torture *t, partition_run *run, bool reads_ahead,
                      const uint32_t *rows, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += rows[i];
    partition_run_open_plain(run, t->context, INPUTS, count, rows);
    run->reads_ahead = reads_ahead;
    assert_ok(partition_run_create(run, 0, 2 * sum * 8 - 1, &t->error));
    for (uint32_t i = 0; i < INPUTS; i++) {
        assert_ok(partition_run_put(run, i, 0, count, NULL, &t->error));
        partition_run_drop(run, i);
        assert_ok(spw_partitions_write(run->partitions, NULL, &t->error));
    }
    assert_int_equal(partition_run_figures(run).chunks, 4 * (count - 1));
    assert_int_equal(partition_run_figures(run).memory_bytes, 0);
    spw_partitions_finish(run->partitions);
}

/* Nothing of partition 0. */
static void open_some(torture *t, partition_run *run, bool reads_ahead)
{
    static const uint32_t ROWS[] = {0, 3000, 2000, 4000};
    open_rows(t, run, reads_ahead, ROWS, COUNT_OF(ROWS));
}

/* The partitions from first on that were not read. */
static void read_from(torture *t, partition_run *run, uint32_t first)
{
    for (uint32_t p = first; p < run->partition_count; p++) {
        spw_status status = partition_run_read(run, p, &t->error);
        if (status != SPW_STATUS_CLOSED)
            assert_ok(status);
    }
    spw_partitions_figures figures = partition_run_figures(run);
    assert_int_equal(figures.disk_used, 0);
    assert_int_equal(figures.partitions + figures.chunks + figures.disk_bytes, 0);
    assert_int_equal(figures.read_bytes, figures.written_bytes);
}

static void what_was_read_ahead_is_not_read_again(void **state)
{
    torture *t = *state;
    partition_run run;
    watch w;
    open_some(t, &run, true);
    unsigned chunks = (unsigned)partition_run_figures(&run).chunks;
    begin_watch(&w, &run);
    spw_partitions_expect(run.partitions, 1);
    assert_ok(partition_run_read(&run, 0, &t->error));
    /* From here on each one is being read when it is asked for. */
    for (uint32_t p = 1; p < 4; p++) {
        wait_for_others(&w, (p - 1) * chunks / 3 + 1);
        spw_partitions_expect(run.partitions, p + 1);
        assert_ok(partition_run_read(&run, p, &t->error));
    }
    end_watch(&w);
    assert_int_equal(w.own, 0);
    assert_int_equal(w.others, chunks);
    read_from(t, &run, 4);
    partition_run_close(&run);
}

static void without_the_option_there_is_no_thread(void **state)
{
    torture *t = *state;
    partition_run run;
    watch w;
    open_some(t, &run, false);
    begin_watch(&w, &run);
    read_from(t, &run, 0);
    end_watch(&w);
    assert_true(w.own >= 12);
    assert_int_equal(w.others, 0);
    partition_run_close(&run);
}

static void arm_error(void)
{
    io_fault_arm_call("spill_read", 1, EIO);
}

static void arm_wrong_bit(void)
{
    disk_fault_corrupt(1, 4321);
}

static void arm_lost_end(void)
{
    disk_fault_cut(1);
}

static void what_fails_ahead_is_read_by_who_needs_it(void **state)
{
    static void (*const FAULTS[])(void) = {arm_error, arm_wrong_bit, arm_lost_end};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(FAULTS); i++) {
        partition_run run;
        watch w;
        open_some(t, &run, true);
        begin_watch(&w, &run);
        FAULTS[i]();
        spw_partitions_expect(run.partitions, 1);
        assert_ok(partition_run_read(&run, 0, &t->error));
        wait_for_others(&w, 1);
        assert_ok(partition_run_read(&run, 1, &t->error));
        end_watch(&w);
        assert_true(w.own >= 1);
        disk_fault_reset();
        read_from(t, &run, 2);
        partition_run_close(&run);
    }
}

/* Two windows are not there, and the second of them fails again. */
static void what_fails_again_is_told_and_nothing_is_lost(void **state)
{
    static const uint32_t ROWS[] = {0, 3000};
    torture *t = *state;
    partition_run run;
    watch w;
    open_rows(t, &run, true, ROWS, COUNT_OF(ROWS));
    begin_watch(&w, &run);
    w.once = w.once_others = arm_error;
    arm_error();
    spw_partitions_expect(run.partitions, 1);
    assert_ok(partition_run_read(&run, 0, &t->error));
    wait_for_others(&w, 2);
    assert_status(partition_run_read(&run, 1, &t->error), IO);
    assert_int_equal(t->error.os_errno, EIO);
    assert_int_equal(w.own, 2);
    end_watch(&w);
    read_from(t, &run, 1);
    partition_run_close(&run);
}

static void wrong_guesses_change_nothing(void **state)
{
    torture *t = *state;
    for (int round = 0; round < 4; round++) {
        partition_run run;
        open_some(t, &run, true);
        static const uint32_t WRONG[] = {3, 0, 2, UINT32_MAX};
        for (uint32_t p = 0; p < 4; p++) {
            spw_partitions_expect(run.partitions, WRONG[(p + (uint32_t)round) % 4]);
            assert_ok(partition_run_read(&run, p, &t->error));
        }
        read_from(t, &run, 4);
        partition_run_close(&run);
    }
}

static void close_now(void *argument, disk_fault_way way)
{
    watch *w = argument;
    spw_partitions_close(w->run->partitions);
    note(w, way);
}

static void a_close_ends_it(void **state)
{
    torture *t = *state;
    partition_run run;
    watch w;
    open_some(t, &run, true);
    begin_watch(&w, &run);
    disk_fault_during(DISK_FAULT_READING, close_now, &w);
    spw_partitions_expect(run.partitions, 1);
    assert_ok(partition_run_read(&run, 0, &t->error));
    wait_for_others(&w, 1);
    assert_status(partition_run_read(&run, 1, &t->error), CLOSED);
    /* Its thread is gone with it. */
    spw_partitions_free(run.partitions);
    run.partitions = NULL;
    end_watch(&w);
    assert_int_equal(w.others, 1);
    partition_run_close(&run);
}

static void a_free_ends_it(void **state)
{
    torture *t = *state;
    for (int round = 0; round < 8; round++) {
        partition_run run;
        open_some(t, &run, true);
        spw_partitions_expect(run.partitions, 2);
        assert_ok(partition_run_read(&run, (uint32_t)round % 2, &t->error));
        partition_run_close(&run);
    }
}

/* ----- memory ----- */

/* Have no more than room left of the budget. Returns: what takes the rest. */
static spw_buffer *leave_room(torture *t, uint64_t room)
{
    spw_budget_figures now;
    spw_buffer *buffer;
    spw_budget_read(t->budget, &now);
    uint64_t used = 0;
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        used += now.used_bytes[i];
    assert_true(now.limit_bytes > used + room);
    size_t bytes = (size_t)(now.limit_bytes - used - room);
    assert_ok(spw_buffer_create(t->context, bytes, SPW_CHARGE_HELD, &buffer, NULL));
    return buffer;
}

/* There is room for what is ahead and half a window more. */
static void what_is_ahead_gives_way(void **state)
{
    static const uint32_t ROWS[] = {0, 30000, 40000};
    torture *t = *state;
    spw_budget_figures figures;
    partition_run run;
    watch w;
    torture_limit(t, 64 << 20);
    open_rows(t, &run, true, ROWS, COUNT_OF(ROWS));
    spw_buffer *rest = leave_room(t, INPUTS * 30000 * 8 + 40000 * 8);
    begin_watch(&w, &run);
    spw_partitions_expect(run.partitions, 1);
    assert_ok(partition_run_read(&run, 0, &t->error));
    wait_for_others(&w, 4); /* all its windows have their memory */
    assert_ok(partition_run_read(&run, 2, &t->error));
    end_watch(&w);
    spw_budget_read(t->budget, &figures);
    assert_true(figures.refusals > 0);
    read_from(t, &run, 1);
    spw_buffer_unref(rest);
    partition_run_close(&run);
}

/* ----- several threads ----- */

enum { THREADS = 3, MANY = 24 };

typedef struct many {
    partition_run run;
    pthread_mutex_t lock;
    uint32_t next, order[MANY];
} many;

static void *read_some(void *argument)
{
    many *m = argument;
    spw_error error;
    for (;;) {
        pthread_mutex_lock(&m->lock);
        uint32_t at = m->next++;
        pthread_mutex_unlock(&m->lock);
        if (at >= MANY)
            return NULL;
        if (at + 1 < MANY)
            spw_partitions_expect(m->run.partitions, m->order[at + 1]);
        if (partition_run_read(&m->run, m->order[at], &error) != SPW_STATUS_OK)
            fail_msg("partition %u: %s", m->order[at], error.message);
    }
}

static void threads_read_in_any_order(void **state)
{
    torture *t = *state;
    uint32_t rows[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        rows[i] = 100 + 40 * i;
    for (unsigned round = 0; round < 6; round++) {
        many m = {.lock = PTHREAD_MUTEX_INITIALIZER};
        pthread_t threads[THREADS];
        partition_run_open_plain(&m.run, t->context, INPUTS, MANY, rows);
        m.run.reads_ahead = 1;
        assert_ok(partition_run_create(&m.run, 0, 100000, &t->error));
        for (uint32_t i = 0; i < INPUTS; i++) {
            assert_ok(partition_run_put(&m.run, i, 0, MANY, NULL, &t->error));
            partition_run_drop(&m.run, i);
            assert_ok(spw_partitions_write(m.run.partitions, NULL, &t->error));
        }
        spw_partitions_finish(m.run.partitions);
        /* As they are; the other way; by steps. */
        static const uint32_t STEPS[] = {1, MANY - 1, 7};
        for (uint32_t i = 0; i < MANY; i++)
            m.order[i] = i * STEPS[round % 3] % MANY;
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, read_some, &m), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        read_from(t, &m.run, MANY);
        partition_run_close(&m.run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(what_was_read_ahead_is_not_read_again),
        SCENARIO(without_the_option_there_is_no_thread),
        SCENARIO(what_fails_ahead_is_read_by_who_needs_it),
        SCENARIO(what_fails_again_is_told_and_nothing_is_lost),
        SCENARIO(wrong_guesses_change_nothing),
        SCENARIO(a_close_ends_it),
        SCENARIO(a_free_ends_it),
        SCENARIO(what_is_ahead_gives_way),
        SCENARIO(threads_read_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
