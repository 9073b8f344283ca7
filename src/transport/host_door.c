/* The door. Whoever comes in is a process of this host that could enter the directory,
 * and no more than that: host_receiver.c finds out the rest. */
#include "transport/host_door.h"

#include <errno.h>
#include <stdio.h>

#include "context/allocate.h"
#include "context/error.h"
#include "platform/peer_process.h"
#include "platform/private_directory.h"
#include "platform/unix_socket.h"

/* No other directory of ours begins so: an empty one would be taken for left behind. */
static const char PREFIX[] = "spillway-door-";
static const char FILE_NAME[] = "door";
/* As many can wait as a scheduler has workers on one host, and more. */
enum { BACKLOG = 1024 };

struct spw__host_door {
    spw_context *context; /* borrowed */
    pid_t owner;
    int descriptor, lock;
    char directory[SPW__UNIX_PATH_BYTES], path[SPW__UNIX_PATH_BYTES];
};

spw_status spw__host_door_create(spw_context *context, const char *parent,
                                 spw__host_door **ret_door, spw_error *error)
{
    spw__host_door *door =
        spw__allocate(context, sizeof *door, _Alignof(spw__host_door));
    if (door == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a place to meet");
    *door = (spw__host_door){.context = context,
                             .owner = spw__unix_socket_owner(),
                             .descriptor = -1,
                             .lock = -1};
    /* Nobody's directory is missed when there is nothing to sweep. */
    (void)spw__private_directory_sweep(parent, PREFIX, FILE_NAME);
    int answer = spw__private_directory_create(parent, PREFIX, door->directory,
                                               sizeof door->directory);
    if (answer >= 0) {
        door->lock = answer;
        int size = snprintf(door->path, sizeof door->path, "%s/%s", door->directory,
                            FILE_NAME);
        answer = (size_t)size < sizeof door->path
                     ? spw__unix_socket_listen(door->path, BACKLOG)
                     : -ENAMETOOLONG;
    }
    if (answer < 0) {
        spw__host_door_free(door);
        return spw__error_set(
            error, answer == -ENAMETOOLONG ? SPW_STATUS_ADDRESS : SPW_STATUS_IO,
            -answer, "cannot make a place to meet in %s", parent);
    }
    door->descriptor = answer;
    *ret_door = door;
    return SPW_STATUS_OK;
}

void spw__host_door_free(spw__host_door *door)
{
    if (door == NULL)
        return;
    if (door->descriptor >= 0)
        spw__unix_socket_close(door->descriptor);
    if (door->lock >= 0 && door->owner == spw__unix_socket_owner())
        spw__private_directory_remove(door->lock, door->directory, FILE_NAME);
    else if (door->lock >= 0)
        spw__private_directory_leave(door->lock);
    spw__release(door->context, door, sizeof *door, _Alignof(spw__host_door));
}

int spw__host_door_descriptor(const spw__host_door *door)
{
    return door->descriptor;
}

const char *spw__host_door_path(const spw__host_door *door)
{
    return door->path;
}

spw_status spw__host_door_accept(spw__host_door *door, int *ret_descriptor,
                                 spw_error *error)
{
    int descriptor = spw__unix_socket_accept(door->descriptor);
    if (descriptor == -EAGAIN || descriptor == -ECONNABORTED)
        return spw__error_set(error, SPW_STATUS_AGAIN, 0, "nobody has come to meet us");
    if (descriptor < 0)
        return spw__error_set(error, SPW_STATUS_IO, -descriptor,
                              "cannot let in who came to meet us");
    *ret_descriptor = descriptor;
    return SPW_STATUS_OK;
}

spw_status spw__host_nonce(uint8_t nonce[SPW__HOST_NONCE_BYTES], spw_error *error)
{
    int answer = spw__random_bytes(nonce, SPW__HOST_NONCE_BYTES);
    return answer == 0 ? SPW_STATUS_OK
                       : spw__error_set(error, SPW_STATUS_IO, -answer,
                                        "the system gives no random bytes");
}
