#!/usr/bin/env python3
"""Hold the includes of the C sources against src/layers.txt.

    check_layers.py [ROOT]

A layer is a folder of src/. It may include the public headers, itself and the layers
that its line lists; python/native may include the public headers and itself.
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
PUBLIC = "spillway"
NATIVE = Path("python/native")


def read_layers(text: str) -> dict[str, list[str]]:
    """Each layer and those that it may include."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip(): allowed.split() for name, _, allowed in pairs}


def find_cycle(layers: dict[str, list[str]]) -> list[str] | None:
    """Layers that lead back to the first of them, or None."""
    done: set[str] = set()

    def visit(layer: str, path: list[str]) -> list[str] | None:
        if layer in path:
            return [*path[path.index(layer) :], layer]
        if layer in done:
            return None
        for allowed in layers.get(layer, ()):
            cycle = visit(allowed, [*path, layer])
            if cycle:
                return cycle
        done.add(layer)
        return None

    return next(filter(None, (visit(layer, []) for layer in layers)), None)


def check(root: Path) -> list[str]:
    """What is wrong in the tree under root."""
    layers = read_layers((root / "src/layers.txt").read_text())
    faults = [
        f"src/layers.txt: {layer} lists {name}, which has no line"
        for layer, allowed in layers.items()
        for name in allowed
        if name not in layers
    ]
    cycle = find_cycle(layers)
    if cycle:
        faults.append(f"src/layers.txt: a cycle: {' -> '.join(cycle)}")
    for file in sorted((root / "src").rglob("*.[ch]")):
        layer = file.relative_to(root / "src").parts[0]
        if layer not in layers:
            faults.append(f"{file.relative_to(root)}: {layer} is not in src/layers.txt")
            continue
        faults += check_file(root, file, {layer, PUBLIC, *layers[layer]})
    for file in sorted((root / NATIVE).glob("*.[ch]")):
        faults += check_file(root, file, {PUBLIC})
    return faults


def check_file(root: Path, file: Path, allowed: set[str]) -> list[str]:
    """What is wrong with the includes of one file."""
    faults = []
    for name in INCLUDE.findall(file.read_text()):
        folder, slash, _ = name.partition("/")
        if not slash:
            if root / NATIVE in file.parents and (file.parent / name).exists():
                continue  # the extension is one folder, and not in the tree of layers
            faults.append(f'{file.relative_to(root)}: write "folder/{name}"')
        elif folder not in allowed:
            faults.append(f'{file.relative_to(root)}: may not include "{name}"')
        elif not any((root / tree / name).exists() for tree in ("src", "include")):
            faults.append(f'{file.relative_to(root)}: no such file: "{name}"')
    return faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    faults = check(root)
    print("\n".join(faults) or "layers: every include is allowed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
