"""A broker process whose log is read line by line, and connections that send whatever they like."""

from __future__ import annotations

import json
import signal
import socket
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.clock import SystemClock
from tests.integration.node.harness import Client, NodeProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator


_clock = SystemClock()


class Broker:
    """A node that writes its log as JSON."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.address = node.until_ready()
        self.host, _, port = self.address.rpartition(":")
        self.port = int(port)

    def lines(self, level: str | None = None) -> list[dict[str, Any]]:
        """What it wrote so far; of one level, if that is given."""
        return lines_of(self.node.log(), level)

    def said(self, *words: str, level: str | None = None) -> list[str]:
        """The messages that have all these words."""
        messages = [line["message"] for line in self.lines(level)]
        return [each for each in messages if all(word in each for word in words)]

    def connect(self, *, receive_buffer: int = 0) -> socket.socket:
        """A connection of bytes."""
        made = socket.socket()
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.settimeout(30)
        made.connect((self.host, self.port))
        return made

    def client(self) -> Client:
        """A connection of requests."""
        return Client(self.address)

    def still_serves(self) -> None:
        """A well-behaved client gets everything it asks for."""
        with self.client() as client:
            client.create_topic("well-behaved")
            code, offset = client.produce("well-behaved", b"fine")
            assert code == 0
            assert client.values("well-behaved", offset) == [b"fine"]

    def stop(self) -> list[dict[str, Any]]:
        """Stop in order; all that it wrote."""
        code, log = self.node.finish(signal.SIGTERM)
        assert code == 0, log
        return lines_of(log)

    # What it costs.

    @property
    def cpu_ms(self) -> int:
        """Processor time so far."""
        fields = Path(f"/proc/{self.node.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 10

    @property
    def memory_bytes(self) -> int:
        """Memory in use."""
        return int(Path(f"/proc/{self.node.pid}/statm").read_text().split()[1]) * 4096


@contextmanager
def broker_on(data: Path, *arguments: str, limit: str | None = None) -> Iterator[Broker]:
    """A broker that is killed at the end, if it still runs."""
    with running(data, "--set", "millstream.log.format=json", *arguments, limit=limit) as node:
        yield Broker(node)


def lines_of(log: str, level: str | None = None) -> list[dict[str, Any]]:
    """The lines of a log in JSON; what another program wrote into it is left out."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if level in (None, line["level"])]


def require_calm(lines: list[dict[str, Any]]) -> None:
    """Nothing in the log is the broker's own fault."""
    bad = [line for line in lines if line["level"] in ("ERROR", "CRITICAL") or "traceback" in line]
    assert not bad, bad


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker ends the connection without another byte; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def vanish(connection: socket.socket) -> None:
    """Leave with a reset, as a killed process with unread data does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
