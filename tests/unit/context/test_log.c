/* The log hook: what is above its level is not even formatted. */
#include "context/log.h"

#include <stdio.h>
#include <string.h>

#include "testing.h"

typedef struct lines {
    unsigned count;
    spw_log_level level;
    char last[1024];
} lines;

static void write_line(void *user, spw_log_level level, const char *message)
{
    lines *log = user;
    log->count++;
    log->level = level;
    snprintf(log->last, sizeof log->last, "%s", message);
}

/* A context that logs up to level, or not at all without a hook. */
static spw_context *make(spw_budget *budget, lines *log, spw_log_level level)
{
    spw_context *context;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.budget = budget;
    if (log != NULL)
        options.log = (spw_log_hook){write_line, log, level};
    assert_ok(spw_context_create(&options, &context, NULL));
    return context;
}

static int make_budget(void **state)
{
    spw_budget *budget;
    assert_ok(spw_budget_create(0, &budget, NULL));
    *state = budget;
    return 0;
}

static int free_budget(void **state)
{
    spw_budget_free(*state);
    return 0;
}

static void writes_a_line_up_to_its_level(void **state)
{
    lines log = {0};
    spw_context *context = make(*state, &log, SPW_LOG_WARNING);
    spw__log(context, SPW_LOG_WARNING, "%s %d", "seven", 7);
    assert_int_equal(log.count, 1);
    assert_int_equal(log.level, SPW_LOG_WARNING);
    assert_string_equal(log.last, "seven 7");
    spw__log(context, SPW_LOG_ERROR, "worse");
    assert_int_equal(log.count, 2);
    assert_int_equal(log.level, SPW_LOG_ERROR);
    spw_context_unref(context);
}

static void formats_nothing_above_its_level(void **state)
{
    lines log = {0};
    int written = 0;
    spw_context *context = make(*state, &log, SPW_LOG_WARNING);
    spw__log(context, SPW_LOG_INFO, "abc%n", &written);
    assert_int_equal(log.count, 0);
    assert_int_equal(written, 0); /* %n would have set it */
    spw_context_unref(context);
}

static void is_silent_without_a_hook(void **state)
{
    int written = 0;
    spw_context *context = make(*state, NULL, SPW_LOG_DEBUG);
    spw__log(context, SPW_LOG_ERROR, "abc%n", &written);
    assert_int_equal(written, 0);
    spw_context_unref(context);
}

static void cuts_a_line_that_does_not_fit(void **state)
{
    lines log = {0};
    char wide[2000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    spw_context *context = make(*state, &log, SPW_LOG_DEBUG);
    spw__log(context, SPW_LOG_DEBUG, "%s", wide);
    assert_int_equal(log.count, 1);
    assert_int_equal(strlen(log.last), 511);
    spw_context_unref(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_line_up_to_its_level),
        cmocka_unit_test(formats_nothing_above_its_level),
        cmocka_unit_test(is_silent_without_a_hook),
        cmocka_unit_test(cuts_a_line_that_does_not_fit),
    };
    return cmocka_run_group_tests(tests, make_budget, free_budget);
}
