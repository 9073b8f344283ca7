/* A directory for sockets that nobody else may enter. */
#ifndef TEST_PRIVATE_PLACE_H
#define TEST_PRIVATE_PLACE_H

typedef struct private_place {
    char directory[64];
    char path[80]; /* of a socket in it */
} private_place;

void private_place_open(private_place *place);
/* The same in memory, where the system has room for files there: else that. */
void private_place_open_in_memory(private_place *place);
/* Removes it with the socket. */
void private_place_close(private_place *place);

/* How many entries a directory has that are not hidden. */
unsigned private_place_count_entries(const char *directory);

/* How many descriptors this process has. */
int private_place_descriptors(void);

#endif
