"""Log directories: described, and partitions moved between them."""

from __future__ import annotations

import errno
import logging

import pytest

from millstream.errors import (
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from millstream.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from millstream.types import TopicPartition
from tests.unit.server.harness import Broker
from tests.unit.server.requests import move_request
from tests.unit.storage.batches import batch_bytes

ORDERS = TopicPartition("orders", 0)


def test_directories_show_what_they_hold() -> None:
    broker = Broker()
    broker.create("orders", 2)
    broker.produce()

    (everything,) = broker.ask(DescribeLogDirsRequest(topics=None)).results
    asked = DescribableLogDirTopic(topic="orders", partitions=[1])
    (one,) = broker.ask(DescribeLogDirsRequest(topics=[asked])).results

    sizes = {p.partition_index: p.partition_size for p in everything.topics[0].partitions}
    assert everything.log_dir == "/disk1"
    assert everything.total_bytes >= everything.usable_bytes > 0
    assert sizes == {0: len(batch_bytes()), 1: 0}
    assert [p.partition_index for p in one.topics[0].partitions] == [1]


def test_a_failed_directory_shows_its_error() -> None:
    broker = Broker(directories=("/disk1", "/disk2"))
    broker.create("orders", 4)
    log = broker.logs.get(ORDERS)
    assert log is not None
    broker.logs.note_error(log, OSError(errno.EIO, "the disk is gone"))

    results = broker.ask(DescribeLogDirsRequest(topics=None)).results

    assert sorted(each.error_code for each in results) == [0, KafkaStorageError.code]


def test_a_partition_moves_while_it_is_written_to() -> None:
    broker = Broker(directories=("/disk1", "/disk2"))
    broker.create()
    broker.produce()
    old = broker.logs.directory_of(ORDERS).path
    new = "/disk2" if old == "/disk1" else "/disk1"

    answer = broker.ask(move_request(new)).results[0].partitions[0]
    broker.produce()
    broker.settle()
    broker.produce()

    assert answer.error_code == 0
    assert broker.logs.directory_of(ORDERS).path == new
    records = broker.fetch(0).responses[0].partitions[0].records or b""
    assert len(records) == 3 * len(batch_bytes())
    told = [r for r, _ in broker.channel.requests if isinstance(r, AssignReplicasToDirsRequest)]
    assert [each.directories[0].id for each in told] == [
        broker.logs.directory_of(ORDERS).directory_id
    ]


def test_a_partition_that_is_there_already_stays() -> None:
    broker = Broker()
    broker.create()

    answer = broker.ask(move_request("/disk1")).results[0].partitions[0]

    assert answer.error_code == 0
    assert not broker.events


@pytest.mark.parametrize(
    ("path", "topic", "code"),
    [
        ("/nowhere", "orders", LogDirNotFound.code),
        ("/disk1", "nobody", UnknownTopicOrPartition.code),
        ("/disk1", "elsewhere", ReplicaNotAvailable.code),
    ],
)
def test_moves_that_cannot_be(path: str, topic: str, code: int) -> None:
    broker = Broker(brokers=(1, 2))
    broker.controller.create("orders", [[1]])
    broker.controller.create("elsewhere", [[2]])
    broker.publish()

    answer = broker.ask(move_request(path, topic)).results[0].partitions[0]

    assert answer.error_code == code


def test_a_move_whose_partition_goes_away_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    broker = Broker(directories=("/disk1", "/disk2"))
    broker.create()
    old = broker.logs.directory_of(ORDERS).path
    broker.ask(move_request("/disk2" if old == "/disk1" else "/disk1"))

    from millstream.protocol.messages.delete_topics import DeleteTopicsRequest

    broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1), 5)
    broker.settle()

    assert "could not be moved" in caplog.text
    assert broker.logs.moves.get(ORDERS) is None


def test_the_moves_of_the_last_process_go_on() -> None:
    broker = Broker(directories=("/disk1", "/disk2"))
    broker.create()
    broker.produce()
    old = broker.logs.directory_of(ORDERS).path
    new = "/disk2" if old == "/disk1" else "/disk1"
    broker.logs.moves.begin(ORDERS, new)

    broker.apis.moves.resume()
    broker.settle()

    assert broker.logs.directory_of(ORDERS).path == new
    assert broker.logs.moves.partitions == ()


def test_a_move_of_the_last_process_without_its_partition_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(directories=("/disk1", "/disk2"))
    gone = TopicPartition("gone", 0)
    broker.logs.get_or_create(gone, is_new=True)
    old = broker.logs.directory_of(gone).path
    broker.logs.moves.begin(gone, "/disk2" if old == "/disk1" else "/disk1")

    broker.apis.moves.resume()

    assert broker.logs.moves.partitions == ()
    assert "is given up" in caplog.text


def test_without_the_log_in_use_a_move_of_the_last_process_waits() -> None:
    broker = Broker(directories=("/disk1", "/disk2"))
    broker.create()
    old = broker.logs.directory_of(ORDERS)
    broker.logs.moves.begin(ORDERS, "/disk2" if old.path == "/disk1" else "/disk1")
    partition = broker.replicas.partition("orders", 0)
    broker.logs._registry.remove(broker.logs._registry.current[ORDERS])

    broker.apis.moves.resume()
    broker.settle()

    assert broker.logs.moves.partitions == (ORDERS,)
    assert partition.is_leader
