"""Whether a comm that is made now has what a part decides.

One of spillway:// may be made where enable() was never called.
"""

import functools
import os
from collections.abc import Callable

from spillway import in_force
from spillway.dask import switches


def have(name: str, off_with: tuple[str, ...], check: Callable[[], str | None]) -> bool:
    """Whether they have it, of a hook's NAME, OFF_WITH and check()."""
    if in_force.hooks:
        return in_force.why_off(name) is None
    return _is_on_without_enable(off_with, check, os.environ.get(switches.VARIABLE))


@functools.cache
def _is_on_without_enable(
    off_with: tuple[str, ...], check: Callable[[], str | None], variable: str | None
) -> bool:
    return switches.why_off(off_with, switches.read()) is None and check() is None
