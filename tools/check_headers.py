#!/usr/bin/env python3
"""The public headers are the specification: each declaration says what it needs to.

    check_headers.py [ROOT]

Every function that is exported has a comment of its own right before it, which says in
fixed words what applies:

    Takes:    what passes to the library, as in every free and unref
    Borrows:  what has to stay, and until when
    Returns:  what comes back, if anything does
    Thread:   who may call it
    Errors:   which statuses, if it answers one
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

COMMENT = r"/\*(?:(?!\*/).)*\*/"
DECLARATION = re.compile(
    rf"(?P<comment>{COMMENT}\s*\n)?"
    r"SPW_EXPORT\s+(?P<result>[\w\s]+?[\s*]+)(?P<name>spw_\w+)\s*\((?P<parameters>[^;]*)\)"
    r"\s*;",
    re.DOTALL,
)
GIVES_UP = re.compile(r"_(free|unref)$")


def expected(name: str, result: str, parameters: str) -> Iterator[str]:
    """The words that a declaration needs at least."""
    yield "Thread:"
    if "spw_status" in result and "SPW_NODISCARD" in result:
        yield "Errors:"
    elif result.strip() != "void":
        yield "Returns:"
    if re.search(r"\bret_\w+", parameters):
        yield "Returns:"
    if GIVES_UP.search(name):
        yield "Takes:"


def check(root: Path) -> list[str]:
    """What is missing in the headers under root."""
    faults = []
    for header in sorted((root / "include").rglob("*.h")):
        where = header.relative_to(root)
        text = header.read_text()
        found = list(DECLARATION.finditer(text))
        count = len(re.findall(r"^SPW_EXPORT", text, re.MULTILINE))
        if len(found) != count:
            faults.append(
                f"{where}: {count} declarations, of which {len(found)} can be read"
            )
        for one in found:
            comment = one["comment"]
            if comment is None:
                faults.append(f"{where}: {one['name']} has no comment of its own")
                continue
            words = dict.fromkeys(
                expected(one["name"], one["result"], one["parameters"])
            )
            faults += [
                f"{where}: {one['name']} does not say {word[:-1]}"
                for word in words
                if word not in comment
            ]
    return faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    faults = check(root)
    print("\n".join(faults) or "headers: every declaration says what it needs to")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
