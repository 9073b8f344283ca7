/* Private directories on Linux. Between mkdir and flock a directory can be taken for
 * one that was left behind, and be removed by another process: it is then made anew. */
#include "platform/private_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/peer_process.h"

enum { ATTEMPTS = 8 };

/* Open the directory and lock it, unless somebody has. Returns: the descriptor. */
static int lock_directory(int parent, const char *name)
{
    int lock = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0)
        return -errno;
    struct stat opened, named;
    int answer = flock(lock, LOCK_EX | LOCK_NB) == 0 ? 0 : -errno;
    /* Removed meanwhile, it may even have been made again. */
    if (answer == 0 && (fstat(lock, &opened) != 0 ||
                        fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) != 0 ||
                        opened.st_ino != named.st_ino || opened.st_dev != named.st_dev))
        answer = -ESTALE;
    if (answer == 0 && opened.st_uid != geteuid())
        answer = -EACCES;
    if (answer == 0)
        return lock;
    (void)close(lock);
    return answer;
}

int spw__private_directory_create(const char *parent, const char *prefix, char *text,
                                  size_t room)
{
    char path[PATH_MAX];
    int answer = -EEXIST;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        unsigned long long number;
        answer = spw__random_bytes(&number, sizeof number);
        if (answer < 0)
            return answer;
        int size = snprintf(path, sizeof path, "%s/%s%016llx", parent, prefix, number);
        if (size < 0 || (size_t)size >= sizeof path || (size_t)size >= room)
            return -ENAMETOOLONG;
        if (mkdir(path, S_IRWXU) != 0) {
            answer = -errno;
            if (answer == -EEXIST)
                continue;
            return answer;
        }
        answer = lock_directory(AT_FDCWD, path);
        if (answer >= 0) {
            memcpy(text, path, (size_t)size + 1);
            return answer;
        }
        (void)rmdir(path);
    }
    return answer;
}

/* Remove the files whose names begin with prefix. */
static void empty(int directory, const char *prefix)
{
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (entries == NULL) {
        if (again >= 0)
            (void)close(again);
        return; /* it is then not removed, which is seen there */
    }
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            (void)unlinkat(directory, entry->d_name, 0);
    (void)closedir(entries);
}

void spw__private_directory_remove(int lock, const char *path, const char *file)
{
    /* Somebody who tidied up first has left nothing to remove. */
    empty(lock, file);
    (void)rmdir(path);
    (void)close(lock);
}

void spw__private_directory_leave(int lock)
{
    (void)close(lock);
}

int spw__private_directory_sweep(const char *parent, const char *prefix,
                                 const char *file)
{
    DIR *entries = opendir(parent);
    if (entries == NULL)
        return -errno;
    int removed = 0;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        int lock = lock_directory(dirfd(entries), entry->d_name);
        if (lock < 0)
            continue;
        empty(lock, file);
        if (unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR) == 0)
            removed++;
        (void)close(lock);
    }
    (void)closedir(entries);
    return removed;
}
