"""The type of what supports the buffer protocol, which Python names from 3.12 on."""

import sys
from typing import Any

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    # Before, the types of libraries do not say that they support it, NumPy's neither.
    Buffer = Any

__all__ = ["Buffer"]
