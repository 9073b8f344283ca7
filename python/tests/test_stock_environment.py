"""The environment of the stock side: made without a network here, from a wheel that is
made here."""

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from spillway.compare import stock_environment
from spillway.compare.stock_environment import NotMade


def write_wheel(folder, name, version):
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version!r}\n")
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")


DISTRIBUTED = [f"distributed=={metadata.version('distributed')}"]


@pytest.fixture(scope="module", autouse=True)
def wheels(tmp_path_factory):
    """Where pip looks, and nowhere else; the cache is empty at first."""
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder, "distributed", metadata.version("distributed"))
    write_wheel(folder, "click", "0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield folder


def make(packages):
    said = []
    return stock_environment.make(packages, said.append), said


@pytest.fixture(scope="module")
def made(wheels):
    """An environment with Dask's package alone, and what was said as it was made."""
    return make(DISTRIBUTED)


def test_pins_are_those_of_this_environment_without_spillway():
    pins = stock_environment.pins()
    assert f"click=={metadata.version('click')}" in pins
    assert not any(pin.startswith("spillway") for pin in pins)


def test_it_is_made_once_and_is_stock(made, tmp_path, monkeypatch):
    python, said = made
    (line,) = said
    assert "1 packages" in line and os.environ["XDG_CACHE_HOME"] in line
    only_here = stock_environment.check(python, str(tmp_path / "script.py"))
    assert "click" in only_here and not {"spillway", "pip"} & {*only_here}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # it cannot be made again
    assert make(DISTRIBUTED) == (python, [])


def test_other_packages_are_another_environment():
    homes = {stock_environment.home_of(pins) for pins in (["a==1"], ["a==2"])}
    assert len(homes) == 2


def test_one_that_was_interrupted_is_made_anew():
    nothing = ["# nothing"]
    rest = stock_environment.home_of(nothing) / "lib" / "rest"
    rest.parent.mkdir(parents=True)
    rest.touch()
    python, said = make(nothing)
    assert said and python.exists() and not rest.exists()


def test_what_pip_cannot_install_is_said():
    with pytest.raises(NotMade, match="nowhere==3") as caught:
        make(["nowhere==3"])
    assert "--stock-python" in str(caught.value)
    assert stock_environment.home_of(["nowhere==3"]).exists()
    with pytest.raises(NotMade):  # what is there of it is not taken for all
        make(["nowhere==3"])


def test_without_pip_it_is_said_what_helps(tmp_path, monkeypatch):
    home = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    monkeypatch.setattr(sys, "executable", str(home / "bin" / "python"))
    with pytest.raises(NotMade, match="No module named pip") as caught:
        stock_environment.pins()
    assert "--stock-python" in str(caught.value)


def test_one_that_has_spillway_is_not_stock(tmp_path):
    with pytest.raises(NotMade, match="can import spillway"):
        stock_environment.check(Path(sys.executable), str(tmp_path / "script.py"))


def test_a_script_beside_spillway_is_no_stock(made, tmp_path):
    (tmp_path / "spillway").mkdir()
    with pytest.raises(NotMade, match="the directory of the script"):
        stock_environment.check(made[0], str(tmp_path / "script.py"))


def test_other_versions_and_no_dask_are_no_match(tmp_path):
    python, _ = make(["click==0.0.1"])
    with pytest.raises(NotMade, match=r"click 0\.0\.1 and not") as caught:
        stock_environment.check(python, str(tmp_path / "script.py"))
    assert "no distributed" in str(caught.value)
