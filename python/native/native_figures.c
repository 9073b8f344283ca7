/* Counters, under the names that _native.pyi promises. */
#include "native_figures.h"

typedef unsigned long long number;

static PyObject *copies_dict(const spw_figures *figures)
{
    PyObject *copies = PyDict_New();
    for (int i = 0; copies != NULL && i < SPW_COPY_REASON_COUNT; i++) {
        PyObject *entry =
            Py_BuildValue("{s:K,s:K}", "count", (number)figures->copies[i], "bytes",
                          (number)figures->copied_bytes[i]);
        const char *name = spw_copy_reason_name((spw_copy_reason)i);
        if (entry == NULL || PyDict_SetItemString(copies, name, entry) < 0)
            Py_CLEAR(copies);
        Py_XDECREF(entry);
    }
    return copies;
}

static PyObject *budget_dict(const spw_budget_figures *figures)
{
    const uint64_t *used = figures->used_bytes;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "held",
        (number)used[SPW_CHARGE_HELD], "queued", (number)used[SPW_CHARGE_QUEUED],
        "in_flight", (number)used[SPW_CHARGE_IN_FLIGHT], "pooled",
        (number)used[SPW_CHARGE_POOLED], "spilling", (number)used[SPW_CHARGE_SPILLING],
        "peak", (number)figures->peak_bytes, "limit", (number)figures->limit_bytes,
        "refusals", (number)figures->refusals, "in_flight_limit",
        (number)figures->in_flight_limit_bytes, "held_back", (number)figures->held_back,
        "shuffled", (number)figures->shuffled_bytes);
}

static PyObject *regions_dict(const spw_figures *figures)
{
    return Py_BuildValue("{s:K,s:K,s:K}", "recycled", (number)figures->regions_recycled,
                         "added", (number)figures->regions_added, "bytes_moved",
                         (number)figures->pool_bytes_moved);
}

static PyObject *same_host_dict(const spw_figures *figures)
{
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "meetings",
                         (number)figures->host_meetings, "refusals",
                         (number)figures->host_refusals, "bytes_sent",
                         (number)figures->host_bytes_sent, "by_address",
                         (number)figures->host_bytes_by_address, "by_descriptor",
                         (number)figures->host_bytes_by_descriptor, "by_stream",
                         (number)figures->host_bytes_by_stream);
}

PyObject *native_figures(PyObject *module, PyObject *ignored)
{
    (void)ignored;
    module_state *state = PyModule_GetState(module);
    spw_figures figures;
    spw_budget_figures budget;
    spw_context_read_figures(state->context, &figures);
    spw_budget_read(state->budget, &budget);
    /* "N" takes the reference, and passes an error of its own maker on. */
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N,s:N,s:N}", "messages_sent",
        (number)figures.messages_sent, "messages_received",
        (number)figures.messages_received, "bytes_sent", (number)figures.bytes_sent,
        "bytes_received", (number)figures.bytes_received, "connections_opened",
        (number)figures.connections_opened, "connections_closed",
        (number)figures.connections_closed, "connections_failed",
        (number)figures.connections_failed, "connections_tuned",
        (number)figures.connections_tuned, "copies", copies_dict(&figures), "regions",
        regions_dict(&figures), "same_host", same_host_dict(&figures), "budget",
        budget_dict(&budget));
}
