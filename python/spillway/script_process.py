"""The process of a script under `spillway run`: Spillway on, and then what Python does.

The script is not run by runpy, which gives __main__ back as soon as the script returns:
here __main__ stays the script's while atexit closes what the script left open, and
processes that multiprocessing spawns find it as they do without us.
"""

import io
import os
import sys
import types

import dask.config
import distributed  # noqa: F401  (its defaults join Dask's configuration)

import spillway.dask
from spillway import process_stats

SCRIPT = "script"
"""The role of this process, whatever else it runs."""


def main(script: str, arguments: list[str]) -> None:
    """Enable Spillway, and become `python script arguments`."""
    process_stats.write_at_exit(SCRIPT)
    spillway.dask.enable()
    clients = "distributed.client.preload"
    dask.config.set({clients: [*dask.config.get(clients), "spillway.foreign_figures"]})

    sys.argv = [script, *arguments]
    if "PYTHONSAFEPATH" not in os.environ:
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    path = os.path.abspath(script)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
