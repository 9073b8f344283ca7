"""What malloc keeps of freed memory, given back to the system."""

import ctypes

# Found in what is loaded already: glibc has it, other C libraries do not.
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def why_unavailable() -> str | None:
    """Why `give_back` cannot be called, None when it can."""
    return None if _malloc_trim else "the C library has no malloc_trim"


def give_back() -> None:
    """Give every free page of the heap back. Runs without the GIL; other threads wait
    in malloc and free meanwhile, for about a tenth of a second for each GB that goes.
    """
    _malloc_trim(0)
