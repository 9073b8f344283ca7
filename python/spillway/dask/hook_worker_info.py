"""Has a worker tell its scheduler that it runs Spillway, and what of it is on.

Workers send their startup information when they register, and the scheduler shows it in
identity(): that is where a client sees who is without Spillway. No switch turns this
off, so that a worker that was told to stay stock says so.
"""

from typing import Any

from spillway.dask import handshake, manifest, shuffle_peers

NAME = "worker_info"
OFF_WITH = ()

KEY = "spillway"


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(worker: Any) -> None:
    """Add to what the worker says when it registers, which it has not yet."""
    worker.startup_information[KEY] = _describe


def remove(worker: Any) -> None:
    """Take it back; the scheduler keeps what it was told."""
    worker.startup_information.pop(KEY, None)


def _describe(worker: Any) -> dict[str, Any]:
    import spillway
    from spillway import in_force

    wire_version = None
    if in_force.why_off("transport") is None:
        wire_version = handshake.WIRE_VERSION
    shuffle_version = None
    if in_force.why_off("shuffle") is None:
        shuffle_version = shuffle_peers.VERSION
    return {
        "version": spillway.__version__,
        "wire_version": wire_version,
        "shuffle_version": shuffle_version,
        # Short: Dask wants little of a worker to be pickled with its state.
        "off": {
            name: part["why_off"]
            for name, part in in_force.parts().items()
            if not part["on"]
        },
    }
