"""Meetings: arguments, who keeps whom alive, and connections that meet there."""

import gc
import os
import select
import shutil
import tempfile

import pytest
from loopback import PATIENCE_S, TIMEOUT_MS, budget
from samples import some_bytes

from spillway import _native

COMPLETION = 4
BODY = 300_000
BY_ADDRESS, BY_DESCRIPTOR, BY_STREAM = 1, 2, 3
NONCE = b"a nonce, of 16.."


@pytest.fixture
def parent():
    """A directory for meetings, in which nothing is left."""
    directory = tempfile.mkdtemp(prefix="spw", dir="/tmp")
    yield directory
    gc.collect()
    left = os.listdir(directory)
    shutil.rmtree(directory)
    assert left == []


class Pair:
    """Two connections that expect each other, driven by hand."""

    def __init__(self, meetings):
        self.meetings = meetings
        self.reasons = []
        self.completions = _native.Completions(2)
        listener = _native.Listener("127.0.0.1", 0, 16)
        self.near = _native.Connection.connect(
            *listener.local(), TIMEOUT_MS, completions=self.completions
        )
        assert select.select([listener.fileno()], [], [], PATIENCE_S)[0]
        self.far = listener.accept(TIMEOUT_MS, completions=self.completions)
        while self.near.connecting:
            assert select.select([], [self.near.fileno()], [], PATIENCE_S)[1]
            self.near.on_writable()
        listener.close()

    def meet(self):
        path = self.meetings.path()
        self.near.meet(self.meetings, b"n" * 16, path, b"f" * 16)
        self.far.meet(self.meetings, b"f" * 16, path, b"n" * 16)

    def step(self):
        """Wait for whatever comes next, and do what it asks for."""
        reading, writing = [self.completions.fileno(), self.meetings.fileno()], []
        ends = {end.fileno(): end for end in (self.near, self.far)}
        for fileno, end in ends.items():
            reading += [fileno] * (end.interest() & 1)
            writing += [fileno] * (end.interest() >> 1 & 1)
        readable, writeable, _ = select.select(reading, writing, [], PATIENCE_S)
        assert readable or writeable, "a wake-up was lost"
        while self.completions.next() is not None:
            pass
        if self.meetings.fileno() in readable:
            self.reasons.append(self.meetings.on_readable())
        for fileno, end in ends.items():
            if fileno in readable:
                end.on_readable()
            if fileno in writeable:
                end.on_writable()

    def transfer(self, frames):
        self.near.send(frames)
        while (message := self.far.receive()) is None:
            self.step()
        while self.near.queued_bytes() or self.near.interest() & COMPLETION:
            self.step()
        return message

    def close(self):
        self.near.close()
        self.far.close()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (1,),
        (b"/tmp",),
        ("/tmp", "best"),
        ("/tmp", 1, True, 4),
        ("/tmp\0x",),
    ],
)
def test_arguments_that_are_none(arguments):
    with pytest.raises((TypeError, ValueError)):
        _native.Meetings(*arguments)


@pytest.mark.parametrize("best", [-1, 4, 1 << 20])
def test_ways_that_there_are_not(best, parent):
    with pytest.raises(ValueError, match="way"):
        _native.Meetings(parent, best)


def test_a_directory_that_is_not_there():
    with pytest.raises(OSError, match="No such file"):
        _native.Meetings("/nowhere/at/all")
    with pytest.raises(OSError, match="place to meet"):
        _native.Meetings("/tmp/" + "x" * 100)


def test_the_place_is_there_as_long_as_somebody_needs_it(parent):
    meetings = _native.Meetings(parent)
    path = meetings.path()
    assert path.startswith(parent)
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    pair = Pair(meetings)
    pair.meet()
    del meetings, pair.meetings
    assert os.path.exists(path)
    pair.far.close()
    assert os.path.exists(path)
    pair.close()
    assert not os.path.exists(path)  # whoever keeps closed ones


def test_what_meet_takes(parent):
    meetings = _native.Meetings(parent)
    pair = Pair(meetings)
    near = pair.near
    for own, peers in ((NONCE[:15], NONCE), (NONCE, NONCE + b"x"), (b"", NONCE)):
        with pytest.raises(ValueError, match="16 bytes"):
            near.meet(meetings, own, "/tmp/x", peers)
    with pytest.raises(ValueError, match="path"):
        near.meet(meetings, NONCE, "/" + "x" * 107, NONCE)
    with pytest.raises(ValueError, match="null"):
        near.meet(meetings, NONCE, "/tmp/\0x", NONCE)
    with pytest.raises(TypeError):
        near.meet(None, NONCE, "/tmp/x", NONCE)
    near.meet(meetings, NONCE, "/tmp/x", NONCE)
    with pytest.raises(ValueError, match="once"):
        near.meet(meetings, NONCE, "/tmp/x", NONCE)
    near.close()
    with pytest.raises(_native.SpillwayError):
        near.meet(meetings, NONCE, "/tmp/x", NONCE)
    pair.close()


def test_bodies_by_address(parent):
    pair = Pair(_native.Meetings(parent))
    pair.meet()
    before = _native.figures()["same_host"]
    bodies = [some_bytes(BODY + i) for i in range(4)]
    for body in bodies:
        assert pair.transfer([b"head", body, b"tail"]) == [b"head", body, b"tail"]
    after = _native.figures()["same_host"]
    assert after["by_address"] - before["by_address"] == sum(map(len, bodies[1:]))
    assert pair.reasons in ([None], [None, None])
    pair.close()


def test_frames_are_kept_until_the_peer_has_them(parent):
    pair = Pair(_native.Meetings(parent))
    pair.meet()
    pair.transfer([some_bytes(BODY)])
    frame = bytearray(some_bytes(BODY))
    pair.near.send([frame])
    with pytest.raises(BufferError):
        frame.append(1)
    assert budget()["queued"] == len(frame)
    while pair.far.receive() is None:
        pair.step()
    while pair.near.queued_bytes() or pair.near.interest() & COMPLETION:
        pair.step()
    frame.append(1)
    kept = bytearray(some_bytes(BODY))
    pair.near.send([kept])
    pair.near.close()
    kept.append(1)
    pair.close()


@pytest.mark.parametrize("best", [BY_DESCRIPTOR, BY_STREAM])
def test_a_lesser_way_as_asked_for_is_no_news(best, parent):
    pair = Pair(_native.Meetings(parent, best=best, uses_descriptors=True))
    pair.meet()
    before = _native.figures()["same_host"]
    for i in range(3):
        body = some_bytes(BODY + i)
        assert pair.transfer([body]) == [body]
    after = _native.figures()["same_host"]
    assert after["by_address"] == before["by_address"]
    assert after["refusals"] == before["refusals"]
    by_descriptor = after["by_descriptor"] - before["by_descriptor"]
    assert by_descriptor == (2 * BODY + 3 if best == BY_DESCRIPTOR else 0)
    assert set(pair.reasons) == {None}
    pair.close()


def test_why_a_peer_cannot_be_met_is_told_once(parent):
    meetings = _native.Meetings(parent)
    pair = Pair(meetings)
    pair.near.meet(meetings, NONCE, f"{parent}/nobody", NONCE)
    before = _native.figures()["same_host"]["refusals"]
    for _ in range(3):
        body = some_bytes(BODY)
        assert pair.transfer([body]) == [body]
    assert _native.figures()["same_host"]["refusals"] == before + 1
    while not pair.reasons:
        pair.step()
    assert len(pair.reasons) == 1
    assert "No such file" in pair.reasons[0]
    assert meetings.on_readable() is None
    pair.close()
