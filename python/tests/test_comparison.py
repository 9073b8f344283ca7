"""The rounds of a comparison, and when it is refused."""

import ast
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest

from spillway.compare import comparison, side, spillway_proof
from spillway.compare.answer import Answer
from spillway.compare.comparison import SPILLWAY, STOCK, Comparer, Comparison, Refused
from spillway.compare.run_figures import FIGURES


def ran(output=b"digest: 1\n", code=0, errors_end="", notes=()):
    """What measure() gives."""
    answer = Answer()
    answer.feed(output)
    answer.end()
    watch = SimpleNamespace(
        cpu_s=lambda root, roles: {"client": 1.0},
        worker_peak_bytes=lambda root, roles: None,
        peak_bytes=5,
    )
    return SimpleNamespace(
        **dict(pid=1, code=code, wall_s=2.0, cpu_s=3.0, written_bytes=0),
        **dict(socket_bytes=None, answer=answer, output_end=output.decode()),
        **dict(errors_end=errors_end),
        **dict(watch=watch, notes=list(notes)),
    )


@pytest.fixture
def sides(monkeypatch):
    """What the runs give, by side, instead of running; then which side ran when."""
    given, order = {STOCK: [], SPILLWAY: []}, []

    def measure(command, environment, limit_s):
        name = SPILLWAY if "spillway.script_process" in command else STOCK
        order.append((name, command, environment))
        return given[name].pop(0) if given[name] else ran()

    monkeypatch.setattr(side, "measure", measure)
    monkeypatch.setattr(spillway_proof, "why_not", lambda left, roles: None)
    return SimpleNamespace(given=given, order=order)


def compare(rounds):
    comparer = Comparer("s.py", ("-x",), Path("/stock/bin/python"), lambda text: None)
    return comparer.run(rounds)


def refused(rounds=1):
    with pytest.raises(Refused) as caught:
        compare(rounds)
    return caught.value.code, str(caught.value)


def test_sides_run_in_turn_and_first_in_turn(sides):
    found = compare(3)
    assert [side for side, *_ in sides.order] == [
        *(STOCK, SPILLWAY),
        *(SPILLWAY, STOCK),
        *(STOCK, SPILLWAY),
    ]
    assert [list(one) for one in found.rounds][1] == [SPILLWAY, STOCK]
    assert found.values(STOCK, "wall_s") == [2.0] * 3
    assert found.values(STOCK, "socket_bytes") is None
    assert {figure.name for figure in FIGURES} == set(found.rounds[0][STOCK])


def test_the_commands_and_what_they_get(sides):
    with dask.config.set({"distributed.worker.preload": ["theirs"]}):
        compare(1)
    (_, stock, stock_environment), (_, ours, environment) = sides.order
    assert stock == ["/stock/bin/python", "s.py", "-x"]
    assert ours == [sys.executable, "-P", "-m", "spillway.script_process", "s.py", "-x"]
    assert stock_environment["PATH"].split(os.pathsep)[0] == "/stock/bin"
    assert environment["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)
    preloads = "DASK_DISTRIBUTED__WORKER__PRELOAD"
    theirs, probe = ast.literal_eval(stock_environment[preloads])
    assert theirs == "theirs" and probe.endswith("/loop_probe.py")
    assert ast.literal_eval(environment[preloads])[2:] == ["spillway.dask.preload"]
    assert "SPILLWAY_STATS_DIR" in environment
    assert "SPILLWAY_STATS_DIR" not in stock_environment


def test_a_script_that_fails_is_told_with_the_end_of_its_errors(sides):
    sides.given[SPILLWAY] = [ran(), ran(code=7, errors_end="KeyError: 'lost'\n")]
    code, text = refused(rounds=2)
    assert code == comparison.SCRIPT_FAILED
    assert "round 2 of 2, spillway" in text
    assert "exit code 7" in text and text.endswith("KeyError: 'lost'")


def test_answers_that_differ_are_told_by_run(sides):
    sides.given[STOCK] = [ran(), ran(b"digest: 2\n")]
    code, text = refused(rounds=2)
    assert code == comparison.ANSWERS_DIFFER
    assert "round 1 of 2, stock and of round 2 of 2, stock differ" in text
    assert "'digest: 1' and 'digest: 2'" in text


def test_a_run_that_was_not_on_spillway_is_refused(sides, monkeypatch):
    monkeypatch.setattr(spillway_proof, "why_not", lambda left, roles: "it was stock")
    assert refused() == (
        comparison.NOT_ON_SPILLWAY,
        "round 1 of 1, spillway: it was stock",
    )


def test_notes_are_told_once(sides):
    sides.given[STOCK] = [ran(b"", notes=["a"]), ran(b"", notes=["a", "b"])]
    sides.given[SPILLWAY] = [ran(b""), ran(b"")]
    notes = compare(2).notes
    assert notes[1:] == ["a", "b"] and "printed nothing" in notes[0]


def test_values_are_those_of_both_sides():
    found = Comparison([{STOCK: {"a": 1, "b": 2}, SPILLWAY: {"a": 3, "b": None}}])
    assert found.values(SPILLWAY, "a") == [3]
    assert found.values(STOCK, "b") is None
