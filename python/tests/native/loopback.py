"""Two ends of a connection in one thread, driven by the readiness of descriptors."""

import gc
import selectors
import socket
import time

from spillway import _native

HOSTS = ["127.0.0.1", "::1"]
PATIENCE_S = 60
TIMEOUT_MS = 30_000


class End:
    """A connection and what came out of it."""

    def __init__(self, connection):
        self.connection = connection
        self.messages = []
        self.error = None

    def receive_all(self):
        """Take what is whole, and mark the connection as wanting more."""
        try:
            while (message := self.connection.receive()) is not None:
                self.messages.append(message)
        except OSError as error:
            self.error = error

    def turn(self, events):
        try:
            if events & selectors.EVENT_WRITE:
                self.connection.on_writable()
        except OSError as error:
            self.error = error
        if events & selectors.EVENT_READ and self.connection.on_readable():
            self.receive_all()


def drive(ends, is_done, patience_s=PATIENCE_S):
    """Turn the ends' readiness into calls until is_done()."""
    deadline = time.monotonic() + patience_s
    for end in ends:
        if end.error is None and not end.connection.connecting:
            end.receive_all()
    while not is_done():
        assert time.monotonic() < deadline, "no progress"
        with selectors.DefaultSelector() as selector:
            for end in ends:
                if end.error is None and (interest := end.connection.interest()):
                    selector.register(end.connection.fileno(), interest, end)
            assert selector.get_map(), [repr(end.error) for end in ends]
            for key, events in selector.select(1):
                key.data.turn(events)


def accept(listener):
    with selectors.DefaultSelector() as selector:
        selector.register(listener.fileno(), selectors.EVENT_READ)
        assert selector.select(PATIENCE_S), "nobody connects"
    connection = listener.accept(TIMEOUT_MS)
    assert connection is not None
    return connection


def connected(host="127.0.0.1"):
    """Two connected ends."""
    listener = _native.Listener(host, 0, 16)
    near = End(_native.Connection.connect(*listener.local(), TIMEOUT_MS))
    far = End(accept(listener))
    drive([near], lambda: not near.connection.connecting)
    listener.close()
    return near, far


def with_raw_peer():
    """An end of ours and a plain socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        end = End(_native.Connection.connect(host, port, TIMEOUT_MS))
        drive([end], lambda: not end.connection.connecting)
        server.settimeout(PATIENCE_S)
        peer, _ = server.accept()
    peer.settimeout(PATIENCE_S)
    return end, peer


def transfer(near, far, frames):
    """Send one message and give what the other end received."""
    near.connection.send(frames)
    far.messages.clear()
    drive([near, far], lambda: far.messages)
    drive([near], lambda: near.connection.queued_bytes() == 0)
    (message,) = far.messages
    far.messages.clear()
    return message


def budget():
    """The bytes that the budget has charged now, by account."""
    gc.collect()
    figures = _native.figures()["budget"]
    return {account: figures[account] for account in ("held", "queued", "in_flight")}
