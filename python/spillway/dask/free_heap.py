"""What malloc keeps of freed memory: given back to the system, or not kept."""

import ctypes
from collections.abc import Iterable

from spillway.dask.malloc_variables import Setting

# Found in what is loaded already: glibc has them, other C libraries do not.
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)


def why_unavailable() -> str | None:
    """Why `give_back` cannot be called, None when it can."""
    return None if _malloc_trim else "the C library has no malloc_trim"


def give_back() -> None:
    """Give every free page of the heap back. Runs without the GIL; other threads wait
    in malloc and free meanwhile, for about a tenth of a second for each GB that goes.
    """
    _malloc_trim(0)


def keep_as_dask_does(settings: Iterable[Setting]) -> None:
    """Have malloc keep from now on what it keeps in a worker of stock Dask, though the
    process was started with these settings of ours."""
    assert _mallopt is not None, "a C library that has malloc_trim has mallopt"
    for setting in settings:
        if setting.on_dask is not None:
            _mallopt(setting.parameter, setting.on_dask)
    give_back()
