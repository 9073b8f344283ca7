/* The module spillway._native: multi-phase, with all state in the module, so that
 * several interpreters (and a reload) each have a budget and a context of their own. */
#include "module_state.h"

#include "arrow_array_type.h"
#include "buffer_type.h"
#include "checksum_function.h"
#include "completions_type.h"
#include "connection_type.h"
#include "decompress.h"
#include "file_range_type.h"
#include "listener_type.h"
#include "meetings_type.h"
#include "merge_functions.h"
#include "merged_type.h"
#include "native_figures.h"
#include "partitions_type.h"
#include "pool_functions.h"
#include "raise_status.h"
#include "split_function.h"
#include "store_entry_type.h"
#include "store_type.h"

static PyObject *native_version(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyUnicode_FromString(spw_version());
}

static int add_context(module_state *state)
{
    spw_error error;
    spw_status status = spw_budget_create(0, &state->budget, &error);
    if (status == SPW_STATUS_OK) {
        spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
        options.budget = state->budget;
        status = spw_context_create(&options, &state->context, &error);
    }
    if (status == SPW_STATUS_OK)
        return 0;
    raise_status(state, &error);
    return -1;
}

static int add_types(PyObject *module, module_state *state)
{
    state->arrow_array_type = arrow_array_type_create(module);
    if (state->arrow_array_type == NULL ||
        PyModule_AddType(module, state->arrow_array_type) < 0)
        return -1;
    state->buffer_type = buffer_type_create(module);
    if (state->buffer_type == NULL || PyModule_AddType(module, state->buffer_type) < 0)
        return -1;
    state->completions_type = completions_type_create(module);
    if (state->completions_type == NULL ||
        PyModule_AddType(module, state->completions_type) < 0)
        return -1;
    state->connection_type = connection_type_create(module);
    if (state->connection_type == NULL ||
        PyModule_AddType(module, state->connection_type) < 0)
        return -1;
    state->file_range_type = file_range_type_create(module);
    if (state->file_range_type == NULL ||
        PyModule_AddType(module, state->file_range_type) < 0)
        return -1;
    state->listener_type = listener_type_create(module);
    if (state->listener_type == NULL ||
        PyModule_AddType(module, state->listener_type) < 0)
        return -1;
    state->meetings_type = meetings_type_create(module);
    if (state->meetings_type == NULL ||
        PyModule_AddType(module, state->meetings_type) < 0)
        return -1;
    state->merged_type = merged_type_create(module);
    if (state->merged_type == NULL || PyModule_AddType(module, state->merged_type) < 0)
        return -1;
    state->partitions_type = partitions_type_create(module);
    if (state->partitions_type == NULL ||
        PyModule_AddType(module, state->partitions_type) < 0)
        return -1;
    state->store_type = store_type_create(module);
    if (state->store_type == NULL || PyModule_AddType(module, state->store_type) < 0)
        return -1;
    state->store_entry_type = store_entry_type_create(module);
    if (state->store_entry_type == NULL ||
        PyModule_AddType(module, state->store_entry_type) < 0)
        return -1;
    return 0;
}

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    state->name_status = PyUnicode_InternFromString("status");
    if (state->name_status == NULL)
        return -1;
    state->error_type = spillway_error_create();
    if (state->error_type == NULL ||
        PyModule_AddObjectRef(module, "SpillwayError", state->error_type) < 0)
        return -1;
    if (add_context(state) < 0)
        return -1;
    return add_types(module, state);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->arrow_array_type);
    Py_VISIT(state->buffer_type);
    Py_VISIT(state->completions_type);
    Py_VISIT(state->connection_type);
    Py_VISIT(state->file_range_type);
    Py_VISIT(state->listener_type);
    Py_VISIT(state->meetings_type);
    Py_VISIT(state->merged_type);
    Py_VISIT(state->partitions_type);
    Py_VISIT(state->store_type);
    Py_VISIT(state->store_entry_type);
    Py_VISIT(state->error_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->arrow_array_type);
    Py_CLEAR(state->buffer_type);
    Py_CLEAR(state->completions_type);
    Py_CLEAR(state->connection_type);
    Py_CLEAR(state->file_range_type);
    Py_CLEAR(state->listener_type);
    Py_CLEAR(state->meetings_type);
    Py_CLEAR(state->merged_type);
    Py_CLEAR(state->partitions_type);
    Py_CLEAR(state->store_type);
    Py_CLEAR(state->store_entry_type);
    Py_CLEAR(state->error_type);
    Py_CLEAR(state->name_status);
    return 0;
}

/* Runs after the last instance is gone: each holds its type, which holds the module,
 * and the collector does not look through instances (none is tracked but Merged, which
 * has nothing of the context). So nothing is left that could charge the budget. */
static void module_free(void *object)
{
    PyObject *module = object;
    module_state *state = PyModule_GetState(module);
    module_clear(module);
    spw_context_unref(state->context);
    spw_budget_free(state->budget);
}

/* Its name is the ABI's; no header of ours declares it. */
PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void)
{
    static PyMethodDef functions[] = {
        {"allocate", native_allocate, METH_O,
         "allocate(size, /)\n--\n\n"
         "Memory from the pool, that holds anything, as a view of a Buffer."},
        {"arrow_counts", native_arrow_counts, METH_O,
         "arrow_counts(schema, /)\n--\n\n"
         "How many counts a shard has of an array of a type of Arrow's."},
        {"buffer_offset", native_buffer_offset, METH_O,
         "buffer_offset(view, /)\n--\n\n"
         "How many bytes into the memory of its owner a view begins."},
        {"checksum", native_checksum, METH_O,
         "checksum(frame, /)\n--\n\n"
         "XXH3 with 64 bits of a frame, as stored frames have it."},
        {"decompress", (PyCFunction)(void (*)(void))native_decompress,
         METH_VARARGS | METH_KEYWORDS,
         "decompress(codec, frames)\n--\n\n"
         "Decompress the shards of one buffer side by side into one aligned Buffer."},
        {"figures", native_figures, METH_NOARGS,
         "What this process moved and holds, in counts and bytes."},
        {"join", native_join, METH_O,
         "join(frames, /)\n--\n\n"
         "Copy frames, one after another, into one aligned Buffer."},
        {"limit_in_flight", native_limit_in_flight, METH_O,
         "limit_in_flight(bytes, /)\n--\n\n"
         "Let large messages of so many bytes arrive at once; 0 for no limit."},
        {"limit_resident", native_limit_resident, METH_VARARGS,
         "limit_resident(bytes, cached_bytes, /)\n--\n\n"
         "Cache none while the process uses more, and at most so much; 0: no limit."},
        {"merge", native_merge, METH_O,
         "merge(frames, /)\n--\n\n"
         "A view of frames that lie side by side, without a copy."},
        {"split", native_split, METH_VARARGS,
         "split(columns, row_count, ids, numbers, ends, /)\n--\n\n"
         "Put the rows of a table side by side by the partitions that they are of."},
        {"take_ranges", native_take_ranges, METH_VARARGS,
         "take_ranges(process, descriptor, device, inode, places, /)\n--\n\n"
         "Ranges, by offset and size, of a file that another process has open."},
        {"trim", native_trim, METH_VARARGS,
         "trim(keep_bytes, older_than_ms, /)\n--\n\n"
         "Give back cached memory; after how many ms to call it again, or None."},
        {"version", native_version, METH_NOARGS, "The version of the C library."},
        {NULL, NULL, 0, NULL},
    };
    static PyModuleDef_Slot slots[] = {
        {Py_mod_exec, module_exec},
        {0, NULL},
    };
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        .m_name = "spillway._native",
        .m_doc = "The C library as Python sees it.",
        .m_size = sizeof(module_state),
        .m_methods = functions,
        .m_slots = slots,
        .m_traverse = module_traverse,
        .m_clear = module_clear,
        .m_free = module_free,
    };
    return PyModuleDef_Init(&definition);
}
