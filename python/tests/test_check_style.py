"""tools/check_style.py finds what it says that it finds."""

from pathlib import Path

import check_style
import pytest


def write(root, name, text=""):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def function(lines):
    return "int f(void)\n{\n" + "    x();\n" * lines + "}\n"


def test_this_tree_has_no_fault():
    assert check_style.check(Path(__file__).parents[2]) == []


@pytest.mark.parametrize("call", sorted(check_style.BANNED))
def test_a_banned_call_is_named_with_its_line(tmp_path, call):
    write(tmp_path, "src/memory/buffer.c", f'/* a\n   b */\nx = {call} ("a");\n')
    (line,) = check_style.check(tmp_path)
    assert line == f"src/memory/buffer.c:3: {call}() is banned"


ALLOWED = {
    "a comment": "/* malloc(1)\n free(2) */ // atoi(3)\n",
    "a string": 'say("call free(x) \\" malloc(1)");\n',
    "a longer name": "spw_budget_free(x); xmalloc(1);\n",
    "a member": "ops->free(x); ops.malloc(1);\n",
    "a name alone": "release = free;\n",
}


@pytest.mark.parametrize("text", ALLOWED.values(), ids=ALLOWED)
def test_what_only_looks_like_a_banned_call(tmp_path, text):
    write(tmp_path, "src/memory/buffer.c", text)
    assert check_style.check(tmp_path) == []


def test_the_default_allocator_may_allocate_and_no_more(tmp_path):
    write(tmp_path, "src/context/context.c", "malloc(1);\nstrcpy(a, b);\n")
    (line,) = check_style.check(tmp_path)
    assert "strcpy" in line


def test_a_long_function_is_named(tmp_path):
    limit = check_style.MAX_FUNCTION_LINES
    write(tmp_path, "src/memory/buffer.c", function(limit))
    assert check_style.check(tmp_path) == []
    write(tmp_path, "src/memory/buffer.c", function(limit + 1))
    (line,) = check_style.check(tmp_path)
    assert line.startswith("src/memory/buffer.c:2: a function of 61 lines")


def test_a_long_table_is_none(tmp_path):
    table = "static const int t[] = {\n" + "    1,\n" * 100 + "};\n"
    write(tmp_path, "src/memory/buffer.c", table)
    assert check_style.check(tmp_path) == []


def test_a_long_file_is_named(tmp_path):
    write(tmp_path, "src/memory/buffer.c", "\n" * check_style.MAX_FILE_LINES)
    assert check_style.check(tmp_path) == []
    write(tmp_path, "src/memory/buffer.c", "\n" * (check_style.MAX_FILE_LINES + 1))
    (line,) = check_style.check(tmp_path)
    assert "601 lines" in line


def test_one_name_for_two_files_is_a_fault(tmp_path):
    for name in ("python/spillway/comm.py", "python/tests/comm.py"):
        write(tmp_path, name)
    (line,) = check_style.check(tmp_path)
    assert "python/spillway/comm.py, python/tests/comm.py" in line


def test_names_that_python_fixes_may_repeat(tmp_path):
    for folder in ("python/spillway", "python/spillway/dask"):
        write(tmp_path, f"{folder}/__init__.py")
    assert check_style.check(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    ["src/utils/x.c", "src/memory/buffer_helpers.c", "python/spillway/common.py"],
)
def test_a_name_that_says_nothing_is_a_fault(tmp_path, name):
    write(tmp_path, name)
    (line,) = check_style.check(tmp_path)
    assert line.startswith(name) and "does not say" in line
