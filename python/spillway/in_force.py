"""What is in force in this process.

`spillway.dask` writes it as it enters and leaves Dask, `spillway.stats()` reads it. It
is apart from both so that stats() needs neither Dask nor the C library.
"""

ON = "on"

TRANSPORT, SAME_HOST = "transport", "same_host"
PARTS = (
    TRANSPORT,
    SAME_HOST,
    "malloc",
    "offload",
    "merge",
    "values",
    "store",
    "shuffle",
)
"""What can be on or off: each is the name of the hook that makes it work, but for
same_host, which the transport does by itself, so that it is off wherever that is, and
for those in _HOOK_OF."""

_HOOK_OF = {"shuffle": "shuffle_buffer"}

hooks: dict[str, str] = {}
"""For each place where we enter Dask: ON, or why it is off. Empty until enable(), and
replaced whole, never changed, so that any thread may read it."""

same_host_off: str | None = None
"""Why the transport does not use what processes of one host have in common."""

roles: set[str] = set()
"""What Dask runs in this process: "scheduler", "nanny", "worker", "client"."""

why_stock = "spillway.dask.enable() was not called in this process"
"""Why nothing is on while `hooks` is empty."""


def why_off(part: str) -> str | None:
    """Why a part is off, None when it is on."""
    state = hooks.get(part, why_stock)
    return None if state == ON else state


def parts() -> dict[str, dict[str, bool | str | None]]:
    """For each part whether it is on, and why it is not."""
    reasons = {part: why_off(_HOOK_OF.get(part, part)) for part in PARTS}
    reasons[SAME_HOST] = reasons[TRANSPORT] or same_host_off
    return {
        part: {"on": reason is None, "why_off": reason}
        for part, reason in reasons.items()
    }
