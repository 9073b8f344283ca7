/* Meetings: spw_meetings of one event loop. */
#ifndef SPW_NATIVE_MEETINGS_TYPE_H
#define SPW_NATIVE_MEETINGS_TYPE_H

#include "module_state.h"

PyTypeObject *meetings_type_create(PyObject *module);

/* Borrows: object, a Meetings. */
spw_meetings *meetings_of(PyObject *object);

#endif
