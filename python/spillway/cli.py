"""The command `spillway`: run a script with Spillway on, and say what is in force."""

import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from importlib import metadata

import click

from spillway import __version__, process_stats

MOVED_NOTHING = 3
"""The exit code when the script succeeded and a process moved nothing unexplained."""


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
