"""A node as a process: it comes up, serves, survives, refuses and leaves."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from millstream.protocol.messages import MetadataRequest, metadata
from tests.integration.node.harness import Client, free_port, running
from tests.waiting import let_time_pass, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC, BROKER = 2, 4


def test_a_node_formats_its_directory_serves_and_stops_in_order(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        address = node.until_ready()
        with Client(address) as client:
            assert client.create_topic("orders", 3) == 0
            assert client.topics()["orders"][1] == 3
            assert client.produce("orders", b"a", b"b") == (0, 0)
            assert client.values("orders") == [b"a", b"b"]
        code, log = node.finish(signal.SIGTERM)

    assert code == 0
    assert "for the new cluster" in log
    assert log.rstrip().endswith("stopped")
    assert "ERROR" not in log
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_reproduces_everything(tmp_path: Path, how: signal.Signals) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        cluster_id = client.cluster_id()
        assert client.create_topic("orders", 2, retention_ms="12345") == 0
        assert client.set_config(TOPIC, "orders", "max.message.bytes", "5000") == 0
        assert client.set_config(BROKER, "", "producer.id.expiration.ms", "70000") == 0
        assert client.set_config(BROKER, "1", "log.retention.ms", "80000") == 0
        assert client.create_topic("defaults") == 0
        assert client.produce("orders", b"before") == (0, 0)
        topics = client.topics()
        node.finish(how)

    with running(tmp_path) as node, Client(node.until_ready()) as client:
        assert client.cluster_id() == cluster_id
        assert client.topics() == topics
        assert client.config(TOPIC, "orders", "retention.ms") == "12345"
        assert client.config(TOPIC, "orders", "max.message.bytes") == "5000"
        assert client.config(TOPIC, "defaults", "retention.ms") == "80000"
        assert client.config(BROKER, "1", "producer.id.expiration.ms") == "70000"
        assert client.values("orders") == [b"before"]
        assert client.produce("orders", b"after") == (0, 1)
        # The settings hold, they are not only told.
        assert client.produce("orders", b"x" * 6000)[0] == 10


def test_acknowledged_records_and_topics_survive_kill_9_again_and_again(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    for round_number in range(4):
        with running(tmp_path) as node, Client(node.until_ready()) as client:
            if round_number:
                assert client.values("ledger") == acknowledged
                assert set(client.topics()) == {"ledger"} | {
                    f"topic-{number}" for number in range(round_number)
                }
            else:
                assert client.create_topic("ledger") == 0
            for number in range(50):
                value = b"%d %d" % (round_number, number)
                assert client.produce("ledger", value)[0] == 0
                acknowledged.append(value)
            assert client.create_topic(f"topic-{round_number}") == 0
            node.finish(signal.SIGKILL)


def test_the_first_signal_stops_and_the_second_stops_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        client.create_topic("orders")
        node.signal(signal.SIGTERM)

        def has_ended() -> bool:
            node.signal(signal.SIGTERM)
            return not node.is_running()

        until(has_ended)
        code, _ = node.finish()
    # The last: for a moment, while one handler takes the other's place, the system's is there.
    assert code in (0, 130, -signal.SIGTERM)

    with running(tmp_path) as node, Client(node.until_ready()) as client:
        assert "orders" in client.topics()


def test_ctrl_c_stops_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        node.until_ready()
        code, log = node.finish(signal.SIGINT)

    assert code == 0
    assert "SIGINT: stopping" in log


def test_two_nodes_do_not_share_a_directory(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        first.until_ready()
        with running(tmp_path) as second:
            code, log = second.finish()

        assert code == 1
        assert f"in use by another process (pid {first.pid}" in log
        assert "Traceback" not in log
        assert first.is_running()


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        node.until_ready()
        node.finish(signal.SIGTERM)

    with running(tmp_path, "--set", "node.id=2") as node:
        code, log = node.finish()

    assert code == 1
    assert "belongs to node 1, this is node 2" in log


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for data in (first, second):
        with running(data) as node:
            node.until_ready()
            node.finish(signal.SIGTERM)

    with running(first, "--set", f"log.dirs={first},{second}") as node:
        code, log = node.finish()

    assert code == 1
    assert "belong to several clusters" in log


def test_a_directory_that_lost_its_owner_is_not_taken_for_a_new_cluster(tmp_path: Path) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        client.create_topic("orders")
        node.finish(signal.SIGTERM)
    (tmp_path / "meta.properties").unlink()

    with running(tmp_path) as node:
        code, log = node.finish()

    assert code == 1
    assert "has logs (orders-0) but no meta.properties" in log


def test_a_port_in_use_is_said_before_anything_is_touched(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(tmp_path / "data", "--listen", f"127.0.0.1:{port}") as node:
            code, log = node.finish()

    assert code == 1
    assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}" in log
    assert "another process has the port" in log
    assert "Traceback" not in log
    assert not (tmp_path / "data").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")

    with running(blocked / "data") as node:
        code, log = node.finish()

    assert code == 1
    assert f"{blocked}/data" in log
    assert "Traceback" not in log


def test_settings_come_from_file_environment_and_arguments(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=PLAINTEXT://localhost:{port}\nnum.partitions=2\nlog.retention.ms=1000\n"
        "log.retension.ms=1\n"
    )
    arguments = ("--config", str(file), "--set", "num.partitions=5")
    environment = {
        "MILLSTREAM_NUM_PARTITIONS": "3",
        "MILLSTREAM_LOG_RETENTION_MS": "2000",
        "MILLSTREAM_LOG_FORMAT": "json",
    }

    with running(tmp_path / "data", *arguments, environment=environment) as node:
        assert node.until_ready() == f"localhost:{port}"
        with Client(f"localhost:{port}") as client:
            assert client.create_topic("orders", -1) == 0
            assert client.topics()["orders"][1] == 5
            assert client.config(TOPIC, "orders", "retention.ms") == "2000"
        with socket.create_connection(("localhost", port)) as stray:
            stray.sendall(b"GET / HTTP/1.1\r\n\r\n")
            peer = "{}:{}".format(*stray.getsockname()[:2])
            assert stray.recv(1) == b""
        code, log = node.finish(signal.SIGTERM)

    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"time_ms", "level", "part", "message"} <= lines[0].keys()
    assert peer in [line.get("peer") for line in lines if line["part"] == "network"]
    assert f"localhost:{port}" in [line.get("bootstrap_servers") for line in lines]
    warnings = [line["message"] for line in lines if line["level"] == "WARNING"]
    assert "the setting log.retension.ms is not known: did you mean log.retention.ms?" in warnings


def test_limits_of_connections_change_while_the_node_runs(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        address = node.until_ready()
        with Client(address) as client:
            assert client.set_config(BROKER, "", "max.connections.per.ip", "1") == 0
            with Client(address) as second, pytest.raises(OSError, match=r"closed|reset"):
                second.topics()
            assert client.set_config(BROKER, "", "max.connections.per.ip", "2") == 0
            with Client(address) as second:
                second.topics()


def test_a_setting_that_keeps_clients_out_is_overridden_by_a_start(tmp_path: Path) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        assert client.set_config(BROKER, "", "max.connections", "0") == 40
        assert client.set_config(BROKER, "", "max.connections", "1") == 0
    override = ("--override-dynamic", "max.connections=2")
    with running(tmp_path, *override) as node:
        address = node.until_ready()
        with Client(address) as client, Client(address) as second:
            assert client.config(BROKER, "1", "max.connections") == "1"
            assert second.set_config(BROKER, "", "max.connections", "5") == 0
        _, log = node.finish(signal.SIGTERM)

    assert "overridden while this process runs: max.connections=2" in log


def test_a_listener_on_every_address_says_what_clients_are_told(tmp_path: Path) -> None:
    arguments = ("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1")
    with running(tmp_path, *arguments) as node:
        told, _, rest = node.until_ready().partition(" ")
        with Client(told) as client:
            answer = client.ask(MetadataRequest(topics=[]), 12, metadata.MetadataResponse)

    assert rest == "(listens on every address)"
    assert [f"{each.host}:{each.port}" for each in answer.brokers] == [told]


def test_a_controller_alone_becomes_ready_too(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text("process.roles=controller\n")
    with running(tmp_path / "data", "--config", str(file)) as node:
        assert node.until_ready().startswith("localhost:")
        code, log = node.finish(signal.SIGTERM)

    assert code == 0
    assert log.index("this node is the active controller") < log.index("ready:")


def test_listen_works_with_the_file_that_apache_kafka_comes_with(tmp_path: Path) -> None:
    file, controller = tmp_path / "server.properties", free_port()
    file.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.bootstrap.servers=localhost:{controller}\n"
        f"listeners=PLAINTEXT://:9092,CONTROLLER://:{controller}\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        f"advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
        "num.network.threads=3\n"
        "log.dirs=/tmp/kraft-combined-logs\n"
        "offsets.topic.replication.factor=1\n"
        "log.retention.hours=168\n"
    )
    arguments = ("--config", str(file), "--listen", "127.0.0.1:0")
    with running(tmp_path / "data", *arguments) as node:
        address = node.until_ready()
        assert address.startswith("127.0.0.1:")
        with Client(address) as client:
            assert client.create_topic("orders") == 0
            (broker,) = client.ask(
                MetadataRequest(topics=[]), 12, metadata.MetadataResponse
            ).brokers
            assert f"{broker.host}:{broker.port}" == address


def test_a_program_learns_from_json_that_the_node_is_ready(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--json") as node:
        ready = json.loads(node.first_line())
        with Client(ready["bootstrap_servers"]) as client:
            assert client.cluster_id() == ready["cluster_id"]
        assert (ready["ready"], ready["node_id"], ready["pid"]) == (True, 1, node.pid)
        assert ready["data"] == [str(tmp_path / "data")]
        code, log = node.finish(signal.SIGTERM)

    assert code == 0
    assert json.loads(log.splitlines()[-1])["message"] == "stopped"


def test_a_node_that_should_be_protected_does_not_start_without(tmp_path: Path) -> None:
    listeners = "listeners=SASL_PLAINTEXT://localhost:0"
    with running(tmp_path / "data", "--set", listeners, "--set", "super.users=User:me") as node:
        code, log = node.finish()

    assert code == 2
    assert "super.users=...: must be left out: this version has no TLS, SASL or ACLs" in log
    assert "listeners=SASL_PLAINTEXT://localhost:0: must be PLAINTEXT" in log
    assert not (tmp_path / "data").exists()


def test_wrong_settings_end_in_one_error_without_a_start(tmp_path: Path) -> None:
    arguments = ("--set", "num.partitions=0", "--set", "log.retention.ms=x")
    with running(tmp_path / "data", *arguments) as node:
        code, log = node.finish()

    assert code == 2
    assert "2 invalid settings" in log
    assert "num.partitions=0: must be at least 1" in log
    assert "log.retention.ms=x" in log
    assert not (tmp_path / "data").exists()


def test_a_node_with_other_voters_makes_no_cluster_up(tmp_path: Path) -> None:
    voters = "controller.quorum.voters=1@localhost:9093,2@localhost:9193"
    with running(tmp_path / "data", "--set", voters) as node:
        code, log = node.finish()

    assert code == 1
    assert "this node belongs to a cluster with others" in log
    assert "millstream storage format --cluster-id ID" in log


def test_an_idle_node_uses_no_processor_time(tmp_path: Path) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        client.create_topic("orders", 10)
        before = _cpu_ticks(node.pid)
        let_time_pass(3)
        used = _cpu_ticks(node.pid) - before
        node.finish(signal.SIGTERM)

    assert used <= 1, f"{used} ticks of 10 ms in 3 s"


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
