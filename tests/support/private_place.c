#include "private_place.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "testing.h"

void private_place_open(private_place *place)
{
    snprintf(place->directory, sizeof place->directory, "/tmp/spillway_test_XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof place->path, "%s/door", place->directory);
}

void private_place_close(private_place *place)
{
    (void)unlink(place->path);
    assert_int_equal(rmdir(place->directory), 0);
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
