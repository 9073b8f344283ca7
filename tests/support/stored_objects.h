/* Objects for a store's tests: bytes that follow from a number, so that whoever has one
 * can tell whether it is right. Packed, one is two slices of its own memory and a few
 * more, which hold it. */
#ifndef SPW_TESTS_STORED_OBJECTS_H
#define SPW_TESTS_STORED_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "spillway/store.h"

/* The store's self. Starts all zero but for the context. */
typedef struct stored_objects {
    spw_context *context; /* borrowed */
    _Atomic int live;     /* objects that are there */
    _Atomic uint64_t packs, unpacks;
    spw_status unpack_status;   /* what unpacking answers; OK: it unpacks */
    void (*during)(void *user); /* called in the middle of pack and unpack; or NULL */
    void *user;
} stored_objects;

typedef struct stored_object {
    _Atomic int references;
    stored_objects *all;
    unsigned number;
    size_t size;
    bool cannot_pack;
    unsigned char bytes[];
} stored_object;

extern const spw_object_ops stored_object_ops;

/* Returns: an object with one reference. */
stored_object *stored_object_create(stored_objects *all, unsigned number, size_t size);
void stored_object_unref(stored_object *object);
/* Fails the test unless the object is what create made of number and size. */
void stored_object_check(const stored_object *object, unsigned number, size_t size);
/* The payload of such an object, in memory of the context's. */
spw_status stored_object_payload(spw_context *context, unsigned number, size_t size,
                                 spw_payload **ret_payload, spw_error *error);
/* Fails the test unless it is that, all in memory. */
void stored_object_check_payload(const spw_payload *payload, unsigned number,
                                 size_t size);

#endif
