/* A capsule that somebody has emptied has a released struct, which the library refuses.
 */
#include "arrow_capsules.h"

const struct ArrowSchema *arrow_schema_in(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "arrow_schema");
}

PyObject *arrow_array_of(PyObject *object, struct ArrowArray **ret_array)
{
    PyObject *capsules = PyObject_CallMethod(object, "__arrow_c_array__", NULL);
    if (capsules == NULL)
        return NULL;
    PyObject *of_schema, *of_array;
    if (PyArg_ParseTuple(capsules, "OO:__arrow_c_array__", &of_schema, &of_array))
        *ret_array = PyCapsule_GetPointer(of_array, "arrow_array");
    if (PyErr_Occurred())
        Py_CLEAR(capsules);
    return capsules;
}
