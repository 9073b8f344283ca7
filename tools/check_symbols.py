#!/usr/bin/env python3
"""Hold what libspillway.so exports against the list of what it promised.

    check_symbols.py LIBRARY [--accept]

Both a symbol that is new and one that is gone fail. --accept writes the new ones into
the list, where a reviewer sees them; nothing here takes a symbol out of it.
"""

import subprocess
import sys
from pathlib import Path

PROMISED = Path(__file__).parents[1] / "tests/abi/exported_symbols.txt"
PREFIX = "spw_"


def exported(library: Path) -> set[str]:
    """The names that a program can link to, not those of versions (absolute ones)."""
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = (line.split() for line in output.splitlines())
    return {name.split("@")[0] for name, kind, *_ in fields if kind != "A"}


def compare(symbols: set[str], promised: set[str]) -> tuple[list[str], list[str]]:
    """Faults that nobody can accept, and symbols that somebody has to."""
    faults = [
        f"- {name}: promised, and gone" for name in sorted(promised - symbols)
    ] + [
        f"! {name}: exported without the prefix {PREFIX}"
        for name in sorted(symbols)
        if not name.startswith(PREFIX)
    ]
    new = {name for name in symbols - promised if name.startswith(PREFIX)}
    return faults, sorted(new)


def main(arguments: list[str], promised_in: Path = PROMISED) -> int:
    accept = "--accept" in arguments
    (library,) = (name for name in arguments if name != "--accept")
    symbols = exported(Path(library))
    promised = set(promised_in.read_text().split()) if promised_in.exists() else set()
    faults, new = compare(symbols, promised)
    for line in [*faults, *(f"+ {name}" for name in new)]:
        print(line)
    if accept and new:
        promised_in.write_text("".join(f"{x}\n" for x in sorted(promised | set(new))))
        new = []
    elif new:
        print(f"New symbols: --accept adds them to {promised_in.name}.")
    if not faults and not new:
        print(f"symbols: {len(symbols)} exported, as promised")
    return 1 if faults or new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
