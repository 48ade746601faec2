"""What is no request: the connection is closed, the log says why once, and nobody else notices."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults.harness import Broker, broker_on, is_closed, require_calm
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

HTTP = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: probe\r\n\r\n"
TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, -1)


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


NOT_KAFKA = {
    HTTP: "it sent an HTTP request",
    TLS: "it began a TLS handshake",
    b"SSH-2.0-OpenSSH_9.7\r\n": "it sent an SSH greeting",
    b"\xff\xff\xff\xfe": "it announced a request of -2 bytes",
    b"\0\0\0\0": "too short for a header",
    b"\x7f\xff\xff\xff" + header(3, 9): "socket.request.max.bytes is",
}
NOT_SERVED = {
    "unknown key": (frame(header(4711, 0)), "API key 4711"),
    "unknown version": (frame(header(3, 99)), "version 99"),
    "negative key": (frame(header(-1, 0)), "is not served here"),
    "torn body": (frame(header(3, 1) + b"\x7f\xff\xff\xff"), "Metadata"),
}


def test_what_is_not_the_protocol_closes_its_connection_with_a_warning(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker:
        for sent in NOT_KAFKA:
            with broker.connect() as connection:
                connection.sendall(sent)
                assert is_closed(connection)
        broker.still_serves()
        lines = broker.stop()

    require_calm(lines)
    warnings = [line["message"] for line in lines if line["level"] == "WARNING"]
    for expected, warning in zip(NOT_KAFKA.values(), warnings, strict=True):
        assert warning.startswith("Closed the connection from 127.0.0.1:")
        assert expected in warning


@pytest.mark.parametrize("kind", NOT_SERVED)
def test_a_request_that_is_not_served_closes_its_connection_with_a_warning(
    tmp_path: Path, kind: str
) -> None:
    sent, expected = NOT_SERVED[kind]
    with broker_on(tmp_path) as broker:
        with broker.connect() as connection:
            connection.sendall(sent)
            assert is_closed(connection)
        broker.still_serves()
        lines = broker.stop()

    require_calm(lines)
    (line,) = [line for line in lines if line["level"] == "WARNING"]
    assert line["part"] == "network"
    assert expected in line["message"]


def test_noise_of_every_kind_hurts_nobody(broker: Broker) -> None:
    random = Random(1)
    for _ in range(300):
        with broker.connect() as connection:
            connection.sendall(random.randbytes(random.randint(1, 3000)))
    for _ in range(100):
        # A good beginning: what looks like a request of a real API.
        content = header(random.randint(0, 92), random.randint(0, 13)) + random.randbytes(100)
        with broker.connect() as connection:
            connection.sendall(frame(content))
            connection.settimeout(0.02)
            try:
                connection.recv(1000)
            except (TimeoutError, ConnectionResetError):
                continue
    broker.still_serves()


def test_a_flood_of_garbage_does_not_flood_the_log(tmp_path: Path) -> None:
    connections = 2000
    # With the usual 50, now and then one is turned away and comes again after a second.
    with broker_on(tmp_path, "--set", "socket.listen.backlog.size=4096") as broker:
        for number in range(connections):
            with broker.connect() as connection:
                connection.sendall((HTTP, TLS, b"\xff" * 20, frame(header(4711, 0)))[number % 4])
        broker.still_serves()
        written = len(broker.node.log())
        lines = broker.stop()

    require_calm(lines)
    warnings = [line["message"] for line in lines if line["level"] == "WARNING"]
    assert 4 <= len(warnings) <= 40, "a line of each kind, then one in ten seconds"
    assert written < 20_000


def test_half_a_frame_waits_for_its_other_half(broker: Broker) -> None:
    with broker.connect() as connection:
        request = frame(header(18, 0, correlation_id=77))
        connection.sendall(request[:3])
        broker.still_serves()
        connection.sendall(request[3:7])
        broker.still_serves()
        connection.sendall(request[7:])
        size, correlation_id = struct.unpack(">ii", connection.recv(8))
    assert size > 100
    assert correlation_id == 77


def test_half_a_frame_that_stays_half_is_closed_when_it_was_idle_too_long(tmp_path: Path) -> None:
    with broker_on(tmp_path, "--set", "connections.max.idle.ms=500") as broker:
        with broker.connect() as connection:
            connection.sendall(frame(header(18, 0))[:9])
            assert is_closed(connection)
        broker.still_serves()
        until(lambda: broker.said("Closed the connection", "nothing was received", level="INFO"))
        require_calm(broker.stop())


def test_a_huge_frame_costs_no_memory_until_it_comes(broker: Broker) -> None:
    before = broker.memory_bytes
    connections = [broker.connect() for _ in range(50)]
    for connection in connections:
        # 50 times 90 MiB are announced, and ten bytes sent.
        connection.sendall(struct.pack(">i", 90 << 20) + header(0, 9))
    broker.still_serves()
    grown = broker.memory_bytes - before
    for connection in connections:
        connection.close()

    assert grown < 20 << 20


def test_a_version_of_api_versions_that_nobody_knows_is_answered_in_version_0(
    broker: Broker,
) -> None:
    with broker.connect() as connection:
        connection.sendall(frame(header(18, 99, correlation_id=5)))
        _, correlation_id, error_code = struct.unpack(">iih", connection.recv(10))
        connection.sendall(frame(header(18, 0, correlation_id=6)))
    assert (correlation_id, error_code) == (5, 35)
