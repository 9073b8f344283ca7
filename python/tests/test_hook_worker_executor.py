"""A worker that runs its tasks in Dask's offload thread deserialises there too."""

import threading

import pytest
from distributed import Client, LocalCluster

import spillway
from spillway.dask import enable, hook_offload

pytestmark = pytest.mark.timeout(60)


class Bound:
    """Belongs to the thread that it was deserialised in."""

    def __init__(self):
        self.filling = b"x" * (12 << 20)  # more than Dask deserialises on its loop

    def __reduce__(self):
        return _bound, (bytes(self.filling),)


def _bound(filling):
    made = object.__new__(Bound)
    made.filling = filling
    made.thread = threading.get_ident()
    return made


def is_here(bound):
    return bound.thread == threading.get_ident()


@pytest.mark.parametrize("executor", ["offload", None])
async def test_task_and_value_share_a_thread(executor):
    enable()
    options = {"executor": executor} if executor else {}
    async with (
        LocalCluster(
            n_workers=1,
            processes=False,
            protocol="tcp",
            dashboard_address=":0",
            asynchronous=True,
            **options,
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        assert hook_offload.is_in_force() == (executor is None)
        there = await client.submit(is_here, Bound(), pure=False)
        assert there == (executor is not None)
    assert hook_offload.is_in_force()
    assert spillway.stats()["hooks"]["worker_executor"] == "on"
