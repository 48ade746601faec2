"""Logs by partition: where they go, how they come back, how they go away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    InconsistentTopicId,
    InvalidTopic,
    KafkaStorageError,
    LogDirNotFound,
    OffsetOutOfRange,
)
from millstream.storage.checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE, read_offsets
from millstream.storage.file_names import parse_partition_directory_name
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.meta_properties import PARTITION_METADATA_FILE
from millstream.types import TopicPartition, Uuid
from tests.unit.storage.batches import producer_batch
from tests.unit.storage.manager_harness import ORDERS, TOPIC_ID, Broker, append, names_in, restarted

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> Broker:
    """Two directories, formatted."""
    return Broker(filesystem, (f"{directory}/one", f"{directory}/two")).format()


def test_a_log_is_made_when_it_is_first_asked_for_and_found_again(broker: Broker) -> None:
    manager = broker.start()

    log = manager.get_or_create(ORDERS, TOPIC_ID, is_new=True)

    assert manager.get(ORDERS) is log
    assert manager.get_or_create(ORDERS, TOPIC_ID) is log
    assert manager.get(TopicPartition("orders", 1)) is None
    assert manager.partitions == [ORDERS]
    assert manager.topic_id_of(ORDERS) == TOPIC_ID
    assert PARTITION_METADATA_FILE in names_in(broker.filesystem, log.directory)


def test_a_new_log_goes_where_the_fewest_are(broker: Broker) -> None:
    manager = broker.start()

    for number in range(5):
        manager.get_or_create(TopicPartition("t", number), is_new=True)

    assert [len(each.logs) for each in manager.directories] == [3, 2]


def test_a_cordoned_directory_takes_no_new_logs_but_keeps_its_own(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(ORDERS, is_new=True)
    manager.cordon([broker.paths[0]])

    for number in range(3):
        manager.get_or_create(TopicPartition("t", number), is_new=True)

    assert [len(each.logs) for each in manager.directories] == [1, 3]
    assert manager.get(ORDERS) is not None
    manager.cordon(broker.paths)
    with pytest.raises(KafkaStorageError, match="no log directory takes a new log"):
        manager.get_or_create(TopicPartition("t", 9), is_new=True)


def test_a_log_goes_where_the_controller_wants_it(broker: Broker) -> None:
    manager = broker.start()
    wanted = manager.directories[1]

    manager.get_or_create(ORDERS, is_new=True, directory_id=wanted.directory_id)

    assert manager.directory_of(ORDERS) is wanted
    with pytest.raises(LogDirNotFound, match="no directory in service has the id"):
        manager.get_or_create(
            TopicPartition("t", 0), is_new=True, directory_id=Uuid(b"some other id 16")
        )


def test_a_log_of_another_topic_id_is_refused_until_it_is_put_aside(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, TOPIC_ID, is_new=True), 3)
    other_id = Uuid(b"another topic id")

    with pytest.raises(InconsistentTopicId, match="deleted and made again"):
        manager.get_or_create(ORDERS, other_id)
    manager.mark_stray(ORDERS)
    log = manager.get_or_create(ORDERS, other_id)

    assert log.log_end_offset == 0
    names = names_in(broker.filesystem, broker.paths[0])
    assert any(name.endswith("-stray") for name in names)


def test_a_log_without_a_topic_id_gets_it_later(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(ORDERS, is_new=True)

    manager.get_or_create(ORDERS, TOPIC_ID)

    assert manager.topic_id_of(ORDERS) == TOPIC_ID


@pytest.mark.parametrize("topic", ["a/b", "", "t" * 255])
def test_a_topic_that_cannot_be_a_directory_is_refused(broker: Broker, topic: str) -> None:
    manager = broker.start()

    with pytest.raises(InvalidTopic, match="cannot be the directory of a partition"):
        manager.get_or_create(TopicPartition(topic, 0), is_new=True)

    assert manager.partitions == []


# Deleting.


def test_a_deleted_log_is_gone_at_once_and_its_files_after_the_delay(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log)

    assert manager.delete(ORDERS)
    broker.pass_time(999)
    waiting = [name for name in names_in(broker.filesystem, broker.paths[0]) if "orders" in name]

    assert manager.get(ORDERS) is None
    assert log.is_closed
    assert len(waiting) == 1
    parsed = parse_partition_directory_name(waiting[0])
    assert parsed is not None
    assert (parsed.partition, parsed.state) == (ORDERS, "delete")
    broker.pass_time(2)
    assert waiting[0] not in names_in(broker.filesystem, broker.paths[0])
    assert not manager.delete(ORDERS)


def test_the_longest_topic_name_can_be_deleted(broker: Broker) -> None:
    manager = broker.start()
    partition = TopicPartition("t" * 249, 12345)
    manager.get_or_create(partition, is_new=True)

    manager.delete(partition)

    renamed = [name for name in names_in(broker.filesystem, broker.paths[0]) if "-delete" in name]
    assert len(renamed[0]) == 255


def test_a_deletion_goes_on_after_a_restart(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(ORDERS, is_new=True)
    manager.delete(ORDERS)
    manager.stop()
    again = restarted(broker)

    again.start()
    again.pass_time(1)

    assert not any("-delete" in name for name in names_in(again.filesystem, again.paths[0]))
    assert again.manager.partitions == []


def test_a_log_can_be_made_again_while_the_old_one_waits_for_removal(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 5)
    manager.delete(ORDERS)

    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 2)
    broker.pass_time(2_000)

    assert log.log_end_offset == 2
    assert log.read(0, 1000).records is not None


def test_a_new_log_inherits_nothing_from_the_checkpoints_of_a_deleted_one(broker: Broker) -> None:
    """Else a crash would take its records for records before the old log's start."""
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 9)
    log.flush()
    log.raise_log_start_offset(8)
    broker.pass_time(90_000)
    path = manager.directory_of(ORDERS).path
    assert read_offsets(broker.filesystem, f"{path}/{LOG_START_FILE}") == {ORDERS: 8}

    manager.delete(ORDERS)
    directory_id = manager.directories[broker.paths.index(path)].directory_id
    log = manager.get_or_create(ORDERS, is_new=True, directory_id=directory_id)
    append(log, 3)
    manager.abandon()

    assert read_offsets(broker.filesystem, f"{path}/{LOG_START_FILE}") == {}
    log = restarted(broker).start().get_or_create(ORDERS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


# Cutting.


def test_a_truncation_lowers_the_checkpoint_on_disk_first(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 9)
    log.flush()
    broker.pass_time(90_000)
    path = f"{manager.directory_of(ORDERS).path}/{RECOVERY_POINT_FILE}"
    assert read_offsets(broker.filesystem, path) == {ORDERS: 9}
    manager.set_cleaner_offset(ORDERS, 7)

    assert manager.truncate_to(ORDERS, 4)

    assert read_offsets(broker.filesystem, path) == {ORDERS: 4}
    assert manager.cleaner_offset(ORDERS) == 4
    assert log.log_end_offset == 4
    assert not manager.truncate_to(ORDERS, 4)


def test_a_picture_on_its_way_to_disk_does_not_undo_a_truncation(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 9)
    log.flush()
    broker.clock.advance(90_000)
    manager.tick()  # The recovery point 9 is on its way, but not written yet.

    manager.truncate_to(ORDERS, 4)
    broker.settle()

    path = f"{manager.directory_of(ORDERS).path}/{RECOVERY_POINT_FILE}"
    assert read_offsets(broker.filesystem, path)[ORDERS] == 4


def test_a_log_can_begin_anew_below_its_start_and_survive_a_crash(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 9)
    log.raise_log_start_offset(8)
    broker.pass_time(90_000)

    manager.truncate_fully_and_start_at(ORDERS, 3)
    append(log, 2)
    log.flush()
    manager.abandon()

    log = restarted(broker).start().get_or_create(ORDERS)
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)


def test_truncating_a_log_that_is_not_here_says_so(broker: Broker) -> None:
    manager = broker.start()

    with pytest.raises(KafkaStorageError, match="orders-0 has no log on this broker"):
        manager.truncate_to(ORDERS, 0)


# Settings.


def test_new_topic_settings_reach_open_logs_and_those_opened_later(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    manager.get_or_create(TopicPartition("other", 0), is_new=True)
    broker.configs["orders"] = LogConfig(retention_ms=5)

    manager.update_topic_config("orders", broker.configs["orders"])

    assert log.config.retention_ms == 5
    other = manager.get(TopicPartition("other", 0))
    assert other is not None
    assert other.config.retention_ms != 5
    late = manager.get_or_create(TopicPartition("orders", 1), is_new=True)
    assert late.config.retention_ms == 5


def test_new_settings_of_producers_reach_open_logs(broker: Broker) -> None:
    manager = broker.start()
    producers = manager.get_or_create(ORDERS, is_new=True).producers
    manager.get_or_create(TopicPartition("other", 0), is_new=True)
    assert producers.begin_verification(1, 0, 0, 0, supports_epoch_bump=False) is not None

    manager.update_config(
        LogManagerConfig(
            log_dirs=broker.paths,
            transaction_partition_verification_enable=False,
            producer_id_expiration_ms=5,
        )
    )

    assert producers.begin_verification(2, 0, 0, 0, supports_epoch_bump=False) is None
    batch = producer_batch(0)
    producers.record(batch)
    assert producers.remove_expired(batch.max_timestamp + 5) == 1


def test_compacted_logs_are_those_of_compacted_topics(broker: Broker) -> None:
    broker.configs["kept"] = LogConfig(cleanup_policy=("compact",))
    manager = broker.start()
    kept = TopicPartition("kept", 0)
    manager.get_or_create(kept, is_new=True)
    manager.get_or_create(ORDERS, is_new=True)

    assert manager.compacted_logs() == [kept]
    assert manager.cleaner_offset(kept) is None


def test_the_cleaner_offset_survives_a_restart(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 4)
    manager.set_cleaner_offset(ORDERS, 3)
    broker.settle()
    manager.abandon()

    again = restarted(broker).start()

    assert again.cleaner_offset(ORDERS) == 3


class WatchingCleaner:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_working = False

    def pause(self, partition: TopicPartition) -> None:
        self.calls.append(f"pause {partition}")

    def resume(self, partition: TopicPartition) -> None:
        self.calls.append(f"resume {partition}")

    def forget(self, partition: TopicPartition) -> None:
        self.calls.append(f"forget {partition}")

    def is_busy(self, partition: TopicPartition) -> bool:
        return self.is_working


def test_cleaning_is_paused_while_a_log_is_cut_or_goes(broker: Broker) -> None:
    manager = broker.start()
    manager.cleaner = cleaner = WatchingCleaner()
    assert manager.cleaner is cleaner
    append(manager.get_or_create(ORDERS, is_new=True), 4)

    manager.truncate_to(ORDERS, 2)
    assert cleaner.calls == ["pause orders-0", "resume orders-0"]
    manager.delete(ORDERS)

    assert cleaner.calls[2:] == ["pause orders-0", "forget orders-0"]


def test_a_topic_that_is_no_longer_compacted_has_its_cleaning_aborted(broker: Broker) -> None:
    broker.configs["orders"] = LogConfig(cleanup_policy=("compact",))
    manager = broker.start()
    manager.cleaner = cleaner = WatchingCleaner()
    manager.get_or_create(ORDERS, is_new=True)

    manager.update_topic_config("orders", LogConfig())

    assert cleaner.calls == ["pause orders-0", "resume orders-0"]


def test_retention_keeps_away_from_a_log_that_is_being_cleaned(broker: Broker) -> None:
    broker.configs["orders"] = LogConfig(internal_segment_bytes=100, retention_bytes=100)
    manager = broker.start()
    manager.cleaner = cleaner = WatchingCleaner()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 5)
    cleaner.is_working = True

    broker.pass_time(400_000)
    assert log.log_start_offset == 0
    cleaner.is_working = False
    broker.pass_time(400_000)

    assert log.log_start_offset == 3
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)
