/* Private directories, in one of the test's own. */
#include "platform/private_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "private_place.h"
#include "testing.h"

static int set_up(void **state)
{
    private_place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    private_place_open(place);
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    private_place *place = *state;
    private_place_close(place); /* fails unless it is empty */
    free(place);
    return 0;
}

static void put_file(const char *directory, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
}

static void nobody_else_may_enter(void **state)
{
    private_place *place = *state;
    char path[128], other[128];
    mode_t before = umask(0);
    int lock = spw__private_directory_create(place->directory, "ours-", path, 128);
    umask(before);
    assert_true(lock >= 0);
    assert_true(fcntl(lock, F_GETFD) & FD_CLOEXEC);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    assert_int_equal(strncmp(path, place->directory, strlen(place->directory)), 0);
    int second = spw__private_directory_create(place->directory, "ours-", other, 128);
    assert_true(second >= 0);
    assert_string_not_equal(path, other);
    put_file(path, "file");
    spw__private_directory_remove(lock, path, "file");
    spw__private_directory_remove(second, other, "file");
}

static void what_is_in_use_stays(void **state)
{
    private_place *place = *state;
    char path[128];
    int lock = spw__private_directory_create(place->directory, "ours-", path, 128);
    put_file(path, "file");
    assert_int_equal(spw__private_directory_sweep(place->directory, "ours-", "file"),
                     0);
    assert_int_equal(access(path, F_OK), 0);
    spw__private_directory_remove(lock, path, "file");
    assert_int_equal(access(path, F_OK), -1);
}

static void what_a_killed_process_left_is_removed(void **state)
{
    private_place *place = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char path[128];
        if (spw__private_directory_create(place->directory, "ours-", path, 128) < 0)
            _exit(EXIT_FAILURE);
        put_file(path, "file");
        put_file(path, "file-2");
        raise(SIGKILL);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(spw__private_directory_sweep(place->directory, "ours-", "file"),
                     1);
    assert_int_equal(spw__private_directory_sweep(place->directory, "ours-", "file"),
                     0);
}

static void only_what_is_ours_is_removed(void **state)
{
    private_place *place = *state;
    char other[128], full[128], link_path[128];
    snprintf(other, sizeof other, "%s/other", place->directory);
    snprintf(full, sizeof full, "%s/ours-full", place->directory);
    snprintf(link_path, sizeof link_path, "%s/ours-link", place->directory);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mkdir(full, 0700), 0);
    put_file(full, "precious");
    put_file(other, "file");
    assert_int_equal(symlink(other, link_path), 0);
    put_file(place->directory, "ours-file");
    assert_int_equal(spw__private_directory_sweep(place->directory, "ours-", "file"),
                     0);
    char path[256];
    static const char *const KEPT[] = {"ours-full/precious", "other/file", "ours-link",
                                       "ours-file"};
    for (size_t i = 0; i < COUNT_OF(KEPT); i++) {
        snprintf(path, sizeof path, "%s/%s", place->directory, KEPT[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(full), 0);
    assert_int_equal(rmdir(other), 0);
}

static void what_cannot_be_made_is_told(void **state)
{
    private_place *place = *state;
    char path[128] = "untouched", parent[PATH_MAX + 1];
    assert_int_equal(spw__private_directory_create("/nowhere/at/all", "x", path, 128),
                     -ENOENT);
    assert_int_equal(spw__private_directory_create(place->directory, "x", path, 20),
                     -ENAMETOOLONG);
    memset(parent, 'x', sizeof parent - 1);
    parent[sizeof parent - 1] = '\0';
    assert_int_equal(spw__private_directory_create(parent, "x", path, 128),
                     -ENAMETOOLONG);
    assert_string_equal(path, "untouched");
    assert_int_equal(spw__private_directory_sweep("/nowhere/at/all", "x", "file"),
                     -ENOENT);
}

static void a_copy_of_the_lock_may_be_let_go_of(void **state)
{
    private_place *place = *state;
    char path[128];
    int lock = spw__private_directory_create(place->directory, "ours-", path, 128);
    spw__private_directory_leave(dup(lock));
    assert_int_equal(spw__private_directory_sweep(place->directory, "ours-", "file"),
                     0);
    spw__private_directory_remove(lock, path, "file");
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(nobody_else_may_enter),
        TEST_AT(what_is_in_use_stays),
        TEST_AT(what_a_killed_process_left_is_removed),
        TEST_AT(only_what_is_ours_is_removed),
        TEST_AT(what_cannot_be_made_is_told),
        TEST_AT(a_copy_of_the_lock_may_be_let_go_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
