"""Lives of a selector's connections that must not end in freed memory: processes for tests.

`test_socket_lives` runs them with memory that is overwritten when it is freed, so that whoever
still uses it is seen.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.network.client.native_selector import NativeSelector
from millstream.network.client.selector import Connected, Disconnected
from tests.unit.accel.sink_bench import SinkBench
from tests.waiting import let_time_pass, until

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 20.0


def main(which: str) -> None:
    """Run one of them."""
    {"forked": forked, "writing": writing, "shut_down": shut_down}[which]()


def connected(selector: NativeSelector, server: socket.socket, number: int) -> socket.socket:
    """The other end of a new connection."""
    selector.connect(number, *server.getsockname())
    assert selector.poll(int(WAIT_S * 1000)) == [Connected(number)]
    peer, _ = server.accept()
    peer.settimeout(WAIT_S)
    return peer


def open_sockets() -> int:
    """How many sockets this process has."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += str(each.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def inside(slow: Path) -> Path:
    """The file that tells that a thread is in `sendmsg`."""
    return slow.with_name(slow.name + ".in")


def while_sending(slow: Path, action: Callable[[], object]) -> int:
    """Make the next `sendmsg` slow: act while a thread is in it, a little later let it go on.

    In a process of its own, whose id it gives, for the thread that sends may have the GIL.
    """
    slow.touch()
    child = os.fork()
    if child:
        return child
    while not inside(slow).exists():
        os.sched_yield()
    action()
    let_time_pass(0.2)  # For the other threads to act on it; if they do not, nothing is shown.
    slow.unlink()
    os._exit(0)


def forked() -> None:
    """A child holds the socket of a connection that its parent closes; then the peer sends."""
    server = socket.create_server(("127.0.0.1", 0))
    selector = NativeSelector()
    peer = connected(selector, server, 1)
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        before = open_sockets()
        selector.close(1)
        until(lambda: open_sockets() == before - 1)
        assert peer.recv(1) == b"", "the peer does not hear of it while the child lives"
        other = connected(selector, server, 2)
        other.sendall(b"\0\0\0\4abcd")
        [received] = selector.poll(int(WAIT_S * 1000))
        assert received[0] == 2
        selector.shutdown()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def writing() -> None:
    """A connection ends while a thread is in the middle of sending over it."""
    slow = Path(os.environ["SLOW_SENDMSG"])
    server = socket.create_server(("127.0.0.1", 0))
    selector = NativeSelector()
    peer = connected(selector, server, 1)
    before = open_sockets()
    child = while_sending(slow, lambda: peer.shutdown(socket.SHUT_RDWR))
    selector.send(1, [b"x" * 100])
    os.waitpid(child, 0)
    [event] = selector.poll(int(WAIT_S * 1000))
    assert isinstance(event, Disconnected), event
    until(lambda: open_sockets() == before - 1)
    selector.shutdown()


def shut_down() -> None:
    """A selector is shut down while a thread without the GIL is in the middle of sending."""
    slow = Path(os.environ["SLOW_SENDMSG"])
    with SinkBench(linger_ms=60_000) as bench:
        assert bench.grant()
        bench.send(b"x")
        child = while_sending(slow, lambda: None)
        sending = threading.Thread(
            target=bench.accumulator.begin_flush, kwargs={"sends_here": True}
        )
        sending.start()
        until(inside(slow).exists)
        bench.selector.shutdown()
        sending.join(WAIT_S)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1])
