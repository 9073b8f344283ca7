"""tools/check_layers.py finds what it says that it finds."""

from pathlib import Path

import check_layers
import pytest

LAYERS = """
# who may include whom
context :
memory  : context
framing : context memory
"""


@pytest.fixture
def tree(tmp_path):
    """A tree without a fault."""
    files = {
        "src/layers.txt": LAYERS,
        "src/context/error.h": '#include "spillway/status.h"\n#include <stdio.h>\n',
        "src/memory/buffer.c": '#include "context/error.h"\n',
        "include/spillway/status.h": "",
        "python/native/module.c": '#include "module.h"\n#include "spillway/status.h"\n',
        "python/native/module.h": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_this_tree_has_no_fault():
    assert check_layers.check(Path(__file__).parents[2]) == []


def test_a_good_tree_has_no_fault(tree):
    assert check_layers.check(tree) == []


FAULTS = {
    "an edge that is not listed": (
        "src/context/error.c",
        '#include "memory/buffer.h"',
        'may not include "memory/buffer.h"',
    ),
    "a folder that is not listed": ("src/shuffle/run.c", "", "shuffle is not in"),
    "a name without its folder": (
        "src/memory/sink.c",
        '#include "buffer.h"',
        'write "folder/buffer.h"',
    ),
    "a file that is not there": (
        "src/memory/sink.c",
        '  #  include "context/none.h"',
        "no such file",
    ),
    "the extension behind the public interface": (
        "python/native/comm_type.c",
        '#include "context/error.h"',
        'may not include "context/error.h"',
    ),
}


@pytest.mark.parametrize(("name", "text", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_bad_file_is_named(tree, name, text, fault):
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    (line,) = check_layers.check(tree)
    assert line.startswith(name) and fault in line


def test_a_cycle_is_shown(tree):
    text = LAYERS.replace("context :", "context : framing")
    (tree / "src/layers.txt").write_text(text)
    (line,) = check_layers.check(tree)
    assert "context -> framing -> context" in line


def test_a_layer_without_a_line_is_named(tree):
    (tree / "src/layers.txt").write_text(LAYERS + "store : platform\n")
    (line,) = check_layers.check(tree)
    assert "platform, which has no line" in line


def test_main_answers_with_its_exit_code(tree, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_layers.py", str(tree)])
    assert check_layers.main() == 0
    (tree / "src/stray").mkdir()
    (tree / "src/stray/file.c").touch()
    assert check_layers.main() == 1
    assert "src/stray/file.c" in capsys.readouterr().out
