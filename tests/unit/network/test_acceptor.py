"""Taking connections off the queue when the machine or the settings are at their limit."""

from __future__ import annotations

import errno
import itertools
import socket
from typing import TYPE_CHECKING, Any, cast

from millstream.network.server import NO_RESPONSE
from millstream.network.server.acceptor import Acceptor
from millstream.network.server.connection_quotas import ConnectionQuotas
from millstream.network.server.descriptors import DescriptorReserve
from tests.unit.network.fakes import FakeLoop, World

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Listening:
    """A listening socket with errors in its queue."""

    def __init__(self, errors: list[OSError]) -> None:
        self.errors = errors
        self.is_closed = False

    def accept(self) -> tuple[object, tuple[str, int]]:
        """The next error; then nothing is in the queue."""
        raise self.errors.pop(0) if self.errors else BlockingIOError()

    def close(self) -> None:
        """Remember."""
        self.is_closed = True


class WatchingLoop(FakeLoop):
    """Remembers who wants to read."""

    def __init__(self) -> None:
        super().__init__()
        self.reader: Callable[[], object] | None = None

    def add_reader(self, _: object, callback: Callable[[], object]) -> None:
        """Remember."""
        assert self.reader is None
        self.reader = callback

    def remove_reader(self, _: object) -> None:
        """Forget."""
        self.reader = None


def make(errors: list[OSError], **settings: Any) -> tuple[Acceptor, Listening, WatchingLoop]:
    """An acceptor that was started."""
    world = World(lambda _: NO_RESPONSE, **settings)
    loop, listening = WatchingLoop(), Listening(errors)
    world.processor.loop = cast("Any", loop)
    quotas = ConnectionQuotas(world.config)
    acceptor = Acceptor(
        cast("Any", listening),
        world.service,
        world.processor,
        quotas,
        DescriptorReserve(),
        itertools.count(1),
        is_protected=True,
    )
    acceptor.start()
    return acceptor, listening, loop


def test_out_of_descriptors_it_waits_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    acceptor, _, loop = make([OSError(errno.EMFILE, "Too many open files")])
    assert loop.reader is not None

    loop.reader()
    assert loop.reader is None
    assert "Too many open files" in caplog.text
    acceptor.resume()
    assert loop.reader is None
    loop.timers[0].callback()

    assert loop.reader is not None


def test_connections_wait_while_only_the_reserve_is_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    acceptor, listening, loop = make([])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        accepts = [(ours, ("127.0.0.1", 1))]
        monkeypatch.setattr(listening, "accept", lambda: accepts.pop())
        monkeypatch.setattr(listening, "fileno", theirs.fileno, raising=False)
        monkeypatch.setattr(DescriptorReserve, "has", lambda *_: True)
        assert loop.reader is not None
        loop.reader()
        assert loop.reader is None
        assert ours.fileno() == -1, "it is closed"
        assert "Few descriptors are left" in caplog.text

        acceptor.start()
        loop.reader()
        assert loop.reader is None, "nothing is taken off the queue"

        monkeypatch.setattr(DescriptorReserve, "has", lambda *_: False)
        monkeypatch.setattr(listening, "accept", lambda: listening.__class__.accept(listening))
        acceptor.start()
        loop.reader()
        assert loop.reader is not None


def test_a_connection_that_was_aborted_in_the_queue_is_skipped() -> None:
    _, _, loop = make([ConnectionAbortedError()])
    assert loop.reader is not None

    loop.reader()

    assert loop.reader is not None
    assert loop.timers == []


def test_without_anyone_to_make_way_even_brokers_wait(caplog: pytest.LogCaptureFixture) -> None:
    acceptor, _, loop = make([], max_connections=1)
    acceptor._quotas.admit("SSL", "127.0.0.1")
    assert loop.reader is not None

    loop.reader()
    assert loop.reader is None
    assert "max.connections is reached" in caplog.text
    acceptor.resume()

    assert loop.reader is not None


def test_a_stopped_acceptor_does_not_come_back() -> None:
    acceptor, listening, loop = make([OSError(errno.ENFILE, "Too many open files")])
    assert loop.reader is not None
    loop.reader()

    acceptor.stop()
    acceptor.stop()
    acceptor.resume()
    loop.timers[0].callback()

    assert loop.timers[0].is_cancelled
    assert listening.is_closed
    assert loop.reader is None
