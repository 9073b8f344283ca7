#!/usr/bin/env python3
"""The rules of the C sources that no compiler or formatter knows.

    check_style.py [ROOT]

Calls that are banned, sizes of files and functions, names of files.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

C_FOLDERS = ("src", "include", "python/native")
FOLDERS = ("src", "include", "python", "tests", "examples", "benchmarks", "tools")

ALLOCATION = {"malloc", "calloc", "realloc", "free"}
BANNED = ALLOCATION | {"sprintf", "strcpy", "strcat", "atoi", "gets", "strtok"}
MAY_ALLOCATE = {
    "src/context/context.c",  # the allocator that a context has when it is given none
    "src/context/budget.c",  # a budget is older than every context that borrows it
}
CALL = re.compile(r"(?<![\w.>])(\w+)\s*\(")
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

HOMELESS = re.compile(r"(.*_)?(utils?|common|misc|helpers?|base)$")
SHARED_NAMES = {"__init__.py", "__main__.py", "conftest.py", "run.sh"}
"""Names that Python, pytest or the command of a folder fix."""


def blank(match: re.Match[str]) -> str:
    """Take out a comment or string and keep its lines."""
    return "\n" * match[0].count("\n")


def banned_calls(name: str, text: str) -> Iterator[str]:
    banned = BANNED - ALLOCATION if name in MAY_ALLOCATE else BANNED
    code = COMMENT_OR_STRING.sub(blank, text)
    for number, line in enumerate(code.splitlines(), 1):
        for call in CALL.findall(line):
            if call in banned:
                yield f"{name}:{number}: {call}() is banned"


def sizes(name: str, text: str) -> Iterator[str]:
    """A function is what stands between braces in the first column; a table's opening
    brace is not there."""
    lines = text.splitlines()
    if name.endswith(".c") and len(lines) > MAX_FILE_LINES:
        yield f"{name}: {len(lines)} lines, more than {MAX_FILE_LINES}"
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            length = number - start - 1
            if length > MAX_FUNCTION_LINES:
                yield (
                    f"{name}:{start}: a function of {length} lines, "
                    f"more than {MAX_FUNCTION_LINES}"
                )
            start = None


def names(root: Path) -> Iterator[str]:
    """A name is enough to find a file, and says what is in it."""
    places = defaultdict(list)
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".c", ".h", ".py", ".sh"):
                relative = file.relative_to(root)
                places[file.name].append(str(relative))
                for part in (*relative.parts[:-1], file.stem):
                    if HOMELESS.match(part):
                        yield f"{relative}: {part!r} does not say what is in it"
    for name, files in places.items():
        if len(files) > 1 and name not in SHARED_NAMES:
            yield f"one name for several files: {', '.join(files)}"


def check(root: Path) -> list[str]:
    """What is wrong in the tree under root."""
    faults = list(names(root))
    for folder in C_FOLDERS:
        for file in sorted((root / folder).rglob("*.[ch]")):
            name, text = str(file.relative_to(root)), file.read_text()
            faults += banned_calls(name, text)
            faults += sizes(name, text)
    return faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    faults = check(root)
    print("\n".join(faults) or "style: nothing to say")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
