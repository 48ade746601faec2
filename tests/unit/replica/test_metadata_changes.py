"""What the metadata says is what this broker does with its replicas."""

from __future__ import annotations

from millstream.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from millstream.protocol.messages.topic_records import RemoveTopicRecord
from millstream.types import TopicPartition
from tests.unit.replica.harness import (
    LOCAL,
    World,
    asked,
    codes,
    error_codes,
    topic_id,
    topic_records,
)


def names(world: World) -> list[str]:
    """The partitions in service."""
    return sorted(str(partition.name) for partition in world.manager.partitions)


def test_replicas_of_this_broker_come_and_others_do_not() -> None:
    world = World()
    world.create("mine", partitions=2)
    world.create("followed", replicas=(2, LOCAL))
    world.create("elsewhere", replicas=(2, 3))

    assert names(world) == ["followed-0", "mine-0", "mine-1"]
    assert world.partition("mine").is_leader
    assert not world.partition("followed").is_leader
    assert set(world.store.partitions) == {
        TopicPartition("mine", 0),
        TopicPartition("mine", 1),
        TopicPartition("followed", 0),
    }


def test_a_deleted_topic_goes_with_its_logs() -> None:
    world = World()
    world.create(partitions=2)

    world.remove()

    assert names(world) == []
    assert world.store.partitions == []
    assert codes(world.produce().value) == [UnknownTopicOrPartition.code]


def test_a_topic_made_again_in_the_same_change_starts_empty() -> None:
    world = World()
    world.create()
    world.produce()

    world.publish(RemoveTopicRecord(topic_id=topic_id("t")), *topic_records("t", generation=1))

    assert world.partition().topic_id == topic_id("t", 1)
    assert world.partition().log.log_end_offset == 0
    assert codes(world.produce(topic=topic_id("t", 1)).value) == [0]


def test_a_replica_that_is_assigned_away_goes() -> None:
    world = World()
    world.create(replicas=(LOCAL, 2))

    world.change(replicas=[2], isr=[2], leader=2)

    assert names(world) == []
    assert world.store.partitions == []
    assert codes(world.produce().value) == [NotLeaderOrFollower.code]


def test_logs_that_the_metadata_does_not_have_are_put_aside_at_the_start() -> None:
    world = World()
    world.create("kept")
    world.create("gone")
    world.produce(topic="kept")
    world.store.stop()

    again = World(filesystem=world.filesystem)
    again.publish(*topic_records("kept"))

    assert again.store.partitions == [TopicPartition("kept", 0)]
    assert again.partition("kept").log.log_end_offset == 1


def test_a_log_of_a_topic_that_was_made_again_meanwhile_is_put_aside() -> None:
    world = World()
    world.create()
    world.produce()
    world.store.stop()

    again = World(filesystem=world.filesystem)
    again.publish(*topic_records(generation=1))

    assert again.partition().log.log_end_offset == 0
    assert any(status.name.endswith("-stray") for status in again.filesystem.scan("/disk1"))


def test_a_failed_directory_takes_only_its_own_partitions_out_of_service() -> None:
    world = World(directories=("/disk1", "/disk2"))
    world.create(partitions=4)
    on_first = [
        index
        for index in range(4)
        if world.store.directory_of(TopicPartition("t", index)).path == "/disk1"
    ]
    assert 0 < len(on_first) < 4

    world.filesystem.fail_directory("/disk1")
    for index in on_first:
        world.produce(index=index)

    for index in range(4):
        code = KafkaStorageError.code if index in on_first else 0
        assert codes(world.produce(index=index).value) == [code]
        assert error_codes(world.fetch(asked(0, index=index)).value) == [code]


def test_a_partition_that_is_offline_stays_so_until_it_is_deleted() -> None:
    world = World(directories=("/disk1", "/disk2"))
    world.create(partitions=2)
    index = next(
        index
        for index in range(2)
        if world.store.directory_of(TopicPartition("t", index)).path == "/disk1"
    )
    world.filesystem.fail_directory("/disk1")
    world.produce(index=index)

    world.change(index=index, leader=LOCAL)
    assert codes(world.produce(index=index).value) == [KafkaStorageError.code]
    world.remove()

    assert codes(world.produce(index=index).value) == [UnknownTopicOrPartition.code]


def test_a_disk_that_fails_while_an_epoch_is_noted_takes_the_partition_offline() -> None:
    world = World()
    world.create()
    world.filesystem.fail_directory("/disk1")

    world.change(leader=LOCAL)

    assert codes(world.produce().value) == [KafkaStorageError.code]


def test_a_stopping_broker_answers_everybody() -> None:
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    produce = world.produce()
    fetch = world.fetch(asked(0), max_wait_ms=500)
    assert world.manager.waiting_count == 2

    world.manager.stop()

    assert not produce.is_pending
    assert not fetch.is_pending
    assert world.manager.waiting_count == 0


def test_retention_that_moves_a_log_start_is_told_to_sessions() -> None:
    world = World()
    world.create()
    world.produce()
    session = world.fetch(asked(1), session=(0, 0)).value.session_id
    assert world.fetch(session=(session, 1)).value.partitions == []
    partition = world.partition()

    partition.log.raise_log_start_offset(1)
    world.manager.note_log_start(partition.name)
    world.manager.note_log_start(TopicPartition("nobody", 0))

    answer = world.fetch(session=(session, 2)).value
    assert [result.log_start_offset for _, result in answer.partitions] == [1]
