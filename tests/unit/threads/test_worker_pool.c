/* Jobs run once, in their turn, whatever fails. */
#include "threads/worker_pool.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fault.h"
#include "torture.h"

/* A job that notes when it was run, among all of the test. */
typedef struct noted_job {
    spw__job job; /* first: the pool gives it back */
    char name;
    spw__worker_pool *pool;
    unsigned again;       /* how often it adds itself */
    bool refuses_threads; /* so that none can be started then */
} noted_job;

static char notes[64];
static _Atomic size_t note_count;
static _Thread_local unsigned depth;
static _Atomic unsigned deepest;

static void forget_notes(void)
{
    memset(notes, 0, sizeof notes);
    note_count = 0;
    depth = deepest = 0;
}

static void run_noted(spw__job *job)
{
    noted_job *noted = (noted_job *)job;
    if (++depth > deepest)
        deepest = depth;
    notes[note_count++ % sizeof notes] = noted->name;
    if (noted->again > 0) {
        noted->again--;
        if (noted->refuses_threads)
            io_fault_arm_call("start_thread", 1, 0);
        spw__worker_pool_add(noted->pool, job, SPW__JOB_PATIENT);
    }
    depth--;
}

static void add_noted(spw__worker_pool *pool, noted_job *job, char name,
                      spw__urgency urgency)
{
    *job = (noted_job){.job.run = run_noted, .name = name, .pool = pool};
    spw__worker_pool_add(pool, &job->job, urgency);
}

static spw__worker_pool *make(torture *t, unsigned threads)
{
    spw__worker_pool *pool;
    forget_notes();
    assert_ok(spw__worker_pool_create(t->context, threads, &pool, NULL));
    return pool;
}

/* ---- whose turn it is ---- */

static void urgent_jobs_go_first_but_for_every_fourth_turn(void **state)
{
    static const char PATIENT[] = "abc", URGENT[] = "1234567890";
    noted_job jobs[13];
    spw__worker_pool *pool = make(*state, 0);
    for (int i = 0; i < 3; i++)
        add_noted(pool, &jobs[i], PATIENT[i], SPW__JOB_PATIENT);
    for (int i = 0; i < 10; i++)
        add_noted(pool, &jobs[3 + i], URGENT[i], SPW__JOB_URGENT);
    assert_int_equal(note_count, 0);
    while (spw__worker_pool_run_one(pool))
        ;
    assert_string_equal(notes, "123a456b789c0");
    spw__worker_pool_free(pool);
}

static void turns_in_which_nobody_else_waits_do_not_count(void **state)
{
    noted_job jobs[8];
    spw__worker_pool *pool = make(*state, 0);
    for (int i = 0; i < 3; i++)
        add_noted(pool, &jobs[i], 'u', SPW__JOB_URGENT);
    while (spw__worker_pool_run_one(pool))
        ;
    add_noted(pool, &jobs[3], 'P', SPW__JOB_PATIENT);
    for (int i = 4; i < 8; i++)
        add_noted(pool, &jobs[i], 'U', SPW__JOB_URGENT);
    while (spw__worker_pool_run_one(pool))
        ;
    assert_string_equal(notes, "uuuUUUPU");
    spw__worker_pool_free(pool);
}

static void a_job_may_add_itself_again(void **state)
{
    noted_job one, other;
    spw__worker_pool *pool = make(*state, 0);
    one = (noted_job){.job.run = run_noted, .name = 'a', .pool = pool, .again = 2};
    spw__worker_pool_add(pool, &one.job, SPW__JOB_PATIENT);
    add_noted(pool, &other, 'b', SPW__JOB_PATIENT);
    assert_true(spw__worker_pool_run_one(pool));
    assert_string_equal(notes, "a");
    assert_true(spw__worker_pool_run_one(pool));
    assert_true(spw__worker_pool_run_one(pool));
    assert_true(spw__worker_pool_run_one(pool));
    assert_false(spw__worker_pool_run_one(pool));
    assert_string_equal(notes, "abaa");
    spw__worker_pool_free(pool);
}

static void run_freed(spw__job *job)
{
    free(job);
    note_count++;
}

static void a_job_may_free_itself(void **state)
{
    spw__worker_pool *pool = make(*state, 2);
    for (int i = 0; i < 100; i++) {
        spw__job *job = malloc(sizeof *job);
        assert_non_null(job);
        *job = (spw__job){.run = run_freed};
        spw__worker_pool_add(pool, job, (spw__urgency)(i % SPW__URGENCY_COUNT));
    }
    spw__worker_pool_free(pool);
    assert_int_equal(note_count, 100);
}

static void the_end_runs_what_waits(void **state)
{
    for (unsigned threads = 0; threads < 3; threads += 2) {
        noted_job jobs[3];
        spw__worker_pool *pool = make(*state, threads);
        jobs[0] =
            (noted_job){.job.run = run_noted, .name = 'a', .pool = pool, .again = 20};
        spw__worker_pool_add(pool, &jobs[0].job, SPW__JOB_PATIENT);
        spw__worker_pool_free(pool);
        assert_int_equal(note_count, 21);
    }
    spw__worker_pool_free(NULL);
}

/* ---- threads ---- */

static unsigned pool_threads(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        if (fgets(name, sizeof name, file) != NULL &&
            strcmp(name, "spillway-disk\n") == 0)
            count++;
        fclose(file);
    }
    closedir(folder);
    return count;
}

/* A job that ends when all of its kind are running. */
typedef struct meeting_job {
    spw__job job;
    pthread_barrier_t *all_here;
    sigset_t blocked;
} meeting_job;

static void run_meeting(spw__job *job)
{
    meeting_job *meeting = (meeting_job *)job;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &meeting->blocked);
    (void)pthread_barrier_wait(meeting->all_here);
}

static void threads_start_with_the_first_job_and_work_together(void **state)
{
    enum { THREADS = 3 };
    pthread_barrier_t all_here;
    meeting_job jobs[THREADS];
    spw__worker_pool *pool = make(*state, THREADS);
    assert_int_equal(io_fault_calls_of("start_thread"), 0);
    assert_int_equal(pthread_barrier_init(&all_here, NULL, THREADS + 1), 0);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (meeting_job){.job.run = run_meeting, .all_here = &all_here};
        spw__worker_pool_add(pool, &jobs[i].job, SPW__JOB_URGENT);
        assert_int_equal(io_fault_calls_of("start_thread"), THREADS);
    }
    assert_int_equal(pool_threads(), THREADS);
    (void)pthread_barrier_wait(&all_here);
    spw__worker_pool_free(pool);
    (void)pthread_barrier_destroy(&all_here);
    for (int i = 0; i < THREADS; i++)
        for (int number = 1; number < 32; number++)
            if (number != SIGKILL && number != SIGSTOP)
                assert_true(sigismember(&jobs[i].blocked, number));
}

static _Atomic unsigned counted;

static void run_counted(spw__job *job)
{
    (void)job;
    counted++;
}

typedef struct adder {
    pthread_t thread;
    spw__worker_pool *pool;
    spw__job jobs[500];
} adder;

static void *add_all(void *argument)
{
    adder *one = argument;
    for (size_t i = 0; i < COUNT_OF(one->jobs); i++) {
        one->jobs[i].run = run_counted;
        spw__worker_pool_add(one->pool, &one->jobs[i],
                             i % 3 == 0 ? SPW__JOB_URGENT : SPW__JOB_PATIENT);
        if (i % 7 == 0)
            (void)spw__worker_pool_run_one(one->pool);
    }
    return NULL;
}

static void what_many_threads_add_runs_once(torture *t, unsigned threads)
{
    static adder adders[3];
    spw__worker_pool *pool = make(t, threads);
    counted = 0;
    for (size_t i = 0; i < COUNT_OF(adders); i++) {
        adders[i].pool = pool;
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_all, &adders[i]),
                         0);
    }
    for (size_t i = 0; i < COUNT_OF(adders); i++)
        assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
    spw__worker_pool_free(pool);
    assert_int_equal(counted, COUNT_OF(adders) * COUNT_OF(adders[0].jobs));
}

static void many_threads_add(void **state)
{
    what_many_threads_add_runs_once(*state, 2);
    what_many_threads_add_runs_once(*state, 0);
}

/* ---- threads that cannot be had ---- */

static void without_a_thread_jobs_run_where_they_are_added(void **state)
{
    torture *t = *state;
    noted_job job;
    spw__worker_pool *pool = make(t, 2);
    io_fault_arm_call("start_thread", 1, 0);
    add_noted(pool, &job, 'a', SPW__JOB_PATIENT);
    assert_string_equal(notes, "a");
    assert_int_equal(t->log_lines, 1);
    assert_non_null(strstr(t->last_log_line, "errno 11"));
    io_fault_arm_call("start_thread", 1, 0);
    add_noted(pool, &job, 'b', SPW__JOB_URGENT);
    assert_string_equal(notes, "ab");
    assert_int_equal(t->log_lines, 1); /* it is said once */
    /* It may be possible again. */
    add_noted(pool, &job, 'c', SPW__JOB_URGENT);
    assert_int_equal(io_fault_calls_of("start_thread"), 3);
    spw__worker_pool_free(pool);
    assert_string_equal(notes, "abc");
}

static void a_job_that_adds_itself_does_not_nest(void **state)
{
    noted_job job;
    spw__worker_pool *pool = make(*state, 1);
    job = (noted_job){.job.run = run_noted,
                      .name = 'a',
                      .pool = pool,
                      .again = 5,
                      .refuses_threads = true};
    io_fault_arm_call("start_thread", 1, 0);
    spw__worker_pool_add(pool, &job.job, SPW__JOB_PATIENT);
    assert_string_equal(notes, "aaaaaa");
    assert_int_equal(deepest, 1);
    spw__worker_pool_free(pool);
}

static void one_thread_is_enough(void **state)
{
    torture *t = *state;
    pthread_barrier_t all_here;
    meeting_job jobs[2];
    spw__worker_pool *pool = make(t, 3);
    assert_int_equal(pthread_barrier_init(&all_here, NULL, 2), 0);
    io_fault_arm_call("start_thread", 2, 0);
    for (int i = 0; i < 2; i++) {
        jobs[i] = (meeting_job){.job.run = run_meeting, .all_here = &all_here};
        spw__worker_pool_add(pool, &jobs[i].job, SPW__JOB_URGENT);
    }
    assert_int_equal(io_fault_calls_of("start_thread"), 2);
    assert_int_equal(t->log_lines, 1);
    (void)pthread_barrier_wait(&all_here);
    (void)pthread_barrier_wait(&all_here);
    spw__worker_pool_free(pool);
    (void)pthread_barrier_destroy(&all_here);
}

static void too_many_threads_are_refused(void **state)
{
    torture *t = *state;
    spw__worker_pool *pool = NULL;
    assert_status(
        spw__worker_pool_create(t->context, SPW__WORKERS_MAX + 1, &pool, &t->error),
        INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "at most 64 threads"));
    assert_null(pool);
}

/* ---- fork ---- */

/* Returns: the exit status. */
static int work_in_child(spw__worker_pool *pool)
{
    noted_job job;
    size_t before = note_count;
    add_noted(pool, &job, 'c', SPW__JOB_PATIENT);
    if (note_count != before + 1)
        return 1;
    if (spw__worker_pool_run_one(pool))
        return 2;
    spw__worker_pool_free(pool);
    return note_count == before + 1 ? 0 : 3; /* what waits is the parent's */
}

static void a_forked_child_works_by_itself(void **state)
{
    for (unsigned threads = 0; threads < 2; threads++) {
        pthread_barrier_t all_here;
        meeting_job busy = {.job.run = run_meeting, .all_here = &all_here};
        noted_job job;
        int status;
        spw__worker_pool *pool = make(*state, threads);
        assert_int_equal(pthread_barrier_init(&all_here, NULL, 2), 0);
        if (threads > 0) /* whom the child will not have */
            spw__worker_pool_add(pool, &busy.job, SPW__JOB_URGENT);
        add_noted(pool, &job, 'p', SPW__JOB_PATIENT);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(work_in_child(pool));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        if (threads > 0)
            (void)pthread_barrier_wait(&all_here);
        spw__worker_pool_free(pool);
        assert_string_equal(notes, "p");
        (void)pthread_barrier_destroy(&all_here);
    }
}

/* ---- everything fails in turn ---- */

static void pools_come_and_go(void **state)
{
    torture *t = *state;
    spw__worker_pool *pools[5] = {0};
    noted_job job;
    forget_notes();
    for (unsigned i = 0; i < COUNT_OF(pools); i++) {
        TRY(spw__worker_pool_create(t->context, i % 3, &pools[i], &t->error));
        add_noted(pools[i], &job, 'a', SPW__JOB_URGENT);
        spw__worker_pool_free(pools[i]);
        assert_int_equal(note_count, i + 1);
    }
end:;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(urgent_jobs_go_first_but_for_every_fourth_turn),
        SCENARIO(turns_in_which_nobody_else_waits_do_not_count),
        SCENARIO(a_job_may_add_itself_again),
        SCENARIO(a_job_may_free_itself),
        SCENARIO(the_end_runs_what_waits),
        SCENARIO(threads_start_with_the_first_job_and_work_together),
        SCENARIO(many_threads_add),
        SCENARIO(without_a_thread_jobs_run_where_they_are_added),
        SCENARIO(a_job_that_adds_itself_does_not_nest),
        SCENARIO(one_thread_is_enough),
        SCENARIO(too_many_threads_are_refused),
        SCENARIO(a_forked_child_works_by_itself),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(pools_come_and_go)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("worker_pool", scenarios);
}
