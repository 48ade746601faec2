"""Signals: a stop under load is clean, a second one is at once, others change nothing."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka", reason="a client used only in tests")

from tests.integration.faults.harness import broker_on, is_closed, lines_of, require_calm
from tests.integration.faults.load import Writer, confluent_kafka, read_all
from tests.integration.node.harness import NodeProcess, free_port, running
from tests.waiting import let_time_pass, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

PLACES = [("orders", partition) for partition in range(3)]


def test_a_stop_under_load_is_clean_and_the_next_start_recovers_nothing(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with broker_on(tmp_path, "--listen", address) as broker:
        with broker.client() as client:
            assert client.create_topic("orders", 3, millstream_durability="disk") == 0
        writer = Writer("steady", address, PLACES, 1, **{"enable.idempotence": True})
        writer.start()
        until(lambda: writer.ledger.count >= 500)
        lines = broker.stop()
    require_calm(lines)
    assert lines[-1]["message"] == "stopped"
    assert (tmp_path / ".kafka_cleanshutdown").exists()

    with broker_on(tmp_path, "--listen", address) as broker:
        writer.finish()
        found = read_all(address, PLACES)
        lines = broker.stop()
    assert not any("recovering" in line["message"] for line in lines)
    assert not any("unclean" in line["message"] for line in lines)
    assert writer.ledger.failed == 0
    assert {place: len(records) for place, records in found.items()} == {
        place: len(writer.ledger.promised[place]) for place in PLACES
    }
    for place, records in writer.ledger.promised.items():
        assert found[place] == records


def test_a_stop_answers_fetches_that_wait(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            client.create_topic("orders")
        waiting = _waiting_consumer(broker.address)
        lines = broker.stop()
        waiting.close()

    require_calm(lines)
    assert not any("not answered" in line["message"] for line in lines)


def _waiting_consumer(address: str) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "not used",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 60_000,
            "socket.timeout.ms": 70_000,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    consumer.poll(1)
    return consumer


def test_the_second_signal_ends_a_stop_that_waits(tmp_path: Path) -> None:
    drain = "millstream.shutdown.drain.timeout.ms=60000"
    with broker_on(tmp_path, "--set", drain) as broker:
        with broker.client() as client:
            client.create_topic("orders")
            assert client.produce("orders", b"safe") == (0, 0)
            for _ in range(9):
                client.produce("orders", b"x" * 900_000)
        stuck = _reader_that_stopped(broker.host, broker.port)
        broker.node.signal(signal.SIGTERM)
        until(lambda: broker.said("once more to stop at once"))
        let_time_pass(0.5)
        assert broker.node.is_running(), "it waits for somebody who reads nothing"
        code, log = broker.node.finish(signal.SIGTERM)
        stuck.close()
    assert code == 130
    assert "stopped at once" in log

    with broker_on(tmp_path) as broker, broker.client() as client:
        assert client.values("orders")[0] == b"safe"


def _reader_that_stopped(host: str, port: int) -> socket.socket:
    from tests.integration.faults.test_connections import fetch_frame

    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    made.connect((host, port))
    made.sendall(fetch_frame("orders"))
    made.recv(100)
    return made


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
def test_a_signal_during_the_start_ends_it_and_the_directory_is_good(
    tmp_path: Path, delay_s: float
) -> None:
    node = NodeProcess(tmp_path)
    let_time_pass(delay_s)
    code, log = node.finish(signal.SIGTERM)
    node.close()
    assert code in (0, -signal.SIGTERM, 130), (code, log)
    assert "Traceback" not in log

    with broker_on(tmp_path) as broker:
        broker.still_serves()


def test_a_terminal_that_is_closed_stops_the_broker_in_order(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # The tests may run under nohup.
    try:
        with broker_on(tmp_path) as broker:
            broker.still_serves()
            code, log = broker.node.finish(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert code == 0
    assert any("SIGHUP: stopping" in line["message"] for line in lines_of(log))
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_terminal_that_is_closed_does_not_stop_a_broker_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Inherited, as from nohup.
    try:
        with broker_on(tmp_path) as broker:
            broker.node.signal(signal.SIGHUP)
            broker.still_serves()
            require_calm(broker.stop())
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_client_that_broke_off_does_not_end_the_broker_by_sigpipe(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker:
        broker.node.signal(signal.SIGPIPE)
        broker.still_serves()
        require_calm(broker.stop())


def test_a_port_in_use_and_a_lock_held_are_told_without_touching_anything(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker:
        with running(tmp_path) as second:
            code, log = second.finish()
        assert code == 1
        assert f"in use by another process (pid {broker.node.pid}" in log
        with running(tmp_path / "new", "--listen", broker.address) as second:
            code, log = second.finish()
        assert code == 1
        assert "another process has the port" in log
        assert not (tmp_path / "new").exists()
        with broker.connect() as connection:
            connection.sendall(b"\0\0\0\0")
            assert is_closed(connection)
        broker.still_serves()
        assert lines_of(broker.node.log(), "ERROR") == []
