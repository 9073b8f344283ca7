"""Where the processor's time of a pipeline goes, by layer, on stock and on Spillway.

    python benchmarks/pipeline_layers.py [NAME ...] --stock-python PYTHON

Runs each pipeline under py-spy (`pip install py-spy`), once on each side, from the
start of its processes to their end; the shares stay in benchmarks/results/layers.json.
py-spy sees the threads that run Python, not those of the C library. A sample belongs to
the innermost function of the data plane, Dask, or the pipeline that is under way: what
pandas does for a shuffle is the shuffle's.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import tempfile

from spillway.compare.side import Side, spillway_side, stock_side

HERE = pathlib.Path(__file__).resolve().parent
KEPT = HERE / "results" / "layers.json"
SIDES = ("stock", "Spillway")
DATA, TASKS, SCHEDULING, GRAPH, START, OTHER = LAYERS = (
    "data plane",
    "tasks",
    "scheduling and loops",
    "graphs",
    "imports",
    "other",
)
DATA_PLANE = re.compile(
    r"^(spillway/|zict/|msgpack/|dask/sizeof|distributed/"
    r"(comm|protocol|shuffle|spill|batched|sizeof|diskutils|worker_memory)\b)"
)
PLACE = re.compile(r"\(([^()]+?)(?::\d+)?\)$")
HZ = 50


def layer_of(stack: list[str]) -> str:
    """Of a stack's functions, outermost first, as py-spy writes them."""
    places = [found[1] for frame in stack if (found := PLACE.search(frame))]
    if any("importlib" in place for place in places):
        return START
    runs_a_task = any(frame.startswith("_run_task") for frame in stack)
    for place in reversed(places):
        if DATA_PLANE.match(place):
            return DATA
        if place.startswith("distributed/"):
            return SCHEDULING
        if place.startswith("dask/"):
            return TASKS if runs_a_task else GRAPH
        if (HERE / "pipelines" / place).exists():
            return TASKS if runs_a_task else OTHER
    return TASKS if runs_a_task else OTHER


def shares(folded: str) -> dict[str, float]:
    """By layer, of all samples: lines of a stack and how often it was seen."""
    counted: collections.Counter[str] = collections.Counter()
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        counted[layer_of(stack.split(";"))] += int(count)
    return {layer: counted[layer] / counted.total() for layer in LAYERS}


def profile(name: str, side: Side) -> dict[str, float]:
    with tempfile.NamedTemporaryFile() as folded:
        subprocess.run(
            [
                *("py-spy", "record", "--subprocesses", "--rate", str(HZ)),
                *("--format", "raw", "--output", folded.name, "--"),
                *side.command(str(HERE / "pipelines" / f"{name}.py")),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return shares(pathlib.Path(folded.name).read_text())


def table() -> str:
    """Shares of samples, stock / Spillway."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    lines = [f"| pipeline | {' | '.join(LAYERS)} |", "|---" * (len(LAYERS) + 1) + "|"]
    for name, found in kept.items():
        cells = [
            " / ".join(f"{found[side][layer]:.0%}" for side in SIDES)
            for layer in LAYERS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    scripts = (HERE / "pipelines").glob("*.py")
    names = sorted(one.stem for one in scripts if one.stem != "pipeline")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *names], default=[])
    parser.add_argument("--stock-python", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    sides = [stock_side(arguments.stock_python), spillway_side()]
    for name in arguments.names or names:
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        kept[name] = {
            title: profile(name, side) for title, side in zip(SIDES, sides, strict=True)
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    print(table())


if __name__ == "__main__":
    main()
