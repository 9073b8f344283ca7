"""Values of libraries that Dask has serialisers for, each of which tests make anew, and
how to tell that one came back the same."""

import contextlib

import numpy
import pytest

from message_shapes import noise

ROWS = noise(6000, "i4").reshape(20, 300)
"""What the files have in them."""


def library(name):
    """The module, or a skipped test."""
    return pytest.importorskip(name, reason=f"{name} is not installed here")


@contextlib.contextmanager
def file_of_h5py(path):
    h5py = library("h5py")
    with h5py.File(path, "w") as file:
        file["inner/rows"] = ROWS
    with h5py.File(path, "r") as file:
        yield file


@contextlib.contextmanager
def file_of_netcdf4(path):
    netcdf4 = library("netCDF4")
    with netcdf4.Dataset(path, "w") as file:
        group = file.createGroup("inner")
        group.createDimension("x", ROWS.shape[0])
        group.createDimension("y", ROWS.shape[1])
        group.createVariable("rows", "i4", ("x", "y"))[:] = ROWS
    with netcdf4.Dataset(path) as file:
        yield file


def of_file(open_file, name):
    """What has a name in a file; the file itself for none."""

    @contextlib.contextmanager
    def made(folder):
        with open_file(folder / "file.data") as file:
            yield file[name] if name else file

    return made


def mostly_zero():
    """Large enough for its parts to be sent beside a pickle."""
    array = noise(90_000, "i4").astype("f8")
    array[numpy.arange(array.size) % 7 > 0] = 0
    return array.reshape(300, 300)


def nothing_stored(sparse):
    none = numpy.empty((2, 0), "i8")
    return sparse.COO(none, numpy.empty(0), shape=(3, 4), fill_value=7.5)


def in_memory(name, make):
    @contextlib.contextmanager
    def made(_):
        yield make(library(name))

    return made


def _check_of_file(received, sent):
    assert received.name == sent.name
    root = received if received.name == "/" else received.file
    assert root["inner/rows"][...].tobytes() == ROWS.tobytes()


def _check_of_netcdf4(received, sent):
    if type(sent).__name__ == "Variable":
        rows = received
    else:
        assert received.path == sent.path
        rows = received["rows" if received.path == "/inner" else "inner/rows"]
    assert (rows.name, rows.group().path) == ("rows", "/inner")
    assert rows[...].tobytes() == ROWS.tobytes()


def _check_sparse(received, sent):
    assert (received.dtype, received.shape) == (sent.dtype, sent.shape)
    assert getattr(received, "fill_value", None) == getattr(sent, "fill_value", None)
    assert numpy.array_equal(received.todense(), sent.todense())


KINDS = {
    "h5py file": (of_file(file_of_h5py, ""), _check_of_file),
    "h5py group": (of_file(file_of_h5py, "inner"), _check_of_file),
    "h5py dataset": (of_file(file_of_h5py, "inner/rows"), _check_of_file),
    "netCDF4 file": (of_file(file_of_netcdf4, ""), _check_of_netcdf4),
    "netCDF4 group": (of_file(file_of_netcdf4, "inner"), _check_of_netcdf4),
    "netCDF4 variable": (of_file(file_of_netcdf4, "inner/rows"), _check_of_netcdf4),
    "sparse COO": (
        in_memory("sparse", lambda sparse: sparse.COO(mostly_zero())),
        _check_sparse,
    ),
    "sparse COO, other than zero": (
        in_memory("sparse", lambda sparse: sparse.COO(mostly_zero()) + 1),
        _check_sparse,
    ),
    "sparse COO, nothing stored": (in_memory("sparse", nothing_stored), _check_sparse),
    "sparse GCXS": (
        in_memory("sparse", lambda sparse: sparse.GCXS(mostly_zero())),
        _check_sparse,
    ),
    "scipy csr_matrix": (
        in_memory("scipy.sparse", lambda sparse: sparse.csr_matrix(mostly_zero())),
        _check_sparse,
    ),
    "scipy dok_matrix": (
        in_memory("scipy.sparse", lambda sparse: sparse.dok_matrix(mostly_zero())),
        _check_sparse,
    ),
    "scipy coo_array": (
        in_memory("scipy.sparse", lambda sparse: sparse.coo_array(mostly_zero())),
        _check_sparse,
    ),
}
"""For each kind a context manager that takes a folder and gives a value, and a function
that compares what was received with it."""

BY_REGISTRY = [
    kind for kind in KINDS if "sparse" not in kind and kind != "scipy coo_array"
]
"""Those that Dask's registry takes; the others are pickled."""

NOT_BY_STOCK = ["sparse COO, other than zero", "sparse COO, nothing stored"]
"""Those of which stock Dask sends something else."""


def check_came_back(kind, received, sent):
    assert type(received) is type(sent)
    KINDS[kind][1](received, sent)
