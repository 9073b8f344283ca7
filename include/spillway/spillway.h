/* libspillway: moves, holds and shuffles data without copying it. */
#ifndef SPILLWAY_SPILLWAY_H
#define SPILLWAY_SPILLWAY_H

#define SPW_VERSION_MAJOR 0
#define SPW_VERSION_MINOR 1
#define SPW_VERSION_PATCH 0
#define SPW_VERSION "0.1.0"

#include "spillway/budget.h"
#include "spillway/buffer.h"
#include "spillway/codec.h"
#include "spillway/connection.h"
#include "spillway/context.h"
#include "spillway/file.h"
#include "spillway/listener.h"
#include "spillway/payload.h"
#include "spillway/pool.h"
#include "spillway/reactor.h"
#include "spillway/same_host.h"
#include "spillway/sink.h"
#include "spillway/status.h"

/* The version of the library in use. Thread: any. */
SPW_EXPORT const char *spw_version(void);

#endif
