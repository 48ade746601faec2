"""An embedded broker comes, goes, keeps what it should and leaves nothing else."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millstream.errors import (
    InvalidArgument,
    InvalidConfig,
    InvalidTopic,
    MillstreamError,
    TopicAlreadyExists,
)
from millstream.testing import EmbeddedBroker
from tests.integration.embedded.clients import Confluent
from tests.integration.node.harness import Client as Wire

pytestmark = pytest.mark.integration

client = Confluent()


def _descriptors() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except FileNotFoundError:
            continue  # The one that lists them.
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are listed in /proc")
@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill, EmbeddedBroker.restart])
def test_nothing_is_left_behind(end: object) -> None:
    assert callable(end)
    before, threads = _descriptors(), set(threading.enumerate())

    with EmbeddedBroker() as broker:
        broker.create_topic("topic", partitions=3)
        client.produce(broker.bootstrap_servers, "topic", b"x")
        directory = broker.directory
        end(broker)

    assert not Path(directory).exists()
    assert {each for each in threading.enumerate() if "millstream" in each.name} <= threads
    leaked = {key: path for key, path in _descriptors().items() if before.get(key) != path}
    assert [path for path in leaked.values() if directory in path or "socket" in path] == []


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_data_and_address_stay_from_stop_to_start(end: object) -> None:
    assert callable(end)
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("topic", config={"retention.ms": -1})
        client.produce(servers, "topic", b"kept")

        end(broker)
        host, _, port = servers.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=10)
        broker.start()

        assert broker.bootstrap_servers == servers
        assert client.consume(servers, "topic", 1) == [b"kept"]


def test_a_given_directory_is_kept_for_the_next_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(directory=tmp_path) as broker:
        cluster_id = broker.cluster_id
        broker.create_topic("topic")
        client.produce(broker.bootstrap_servers, "topic", b"kept")

    with EmbeddedBroker(directory=str(tmp_path)) as broker:
        assert broker.cluster_id == cluster_id
        assert client.consume(broker.bootstrap_servers, "topic", 1) == [b"kept"]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory here")
def test_data_may_be_in_memory() -> None:
    with EmbeddedBroker(in_memory=True) as broker:
        assert broker.directory.startswith("/dev/shm")
        broker.create_topic("topic")
        client.produce(broker.bootstrap_servers, "topic", b"x" * 100_000)
        assert client.consume(broker.bootstrap_servers, "topic", 1) == [b"x" * 100_000]


def test_brokers_live_side_by_side() -> None:
    def one(number: int) -> tuple[str, list[str]]:
        with EmbeddedBroker() as broker:
            broker.create_topic(f"topic-{number}")
            both.wait(30)
            return broker.bootstrap_servers, broker.topics()

    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, range(2)))

    assert [topics for _, topics in results] == [["topic-0"], ["topic-1"]]
    assert results[0][0] != results[1][0]


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(InvalidConfig, match=r"num\.partitions"):
        EmbeddedBroker({"num.partitions": "many"}).start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidConfig, match="another process has the port"):
            EmbeddedBroker({"listeners": listeners}).start()
    with (
        EmbeddedBroker(directory=tmp_path),
        pytest.raises(MillstreamError, match="in use by this same process"),
    ):
        EmbeddedBroker(directory=tmp_path).start()

    assert set(threading.enumerate()) == threads


def test_settings_have_kafkas_keys() -> None:
    settings = {"num.partitions": 4, "auto.create.topics.enable": True}
    with EmbeddedBroker(settings) as broker:
        client.produce(broker.bootstrap_servers, "made-by-writing", b"x")
        assert broker.topics() == ["made-by-writing"]


def test_topics_are_made_and_deleted_at_once() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("b", partitions=2)
        broker.create_topic("a", config={"cleanup.policy": "compact"})
        assert broker.topics() == ["a", "b"]
        with pytest.raises(TopicAlreadyExists):
            broker.create_topic("a")
        with pytest.raises(InvalidTopic):
            broker.create_topic("no/topic")

        broker.delete_topics("a", "never-was")
        assert broker.topics() == ["b"]
        broker.faults.drop("Metadata")
        broker.reset()
        assert broker.topics() == []
        assert broker.faults.is_quiet


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (4, "", "log.retention.ms", "1234"),
        (4, "1", "max.connections.per.ip", "77"),
        (4, "", "somebody.elses", "1"),
        (4, "", "min.insync.replicas", "2"),
        (16, "subscription", "interval.ms", "1000"),
        (32, "group", "consumer.session.timeout.ms", "50000"),
    ],
)
def test_a_reset_forgets_what_was_set(kind: int, name: str, key: str, value: str) -> None:
    with EmbeddedBroker() as broker, Wire(broker.bootstrap_servers) as wire:
        node = broker._running().broker
        assert node is not None
        before, topics = node.metadata.config(kind, name), node.dynamic.topics
        assert wire.set_config(kind, name, key, value) == 0
        assert node.metadata.config(kind, name) == {**before, key: value}

        broker.reset()

        assert node.metadata.config(kind, name) == before
        assert node.dynamic.topics == topics


def test_a_broker_that_is_not_running_says_so() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(InvalidArgument, match="not started"):
        broker.create_topic("topic")
    broker.stop()
    with broker:
        with pytest.raises(InvalidArgument, match="started already"):
            broker.start()
        with pytest.raises(InvalidArgument, match="ManualClock"):
            broker.advance(1)
    assert not broker.is_running


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        EmbeddedBroker(directory=tmp_path, in_memory=True)
    with pytest.raises(InvalidArgument, match="give `directory`"):
        EmbeddedBroker({"log.dirs": tmp_path})


def test_a_forked_child_cannot_control_its_parents_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker() as broker:
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            with pytest.raises(InvalidArgument, match="forked child"):
                broker.stop()
            broker.close()
        assert broker.is_running
        assert broker.topics() == []
