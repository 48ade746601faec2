"""Clients that vanish, dawdle, come in thousands or come too often."""

from __future__ import annotations

import resource
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.clock import SystemClock
from millstream.protocol.frame import encode_request
from millstream.protocol.messages import FetchRequest, ProduceRequest, fetch, produce
from millstream.records.builder import RecordBatchBuilder
from tests.integration.faults.harness import Broker, broker_on, is_closed, require_calm, vanish
from tests.waiting import let_time_pass, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

IDLE_CONNECTIONS = 5000


def produce_frame(topic: str, value: bytes, correlation_id: int = 1) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(SystemClock().wall_ms(), None, value)
    part = produce.PartitionProduceData(index=0, records=builder.build())
    data = produce.TopicProduceData(name=topic, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    return encode_request(request, 9, correlation_id, "test")


def fetch_frame(topic: str, correlation_id: int = 1, *, max_wait_ms: int = 0) -> bytes:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[fetch.FetchTopic(topic=topic, partitions=[part])],
    )
    return encode_request(request, 12, correlation_id, "test")


def fill(broker: Broker, topic: str, mebibytes: int) -> None:
    with broker.client() as client:
        for _ in range(mebibytes):
            assert client.produce(topic, b"x" * 1_000_000)[0] == 0


def open_sockets(broker: Broker) -> int:
    """How many sockets the broker has; its logs come and go with the topics of other tests."""
    listed = Path(f"/proc/{broker.node.pid}/fd").iterdir()
    return sum(_target(each).startswith("socket:") for each in listed)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # closed since it was listed
        return ""


def test_clients_that_vanish_in_the_middle_of_a_request_leave_nothing(
    broker: Broker, topic: str
) -> None:
    sockets = open_sockets(broker)
    whole = produce_frame(topic, b"x" * 900_000)
    memory = [0, 0]
    # How much waits at the same time, and so the memory, depends on who is quicker. What is never
    # given back would be forty megabytes more with each round.
    while memory[-1] - memory[-2] > 10 << 20 or len(memory) < 5:
        assert len(memory) < 15, f"it grows and grows: {memory}"
        for number in range(100):
            connection = broker.connect()
            connection.sendall(whole[: 4 + number * 8000])
            (vanish if number % 2 else socket.socket.close)(connection)
        broker.still_serves()
        until(lambda: open_sockets(broker) <= sockets)
        memory.append(broker.memory_bytes)

    with broker.client() as client:
        assert client.values(topic) == [], "a half request is none"


def test_clients_that_vanish_in_the_middle_of_a_response_leave_nothing(
    broker: Broker, topic: str
) -> None:
    fill(broker, topic, 8)
    before = open_sockets(broker)
    for number in range(60):
        connection = broker.connect(receive_buffer=8192)
        connection.sendall(fetch_frame(topic))
        assert len(connection.recv(5000)) > 0
        (vanish if number % 2 else socket.socket.close)(connection)

    broker.still_serves()
    until(lambda: open_sockets(broker) <= before)


def test_clients_that_vanish_while_their_fetch_waits_leave_nothing(
    broker: Broker, topic: str
) -> None:
    before = open_sockets(broker)
    connections = [broker.connect() for _ in range(100)]
    for connection in connections:
        connection.sendall(fetch_frame(topic, max_wait_ms=600_000))
    broker.still_serves()
    for connection in connections:
        vanish(connection)

    until(lambda: open_sockets(broker) <= before)
    with broker.client() as client:
        assert client.produce(topic, b"nobody waits") == (0, 0)


def test_a_slow_reader_gets_everything_and_others_do_not_wait(broker: Broker, topic: str) -> None:
    fill(broker, topic, 8)
    memory = broker.memory_bytes
    with broker.connect(receive_buffer=8192) as slow:
        for number in range(20):
            slow.sendall(fetch_frame(topic, number))
        for _ in range(20):
            broker.still_serves()
        assert broker.memory_bytes - memory < 60 << 20, "responses are files, not copies"
        for number in range(20):
            size, correlation_id = struct.unpack(">ii", _receive(slow, 8))
            assert correlation_id == number
            assert size > 8_000_000
            _receive(slow, size - 4)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        assert piece, "the broker closed the connection"
        data += piece
    return bytes(data)


def test_a_reader_that_stopped_is_closed_with_a_line(tmp_path: Path) -> None:
    stall = "millstream.connection.write.stall.max.ms=500"
    with broker_on(tmp_path, "--set", stall) as broker:
        with broker.client() as client:
            client.create_topic("t")
        fill(broker, "t", 8)
        with broker.connect(receive_buffer=8192) as stopped:
            stopped.sendall(fetch_frame("t"))
            until(lambda: broker.said("took nothing of a response", level="INFO"))
        broker.still_serves()
        require_calm(broker.stop())


def test_thousands_of_idle_connections_cost_little_and_new_clients_are_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may have {hard} descriptors, {wanted} are needed")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # A short listen queue makes a client that comes too fast try again after a second.
        queue = ("--set", "socket.listen.backlog.size=1000")
        # The broker sees to its own limit, whatever it was started with.
        with (
            broker_on(tmp_path, *queue, limit="-S -n 256") as broker,
            ExitStack() as connections,
        ):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
            broker.still_serves()
            memory, cpu_ms = broker.memory_bytes, broker.cpu_ms
            for _ in range(IDLE_CONNECTIONS):
                connections.enter_context(broker.connect())
            until(lambda: open_sockets(broker) >= IDLE_CONNECTIONS)
            broker.still_serves()
            per_connection = (broker.memory_bytes - memory) / IDLE_CONNECTIONS
            accepting_us = (broker.cpu_ms - cpu_ms) * 1000 / IDLE_CONNECTIONS
            cpu_ms = broker.cpu_ms
            let_time_pass(3)
            idle_ms = broker.cpu_ms - cpu_ms
            broker.still_serves()
            connections.close()
            until(lambda: open_sockets(broker) < 100)
            require_calm(broker.stop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with capsys.disabled():
        print(  # noqa: T201 - the figures are what this test is for
            f"\n{IDLE_CONNECTIONS} idle connections: {per_connection:.0f} bytes each, "
            f"{accepting_us:.0f} us to accept one, {idle_ms} ms of processor time in 3 s"
        )
    assert per_connection < 16_384
    assert idle_ms <= 50


def test_an_address_has_its_share_of_connections_and_is_told_why(tmp_path: Path) -> None:
    with broker_on(tmp_path, "--set", "max.connections.per.ip=10") as broker:
        sockets = open_sockets(broker)
        with ExitStack() as connections:
            for _ in range(10):
                connections.enter_context(broker.client()).topics()
            for _ in range(200):
                with broker.connect() as refused:
                    assert is_closed(refused)
        until(lambda: open_sockets(broker) <= sockets)
        broker.still_serves()
        lines = broker.stop()

    require_calm(lines)
    said = [line for line in lines if "max.connections.per.ip" in line["message"]]
    assert 1 <= len(said) <= 5
    assert "Refused a connection from 127.0.0.1: it has 10 already" in said[0]["message"]


def test_a_broker_that_is_full_lets_new_clients_wait(tmp_path: Path) -> None:
    with broker_on(tmp_path, "--set", "max.connections=5") as broker:
        with ExitStack() as connections:
            for _ in range(5):
                connections.enter_context(broker.client()).topics()
            waiting = connections.enter_context(broker.client())
            waiting.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                waiting.topics()
        broker.still_serves()
        lines = broker.stop()

    require_calm(lines)
    assert [line["level"] for line in lines if "max.connections is reached" in line["message"]] == [
        "WARNING"
    ]
