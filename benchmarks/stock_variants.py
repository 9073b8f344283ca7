"""Settings with which stock Dask may be faster: the best of them is the one to beat."""

TASKS = "tasks"
"""The variant with the task-based shuffle."""


def malloc_environment() -> dict[str, str]:
    """Has Dask's nannies start workers with the malloc settings that Spillway gives."""
    from spillway.dask.malloc_variables import SETTINGS

    values = {one.variable: one.value for one in SETTINGS}
    return {"DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON": repr(values)}


def variants(has_shuffles: bool, has_spills: bool) -> dict[str, dict[str, str]]:
    """Environments by name, as it comes first."""
    found = {
        "stock": {},
        "our malloc settings": malloc_environment(),
        "compressed": {"DASK_DISTRIBUTED__COMM__COMPRESSION": "auto"},
    }
    if has_spills:
        found["spilled as it is"] = {
            "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL_COMPRESSION": "false"
        }
    if has_shuffles:
        found[TASKS] = {"DASK_DATAFRAME__SHUFFLE__METHOD": "tasks"}
    return found
