"""Start and stop: owners, locks, markers, and what else lies in a directory."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InconsistentClusterId, KafkaStorageError
from millstream.storage.checkpoint import (
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from millstream.storage.filesystem import write_atomically
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.meta_properties import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import (
    CLUSTER_ID,
    NODE_ID,
    ORDERS,
    Broker,
    append,
    names_in,
    restarted,
)

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> Broker:
    """Two directories, formatted."""
    return Broker(filesystem, (f"{directory}/one", f"{directory}/two")).format()


def touched_logs(broker: Broker) -> list[TopicPartition]:
    """The partitions whose logs are open."""
    return [
        partition
        for directory in broker.manager.directories
        for partition, slot in directory.logs.items()
        if slot.log is not None
    ]


# Owners.


def test_formatting_gives_each_directory_an_id_once(broker: Broker) -> None:
    metas = [read_meta_properties(broker.filesystem, path) for path in broker.paths]

    assert [(meta.cluster_id, meta.node_id) for meta in metas if meta] == [
        (CLUSTER_ID, NODE_ID)
    ] * 2
    assert len({meta.directory_id for meta in metas if meta}) == 2
    with pytest.raises(KafkaStorageError, match="is formatted already, for node 1 of cluster"):
        broker.format()


def test_a_directory_that_was_never_formatted_is_refused(
    filesystem: FileSystem, directory: str
) -> None:
    with pytest.raises(KafkaStorageError, match=r"has no meta\.properties: format it first"):
        Broker(filesystem, (directory,)).start()

    format_directory(filesystem, directory, CLUSTER_ID, NODE_ID, Random(1))  # It is not locked.


def test_a_directory_of_another_cluster_is_refused(broker: Broker) -> None:
    meta = read_meta_properties(broker.filesystem, broker.paths[1])
    assert meta is not None
    other = MetaProperties("another-cluster", NODE_ID, meta.directory_id)
    write_meta_properties(broker.filesystem, broker.paths[1], other)

    with pytest.raises(InconsistentClusterId, match="belongs to cluster another-cluster"):
        broker.start()


def test_a_directory_of_older_software_gets_an_id(broker: Broker) -> None:
    old = f"version=0\nbroker.id={NODE_ID}\n".encode()
    write_atomically(broker.filesystem, f"{broker.paths[0]}/{META_PROPERTIES_FILE}", old)

    manager = broker.start()

    meta = read_meta_properties(broker.filesystem, broker.paths[0])
    assert meta is not None
    assert meta == MetaProperties(CLUSTER_ID, NODE_ID, manager.directories[0].directory_id)
    assert meta.directory_id is not None


def test_directories_in_use_are_refused_until_they_are_free(broker: Broker) -> None:
    broker.start()

    with pytest.raises(KafkaStorageError, match="one is in use by"):
        restarted(broker).start()
    broker.manager.stop()

    restarted(broker).start()


# A clean stop and what follows.


def test_after_a_clean_stop_logs_are_opened_when_they_are_asked_for(broker: Broker) -> None:
    manager = broker.start()
    for number in range(4):
        append(manager.get_or_create(TopicPartition("t", number), is_new=True), number)
    assert manager.stop(broker_epoch=5) == {}
    again = restarted(broker)

    again.start()

    assert touched_logs(again) == []
    assert again.manager.previous_broker_epoch == 5
    assert len(again.manager.partitions) == 4
    assert again.progress == []
    log = again.manager.get(TopicPartition("t", 3))
    assert log is not None
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (3, 3, 3)
    assert touched_logs(again) == [TopicPartition("t", 3)]


def test_the_marker_is_there_only_while_nobody_uses_the_directory(broker: Broker) -> None:
    marker = f"{broker.paths[0]}/{CLEAN_SHUTDOWN_FILE}"
    broker.start()
    assert not broker.filesystem.exists(marker)

    broker.manager.stop()
    assert broker.filesystem.exists(marker)

    restarted(broker).start()
    assert not broker.filesystem.exists(marker)


def test_a_log_that_was_never_opened_keeps_its_checkpoints(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 6)
    manager.stop()
    second = restarted(broker)
    second.start()

    second.manager.stop()

    path = broker.paths[0]
    assert read_offsets(broker.filesystem, f"{path}/{RECOVERY_POINT_FILE}") == {ORDERS: 6}
    assert read_offsets(broker.filesystem, f"{path}/{HIGH_WATERMARK_FILE}") == {ORDERS: 6}


def test_a_log_start_is_kept_over_a_clean_stop(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 3)
    log.raise_log_start_offset(2)
    manager.stop()

    log = restarted(broker).start().get_or_create(ORDERS)

    assert log.log_start_offset == 2


def test_waiting_commits_hear_of_the_stop(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log)
    answers = broker.commit(log)

    manager.stop()
    broker.settle()

    assert [type(answer) for answer in answers] == [KafkaStorageError]


# What else is in a directory.


def test_foreign_files_and_directories_are_left_alone(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    path = broker.paths[0]
    for name in ("lost+found", "no-number-x", "t-0.00000000000000000000000000000000-stray"):
        broker.filesystem.make_directory(f"{path}/{name}")
    write_atomically(broker.filesystem, f"{path}/notes.txt", b"mine")
    write_atomically(broker.filesystem, f"{path}/t-1", b"a file, no log")
    broker.filesystem.make_directory(f"{path}/__cluster_metadata-0")
    before = names_in(broker.filesystem, path)
    caplog.set_level(logging.INFO, "millstream.storage")

    manager = broker.start()

    assert manager.partitions == []
    assert names_in(broker.filesystem, path) >= before
    text = "\n".join(caplog.messages)
    for name in ("lost+found", "no-number-x", "notes.txt", "t-1"):
        assert f"{path}/{name} is not a log and is left alone" in text
    assert "is a stray log and is not used" in text
    assert "meta.properties" not in text


def test_of_two_logs_of_a_partition_the_longer_one_is_kept_and_none_removed(
    broker: Broker,
) -> None:
    manager = broker.start()
    first = manager.directories[0].directory_id
    append(manager.get_or_create(ORDERS, is_new=True, directory_id=first), 3)
    manager.stop()
    alone = Broker(broker.filesystem, broker.paths[1:], broker.clock)
    append(alone.start().get_or_create(ORDERS, is_new=True), 5)
    alone.manager.stop()
    both = restarted(broker)

    log = both.start().get_or_create(ORDERS)

    assert log.log_end_offset == 5
    assert both.manager.directory_of(ORDERS).path == broker.paths[1]
    assert any(name.endswith("-stray") for name in names_in(broker.filesystem, broker.paths[0]))
    both.manager.stop()
    assert restarted(both).start().get_or_create(ORDERS).log_end_offset == 5
