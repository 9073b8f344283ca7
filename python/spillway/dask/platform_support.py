"""Where Spillway can work. Everywhere else Dask stays stock."""

import platform
import sys

_MACHINES = ("x86_64", "aarch64")


def why_unsupported() -> str | None:
    """Why Spillway cannot work in this process, None when it can."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    if platform.machine() not in _MACHINES:
        return f"it needs {' or '.join(_MACHINES)}, and this is {platform.machine()}"
    try:
        import spillway._native  # noqa: F401
    except ImportError as error:
        return f"the C library cannot be loaded: {error}"
    return None
