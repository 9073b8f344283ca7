"""The command `spillway`: run a script with Spillway on, compare it with stock Dask,
and say what is in force."""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from spillway import __version__, process_stats

if TYPE_CHECKING:
    from spillway.compare.comparison import Comparison

MOVED_NOTHING = 3
"""The exit code when the script succeeded and a process moved nothing unexplained."""
NO_STOCK = 6
"""The exit code of compare without an environment to compare with."""


@click.group()
@click.version_option(__version__, prog_name="spillway")
def main() -> None:
    """A native data plane under an unmodified Dask cluster."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT as python would, with Spillway on in it and in all that it starts.

    At the end a table on standard error says what each process moved. The exit code is
    the script's; 3 when that is 0 but a process of the script's own cluster moved
    nothing through Spillway and gives no reason.
    """
    from rich.console import Console

    from spillway import run_report

    # Processes that outlive the script may still be writing.
    with tempfile.TemporaryDirectory(
        prefix="spillway-", ignore_cleanup_errors=True
    ) as directory:
        code = _run_python(script, arguments, directory)
        processes = process_stats.collect(directory)
    sys.stdout.flush()
    run_report.show(processes, Console(stderr=True, highlight=False, markup=False))
    faults = run_report.faults(processes)
    for fault in faults:
        click.echo(f"spillway run: {fault}", err=True)
    sys.exit(MOVED_NOTHING if faults and code == 0 else code)


run.allow_interspersed_args = False  # options after SCRIPT are the script's


def _run_python(script: str, arguments: tuple[str, ...], directory: str) -> int:
    """The script in a process of its own, whose end is what we wait for: what it left
    open is closed by atexit, and it may be killed. Returns its code as a shell has it.
    """
    # -P: the working directory must not come before the packages of the interpreter.
    command = [
        sys.executable,
        "-P",
        "-m",
        "spillway.script_process",
        script,
        *arguments,
    ]
    environment = {**os.environ, process_stats.VARIABLE: directory}
    # A terminal sends Ctrl-C to the script as well, and it is the script's to answer.
    # Handlers, since a child would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    process = subprocess.Popen(command, env=environment)
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def _in_a_folder(
    context: click.Context, parameter: click.Parameter, path: Path | None
) -> Path | None:
    """Said before the runs rather than after them."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    return path


@main.command()
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How often the script runs on each side.",
)
@click.option(
    *("--json", "json_file"),
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_in_a_folder,
    help="Write every run's figures there.",
)
@click.option(
    *("--chart", "chart_file"),
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_in_a_folder,
    help="Draw the medians there, as SVG.",
)
@click.option(
    "--stock-python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The python of an environment without Spillway, in the place of one that is "
    "made with the packages of this one and kept in the cache.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def compare(
    rounds: int,
    json_file: Path | None,
    chart_file: Path | None,
    stock_python: Path | None,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT on stock Dask and on Spillway in turn, and show both side by side.

    The script starts its own cluster, as plain Dask, and prints a line "digest: ..." of
    its answer; without one all of its standard output is compared.

    \b
    The exit code says how far it came:
      0  compared, whatever came out
      2  wrong usage
      3  Spillway's side did not run on Spillway
      4  the script failed
      5  the answers of two runs differ
      6  there is no environment of stock Dask
    """
    from rich.console import Console

    from spillway.compare import bar_chart, comparison_table

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_by_signal)
    try:
        comparison = _compared(rounds, stock_python, script, arguments)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    comparison_table.show(comparison, Console(highlight=False, markup=False))
    if json_file is not None:
        found = comparison_table.as_json(comparison, script, arguments)
        json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if chart_file is not None:
        title = " ".join([os.path.basename(script), *arguments])
        chart_file.write_text(bar_chart.draw(comparison, title), encoding="utf-8")


compare.allow_interspersed_args = False  # options after SCRIPT are the script's


def _exit_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Through all that ends processes on the way."""
    sys.exit(128 + number)


def _compared(
    rounds: int, stock_python: Path | None, script: str, arguments: tuple[str, ...]
) -> "Comparison":
    """What the rounds gave. Where nothing can be compared the process ends here."""
    from spillway.compare import stock_environment
    from spillway.compare.comparison import NOT_ON_SPILLWAY, Comparer, Refused
    from spillway.dask import platform_support

    try:
        unsupported = platform_support.why_unsupported()
        if unsupported is not None:
            raise Refused(NOT_ON_SPILLWAY, unsupported)
        python = stock_python or stock_environment.make(
            stock_environment.pins(), _say_of_compare
        )
        only_here = stock_environment.check(python, script)
        comparer = Comparer(script, arguments, python, _say_of_compare)
        comparison = comparer.run(rounds)
    except stock_environment.NotMade as error:
        _say_of_compare(str(error))
        sys.exit(NO_STOCK)
    except Refused as refusal:
        _say_of_compare(f"nothing to compare: {refusal}")
        sys.exit(refusal.code)
    if only_here:
        comparison.note(f"stock's environment lacks {', '.join(only_here)}")
    return comparison


def _say_of_compare(text: str) -> None:
    click.echo(f"spillway compare: {text}", err=True)


@main.command()
def info() -> None:
    """Print versions, features of this machine, and what is off and why."""
    import spillway
    import spillway.dask

    spillway.dask.enable()
    for name, value in _machine().items():
        click.echo(f"{name:<12} {value}")
    figures = spillway.stats()
    for name, part in figures["parts"].items():
        click.echo(f"{name:<12} {'on' if part['on'] else 'off: ' + part['why_off']}")
    for name, state in figures["hooks"].items():
        if name not in figures["parts"]:
            click.echo(f"  {name:<10} {state}")


def _machine() -> dict[str, str]:
    return {
        "spillway": __version__,
        "libspillway": _library_version(),
        "distributed": metadata.version("distributed"),
        "dask": metadata.version("dask"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "IPv6": _ipv6(),
    }


def _library_version() -> str:
    try:
        from spillway import _native
    except ImportError as error:
        return f"cannot be loaded: {error}"
    return _native.version()


def _ipv6() -> str:
    """Whether a listener on the loopback address can be had: built in is not enough."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"no: {error.strerror}"
    return "yes"
