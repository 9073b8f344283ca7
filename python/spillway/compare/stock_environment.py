"""The environment of the stock side: the packages of this one, without Spillway.

It is made once, by venv and this environment's pip, and kept in the user's cache by
what is in it. A file that is written last says that it is complete.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

_COMPLETE = "complete"
_NOT_NEEDED = {"spillway", "pip", "setuptools", "wheel"}
"""Pip does not write them down as packages of an environment."""
_ERROR_LINES = 15
# Asked of the other side's python, whose first directory of modules is the script's.
_ASK = """
import json, platform, sys
from importlib import metadata, util
sys.path[0] = sys.argv[1]
found = util.find_spec("spillway")
print(json.dumps({
    "spillway": found and (found.origin or list(found.submodule_search_locations)),
    "python": platform.python_version(),
    "versions": [(one.name, one.version) for one in metadata.distributions()],
}))
"""


class NotMade(Exception):
    """There is no environment to compare with; the text says why, and what helps."""


def pins() -> list[str]:
    """The packages of this environment but Spillway, as pip writes them down."""
    done = _run([sys.executable, "-m", "pip", "freeze", "--exclude", "spillway"])
    if done.returncode != 0:
        raise NotMade(
            f"pip cannot say what is in this environment:\n{_end(done.stderr)}\n"
            "Install pip here, or name the python of an environment that has the same "
            "packages without Spillway: --stock-python"
        )
    return done.stdout.splitlines()


def home_of(packages: list[str]) -> Path:
    """Where the environment of these packages is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made_of = [sys.executable, platform.python_version(), *packages]
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    return Path(cache) / "spillway" / "stock" / name


def make(packages: list[str], say: Callable[[str], None]) -> Path:
    """The python of an environment of these packages, which is made if it is not there.
    Raises NotMade when pip cannot install them."""
    home = home_of(packages)
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_suffix(".lock")):
        if not (home / _COMPLETE).exists():
            say(
                f"making an environment of stock Dask in {home}, once for these "
                f"{len(packages)} packages"
            )
            _fill(home, packages)
    return home / "bin" / "python"


def check(python: Path, script: str) -> list[str]:
    """Hold an environment against this one: no Spillway that the script could import
    there, and what both have in the same version. Raises NotMade otherwise. Returns the
    names of packages that only this one has."""
    # By the name that it was given: links of an environment lead out of it.
    done = _run([str(python), "-c", _ASK, os.path.dirname(os.path.realpath(script))])
    if done.returncode != 0:
        raise NotMade(f"{python} does not run:\n{_end(done.stderr)}")
    theirs = json.loads(done.stdout)
    if theirs["spillway"]:
        raise NotMade(
            f"{python} can import spillway ({theirs['spillway']}), so it is not stock; "
            "a PYTHONPATH or the directory of the script may lead there"
        )
    found = _by_name(theirs["versions"])
    ours = _by_name((one.name, one.version) for one in metadata.distributions())
    differ = [
        f"{name} {found[name]} and not {version}"
        for name, version in {**ours, "python": platform.python_version()}.items()
        if {**found, "python": theirs["python"]}.get(name, version) != version
    ]
    if "distributed" not in found:
        differ.append("no distributed")
    if differ:
        raise NotMade(f"{python} is no match for this environment: {', '.join(differ)}")
    return sorted(ours.keys() - found.keys() - _NOT_NEEDED)


def _fill(home: Path, packages: list[str]) -> None:
    if home.exists():
        shutil.rmtree(home)  # somebody was interrupted here
    made = _run([sys.executable, "-m", "venv", "--without-pip", str(home)])
    if made.returncode != 0:
        raise NotMade(f"no environment can be made in {home}:\n{_end(made.stderr)}")
    wanted = home / "packages.txt"
    wanted.write_text("\n".join(packages) + "\n", encoding="utf-8")
    # What works together here does so there, whatever pip would say of it: no
    # dependencies are looked for.
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    how = ["install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = _run([*pip, *how, "--requirement", str(wanted)])
    if done.returncode != 0:
        raise NotMade(
            f"pip cannot install what is here a second time:\n{_end(done.stderr)}\n"
            "Name the python of an environment that has the same packages without "
            "Spillway: --stock-python"
        )
    (home / _COMPLETE).touch()


def _by_name(versions: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of those that are there twice, the first, which is the one that is imported."""
    found: dict[str, str] = {}
    for name, version in versions:
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return found


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_ERROR_LINES:])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
