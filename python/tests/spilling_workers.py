"""What tests of workers have in common that put all they have on disk."""

from spillway.dask.hook_store import SMALL_KEY

SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}
ALL_SPILL = {
    "distributed.worker.memory.target": 1e-9,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    SMALL_KEY: "1 B",
}


def checksum(*arrays):
    return sum(int(array.sum(dtype="u8")) for array in arrays)
