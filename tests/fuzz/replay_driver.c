/* Runs a fuzz target over files, without libFuzzer: replay_<name> FILE_OR_DIRECTORY...
 * It fails when a path cannot be read and when there was no file at all. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fail(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return -1;
}

/* The input goes to a heap block of exactly its size, so that AddressSanitizer sees a
 * read past its end. Answers the files run, -1 on failure. */
static int replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return fail(path);
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL || fread(data, 1, size, file) != size) {
        int result = fail(path);
        free(data);
        fclose(file);
        return result;
    }
    fclose(file);
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout); /* the name of the input must be out before a crash */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int replay(const char *path);

static int replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return fail(path);
    int count = 0;
    const struct dirent *entry;
    while (count >= 0 && (entry = readdir(directory)) != NULL) {
        char child[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof child) {
            errno = ENAMETOOLONG;
            count = fail(path);
            break;
        }
        int files = replay(child);
        count = files < 0 ? -1 : count + files;
    }
    closedir(directory);
    return count;
}

static int replay(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return fail(path);
    return S_ISDIR(status.st_mode) ? replay_directory(path)
                                   : replay_file(path, (size_t)status.st_size);
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        int files = replay(argv[i]);
        if (files < 0)
            return EXIT_FAILURE;
        count += files;
    }
    printf("%d inputs\n", count);
    return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
