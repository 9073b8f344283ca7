#include "private_place.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "testing.h"

static bool open_in(private_place *place, const char *parent)
{
    snprintf(place->directory, sizeof place->directory, "%s/spillway_test_XXXXXX",
             parent);
    if (mkdtemp(place->directory) == NULL)
        return false;
    snprintf(place->path, sizeof place->path, "%s/door", place->directory);
    return true;
}

void private_place_open(private_place *place)
{
    assert_true(open_in(place, "/tmp"));
}

void private_place_open_in_memory(private_place *place)
{
    /* Containers may have 64 MiB there, which a test would find full. */
    enum { ROOM_BYTES = 256 << 20 };
    static const char MEMORY[] = "/dev/shm";
    struct statvfs about;
    if (statvfs(MEMORY, &about) != 0 ||
        about.f_bavail < ROOM_BYTES / (about.f_frsize > 0 ? about.f_frsize : 1) ||
        !open_in(place, MEMORY))
        private_place_open(place);
}

void private_place_close(private_place *place)
{
    (void)unlink(place->path);
    assert_int_equal(rmdir(place->directory), 0);
}

unsigned private_place_count_entries(const char *directory)
{
    unsigned count = 0;
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(entries);
    return count;
}

int private_place_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    int count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}
