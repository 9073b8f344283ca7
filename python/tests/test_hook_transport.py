"""The scheme tcp is taken over, and given back."""

from distributed.comm.registry import backends, get_backend

from spillway.dask import hook_transport
from spillway.dask.backends import TakeoverBackend


def test_install_takes_tcp_over_and_remove_restores_the_same_object():
    stock = dict(backends)
    hook_transport.install()
    assert isinstance(get_backend("tcp"), TakeoverBackend)
    assert {k: v for k, v in backends.items() if k != "tcp"} == {
        k: v for k, v in stock.items() if k != "tcp"
    }
    hook_transport.remove()
    assert backends == stock
    assert backends["tcp"] is stock["tcp"]


def test_remove_leaves_a_backend_that_somebody_else_has_put_there(monkeypatch):
    monkeypatch.setitem(backends, "tcp", backends["tcp"])
    hook_transport.install()
    theirs = object()
    backends["tcp"] = theirs
    hook_transport.remove()
    assert backends["tcp"] is theirs


def test_check_finds_the_installed_dask_to_match():
    assert hook_transport.check() is None
