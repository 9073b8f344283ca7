"""Runs modules of Dask's tests on stock Dask and over Spillway at the same time, and
again alone what does not pass.

    run_modules.py SUITE --tests-from TEXT [--whole] [--docs FILE] MODULE...

SUITE has the environments that tools/dask_suite.sh made. A module runs in one process
on each plane, each plane on a processor of its own. Then every test that is not fine on
both planes runs alone, on one plane after the other, until it is or three times: a
failure that does not come again is no difference between the planes.

SUITE/large/PLANE/ has the outcomes and the log of each run; module_report.py says what
they amount to.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import module_report
from module_report import PLANES, Runs

TIMES_ALONE = 3
PYTEST_ON = Path(__file__).with_name("pytest_on.sh")


class Suite:
    """Where the environments are, and the outcomes go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.runs = folder / "large"

    async def run(
        self, plane: str, name: str, tests: str, processors: Iterable[int]
    ) -> bool:
        """Whether pytest came to its end; what it found is in the file of its outcomes.

        Parameters
        ----------
        name
            Of this run's files.
        processors
            Those that it may use.
        """
        process = await asyncio.create_subprocess_exec(
            *("taskset", "--cpu-list", ",".join(map(str, processors))),
            *(PYTEST_ON, self._folder, plane, self.runs / plane / name, tests),
            start_new_session=True,
        )
        try:
            return await process.wait() == 0
        finally:
            _end_group(process.pid)


def _end_group(group: int) -> None:
    """End what a run has left, or all of it when we are interrupted."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing is left


async def run_modules(
    suite: Suite, plane: str, modules: Iterable[str], processor: int
) -> bool:
    ended_well = True
    for module in modules:
        print(f"== {plane}: {module}", flush=True)
        ended_well &= await suite.run(plane, Path(module).stem, module, [processor])
    return ended_well


async def run_again(
    run_alone: Callable[[str, str, str], Awaitable[bool]], read: Callable[[], Runs]
) -> bool:
    """Run alone what has not passed on both planes.

    Parameters
    ----------
    run_alone
        Called with a plane, a name for the run and a test.
    read
        Gives all the outcomes so far.
    """
    ended_well = True
    for attempt in range(1, TIMES_ALONE + 1):
        tests = module_report.unsettled(read())
        for number, test in enumerate(tests, 1):
            for plane in PLANES:
                print(f"== {plane}, alone, {attempt}: {test}", flush=True)
                ended_well &= await run_alone(plane, f"alone-{attempt}-{number}", test)
    return ended_well


async def run_all(suite: Suite, modules: list[str]) -> bool:
    processors = sorted(os.sched_getaffinity(0))
    own = zip(PLANES, (processors[0], processors[-1]), strict=True)
    ended_well = await asyncio.gather(
        *(run_modules(suite, plane, modules, processor) for plane, processor in own)
    )
    again = await run_again(
        lambda plane, name, test: suite.run(plane, name, test, processors),
        lambda: module_report.read_runs(suite.runs),
    )
    return all([*ended_well, again])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--tests-from", required=True)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--docs", type=Path)
    parser.add_argument("modules", nargs="+")
    options = parser.parse_args(arguments)

    suite = Suite(options.suite)
    for plane in PLANES:
        for file in (suite.runs / plane).glob("*.jsonl"):
            file.unlink()
    ended_well = asyncio.run(run_all(suite, options.modules))
    reported = module_report.report(
        suite.runs, options.tests_from, options.whole, options.docs
    )
    return reported if ended_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
