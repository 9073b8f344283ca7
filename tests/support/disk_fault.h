/* A disk that fails on demand: the calls of platform/spill_file.h pass through here as
 * sockets' do through io_fault.h, which arms and counts them ("spill_create",
 * "spill_write", "spill_read", "spill_reopen"). Its files count as open descriptors
 * until spw__regular_file_close. Thread: arm only while no other thread does I/O, or
 * from within what disk_fault_during calls. */
#ifndef SPW_TESTS_DISK_FAULT_H
#define SPW_TESTS_DISK_FAULT_H

#include <stdint.h>

/* As at first. Every torture begins with it. */
void disk_fault_reset(void);

/* From now on so many bytes can be written, then the disk is full: a write stops on its
 * way with ENOSPC. UINT64_MAX: no end to it. What is closed gives nothing back. */
void disk_fault_room(uint64_t bytes);
/* The n-th read from now on (1: the next) answers OK with one bit wrong; 0: none. Which
 * bit: counted from the first of what is read, modulo its size. */
void disk_fault_corrupt(uint64_t n, uint64_t bit);
/* The same with the end of the file before that of what is read: ENODATA. */
void disk_fault_cut(uint64_t n);

typedef enum disk_fault_way {
    DISK_FAULT_READING = 1 << 0,
    DISK_FAULT_WRITING = 1 << 1,
    DISK_FAULT_CREATING = 1 << 2,
    DISK_FAULT_REOPENING = 1 << 3
} disk_fault_way;
/* Call function in the middle of each read, write, creation or opening again of those
 * ways, on its
 * thread: half is done. NULL: no more. */
void disk_fault_during(unsigned ways,
                       void (*function)(void *argument, disk_fault_way way),
                       void *argument);

/* Calls since the process began, and what they met. */
typedef struct disk_fault_figures {
    uint64_t creates, creates_failed;
    uint64_t writes, writes_failed, writes_full;
    uint64_t reads, reads_failed, reads_cut, reads_corrupt;
} disk_fault_figures;

/* Thread: only while no other thread does I/O. */
disk_fault_figures disk_fault_read_figures(void);

#endif
