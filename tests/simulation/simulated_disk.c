/* The disk of a simulation: where it is, and what goes wrong with it. */
#include <errno.h>

#include "disk_fault.h"
#include "io_fault.h"
#include "world.h"

void world_place_open(const world *w, private_place *place)
{
    if (w->seed % 16 == 0)
        private_place_open(place);
    else
        private_place_open_in_memory(place);
}

void calm_disk(void)
{
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    disk_fault_corrupt(0, 0);
    disk_fault_cut(0);
    disk_fault_room(UINT64_MAX);
}

void trouble_disk(world *w)
{
    if (!w->disk_fails)
        return;
    switch (below(w, 7)) {
    case 0:
        io_fault_arm_call("spill_write", 1 + below(w, 3), one_in(w, 2) ? ENOSPC : EIO);
        break;
    case 1:
        io_fault_arm_call("spill_read", 1 + below(w, 3), EIO);
        break;
    case 2:
        disk_fault_corrupt(1 + below(w, 3), next(w));
        break;
    case 3:
        disk_fault_cut(1 + below(w, 3));
        break;
    case 4:
        disk_fault_room(below(w, 2 << 20));
        break;
    case 5:
        io_fault_arm_call("spill_create", 1, EMFILE);
        break;
    default:
        calm_disk();
    }
}
