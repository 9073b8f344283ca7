"""What a header says of the size of its value."""

import pytest
from dask.sizeof import sizeof
from distributed.protocol import to_serialize

from spillway.dask import value_sizes

FRAMES = [b"header", b"frame"]


class Says:
    def __init__(self, size):
        self.size = size

    def __sizeof__(self):
        if isinstance(self.size, BaseException):
            raise self.size
        return self.size


@pytest.mark.parametrize("size", [0, 12, 10**9])
def test_the_size_is_the_one_that_dask_takes(size):
    header = {}
    value_sizes.note(header, Says(size))
    assert value_sizes.of(header, FRAMES) == sizeof(Says(size))


def test_what_is_known_is_not_asked():
    header = {}
    wrapped = to_serialize(Says(ZeroDivisionError("x")))
    assert value_sizes.known(wrapped) is None
    value_sizes.know(wrapped, 12)
    value_sizes.note(header, wrapped.data, value_sizes.known(wrapped))
    assert value_sizes.of(header, FRAMES) == 12


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), SystemExit(3)], ids=["error", "exit"]
)
def test_what_cannot_tell_is_as_large_as_what_came(error):
    header = {}
    value_sizes.note(header, Says(error))
    assert header == {}
    assert value_sizes.of(header, FRAMES) == 11


@pytest.mark.parametrize("said", [-1, 1 << 63, "12", 1.5, None, True])
def test_what_no_size_can_be_is_not_believed(said):
    assert value_sizes.of({value_sizes.KEY: said}, FRAMES) == 11


def test_what_has_data():
    data = {"x": to_serialize(1)}
    for message in (
        {"status": "OK", "data": data},
        {"op": "scatter", "data": data},
        {"op": "update_data", "data": data},
    ):
        assert value_sizes.are_wanted(message)
    for message in (
        {"status": "OK", "data": [to_serialize(1)]},
        {"op": "compute-task", "data": data},
        {"status": "OK"},
        [data],
        None,
    ):
        assert not value_sizes.are_wanted(message)
