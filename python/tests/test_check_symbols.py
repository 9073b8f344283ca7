"""tools/check_symbols.py, on libraries that the compiler makes for it."""

import subprocess

import check_symbols
import pytest


@pytest.fixture
def library(tmp_path):
    """Compile a shared library with these functions, and say where it is."""

    def build(*functions):
        path = tmp_path / "lib.so"
        code = "".join(f"void {name}(void) {{}}\n" for name in functions)
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-o", path, "-"]
        subprocess.run(command, input=code, text=True, check=True)
        return str(path)

    return build


@pytest.fixture
def promised(tmp_path):
    path = tmp_path / "symbols.txt"
    path.write_text("spw_one\nspw_two\n")
    return path


def test_what_was_promised_passes(library, promised, capsys):
    assert check_symbols.main([library("spw_one", "spw_two")], promised) == 0
    assert "2 exported" in capsys.readouterr().out


def test_a_symbol_that_is_gone_fails_and_cannot_be_accepted(library, promised, capsys):
    path = library("spw_one")
    assert check_symbols.main([path], promised) == 1
    assert "- spw_two" in capsys.readouterr().out
    assert check_symbols.main([path, "--accept"], promised) == 1
    assert "spw_two" in promised.read_text()


def test_a_new_symbol_fails_until_it_is_accepted(library, promised, capsys):
    path = library("spw_one", "spw_two", "spw_new")
    assert check_symbols.main([path], promised) == 1
    assert "+ spw_new" in capsys.readouterr().out
    assert check_symbols.main([path, "--accept"], promised) == 0
    assert promised.read_text() == "spw_new\nspw_one\nspw_two\n"
    assert check_symbols.main([path], promised) == 0


def test_a_symbol_without_our_prefix_fails_and_cannot_be_accepted(
    library, promised, capsys
):
    path = library("spw_one", "spw_two", "stray")
    assert check_symbols.main([path, "--accept"], promised) == 1
    assert "! stray" in capsys.readouterr().out
    assert "stray" not in promised.read_text()


def test_static_functions_and_versions_do_not_count(tmp_path, promised):
    script, path = tmp_path / "map", tmp_path / "lib.so"
    script.write_text("SPW_0 { global: spw_*; local: *; };")
    code = "void spw_one(void) {} void spw_two(void) {} void inner(void) {}"
    command = ["gcc", "-shared", "-fPIC", f"-Wl,--version-script={script}"]
    command += ["-x", "c", "-o", str(path), "-"]
    subprocess.run(command, input=code, text=True, check=True)
    assert check_symbols.main([str(path)], promised) == 0
