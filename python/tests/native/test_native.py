"""The module: its stub, its figures, its state, and what it leaves behind."""

import ast
import gc
import importlib.util
import pathlib
import sys
import weakref
import zlib

import pytest
from loopback import (
    drive,
    transfer,
    with_raw_peer,
)
from samples import prelude, some_bytes, value

import spillway._native
from spillway import _native


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_module_has_what_its_stub_promises_and_nothing_else():
    stub = pathlib.Path(spillway._native.__file__).with_name("_native.pyi")
    promised = {
        node.name: node
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_"
    }
    assert public(vars(_native)) == set(promised)
    for name, node in promised.items():
        member = getattr(_native, name)
        assert member.__doc__
        if isinstance(member, type) and member is not _native.SpillwayError:
            methods = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
            assert public(vars(member)) == public(methods)
    assert issubclass(_native.SpillwayError, OSError)


def test_figures_count_messages_and_bytes(pair):
    before = _native.figures()
    near, far = pair
    sent = near.connection.send([b"head", bytearray(1000)])
    drive([near, far], lambda: far.messages)
    after = _native.figures()
    for figure, change in {
        "messages_sent": 1,
        "messages_received": 1,
        "bytes_sent": sent,
        "bytes_received": sent,
    }.items():
        assert after[figure] - before[figure] == change
    near.connection.close()
    assert _native.figures()["connections_closed"] > before["connections_closed"]


def test_each_module_object_has_a_state_of_its_own(pair):
    spec = importlib.util.spec_from_file_location("spillway._native", _native.__file__)
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    assert other.Buffer is not _native.Buffer
    near, _ = pair
    near.connection.send([b"head"])
    assert _native.figures()["messages_sent"] > 0
    assert other.figures()["messages_sent"] == 0
    view = other.decompress("zlib", [zlib.compress(b"alive")])
    is_gone = weakref.ref(other)
    del other, spec
    gc.collect()
    assert is_gone() is not None
    assert view == b"alive"
    del view
    gc.collect()
    assert is_gone() is None


def steps_without_memory(call, prepare=lambda: None):
    """Let allocation N of Python's fail, for all N until none is left to fail."""
    testcapi = pytest.importorskip("_testcapi")
    for n in range(1, 1000):
        prepare()
        testcapi.set_nomemory(n, n + 1)
        try:
            call()
        except MemoryError:
            continue
        finally:
            testcapi.remove_mem_hooks()
        return n
    pytest.fail("still no success")


def test_python_out_of_memory(pair):
    near, far = pair
    frame, strided = bytearray(5000), memoryview(bytes(100))[::2]
    message = [b"head", frame, strided, b"", *value([b"a", b"b"])]
    packed = [zlib.compress(b"a"), zlib.compress(b"b")]

    def message_is_whole():
        assert far.connection.receive() is None
        near.connection.send(message)
        assert near.connection.queued_bytes() == 0
        while not far.connection.on_readable():
            pass

    assert steps_without_memory(lambda: near.connection.send(message)) > 4
    frame.append(1)
    drive([near, far], lambda: far.messages)
    steps = steps_without_memory(far.connection.receive, message_is_whole)
    assert steps > 10
    assert steps_without_memory(lambda: _native.decompress("zlib", packed)) > 2
    assert steps_without_memory(_native.figures) > 20
    assert steps_without_memory(near.connection.peer) > 1
    assert transfer(near, far, [b"still works"]) == [b"still works"]


def blocks_after(rounds):
    """How many blocks of Python's memory many rounds leave behind."""
    rounds(20)
    gc.collect()
    before = sys.getallocatedblocks()
    rounds(200)
    gc.collect()
    return sys.getallocatedblocks() - before


def test_messages_leave_nothing_behind(pair):
    payload, strided = bytearray(5000), memoryview(bytes(400))[::2]
    frames = [some_bytes(9), payload, strided, memoryview(payload), some_bytes(3000)]
    references = [sys.getrefcount(frame) for frame in frames]
    frames.append(b"")

    def rounds(count):
        for _ in range(count):
            transfer(*pair, frames)
            with pytest.raises(TypeError):
                pair[0].connection.send([b"head", payload, None])

    assert blocks_after(rounds) < 100
    del frames[-1]
    assert [sys.getrefcount(frame) for frame in frames] == references


def test_failed_connections_leave_nothing_behind():
    def rounds(count):
        for _ in range(count):
            end, peer = with_raw_peer()
            with peer:
                peer.sendall(prelude(3, 5) + b"abcde")
            drive([end], lambda end=end: end.error)

    assert blocks_after(rounds) < 100
