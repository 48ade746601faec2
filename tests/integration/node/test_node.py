"""A node in this process, on a simulated disk and a clock by hand: what time and faults bring."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.controller.decision import RequestContext
from millstream.errors import BrokerIdNotRegistered, InvalidRequest, KafkaStorageError
from millstream.metadata.snapshot_files import BOOTSTRAP_SNAPSHOT
from millstream.node.broker_lifecycle import BrokerState
from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from millstream.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from millstream.storage.cleaner.cleaner import LogCleaner
from millstream.storage.cleaner.cleaning_control import NoCleaning
from millstream.types import TopicPartition
from tests.integration.node.world import World, create_topic, run, topics_of
from tests.waiting import until_async

if TYPE_CHECKING:
    from millstream.node.node import Node
    from millstream.protocol.message import Message

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_a_topic_can_be_used_when_its_creation_is_answered() -> None:
    async def scenario() -> None:
        async with World().node() as node:
            assert node.broker is not None
            assert await create_topic(node, "orders", 2) == 0

            partition = node.broker.replicas.partition("orders", 1)
            assert partition.is_leader

    run(scenario())


def test_a_broker_stays_alive_by_its_heartbeats() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.shared is not None

            await world.advance(node, 60_000)

            assert node.shared.metadata.is_alive(1)

    run(scenario())


def test_a_broker_that_slept_is_fenced_and_comes_back() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.shared is not None
            assert node.broker is not None
            await create_topic(node, "orders")
            metadata = node.shared.metadata
            seen: list[bool] = []

            # As a suspended machine does: much time at once.
            world.clock.advance(60_000)
            for _ in range(100):
                await world.do_what_is_due(node)
                seen.append(metadata.is_alive(1))
                world.clock.advance(50)

            assert seen[-1]
            assert node.broker.state is BrokerState.RUNNING
            await until_async(lambda: metadata.leader_of("orders", 0) == 1)

    run(scenario())


def test_a_stop_hands_over_and_the_next_start_need_not_recover() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.broker is not None
            await create_topic(node, "orders")
            first_epoch = node.broker.broker_epoch
            await node.stop()
            assert node.broker.state is BrokerState.SHUTTING_DOWN
        async with world.node() as node:
            assert node.broker is not None
            assert node.broker.logs.previous_broker_epoch == first_epoch
            assert all(each.was_clean for each in node.broker.logs.directories)
            await until_async(lambda: node.broker is not None and _leads(node, "orders"))

    run(scenario())


def _leads(node: Node, topic: str) -> bool:
    assert node.broker is not None
    return node.broker.replicas.partition(topic, 0).is_leader


@pytest.mark.parametrize("seed", range(8))
def test_what_was_answered_survives_a_power_loss_at_any_moment(seed: int) -> None:
    async def scenario() -> None:
        world, random = World(seed), Random(seed)
        created: set[str] = set()
        for round_number in range(3):
            async with world.node() as node:
                assert created <= topics_of(node)
                for number in range(random.randint(1, 6)):
                    name = f"topic-{round_number}-{number}"
                    assert await create_topic(node, name) == 0
                    created.add(name)
                after = world.disk.after_power_loss()
            world.disk = after

    run(scenario())


def test_many_changes_make_a_snapshot_from_which_the_next_start_begins() -> None:
    async def scenario() -> None:
        world = World(metadata_log_max_record_bytes_between_snapshots="500")
        async with world.node() as node:
            assert node.shared is not None
            log = node.shared.log
            for number in range(20):
                assert await create_topic(node, f"topic-{number}") == 0
            await until_async(lambda: len(list(log.snapshots())) > 2)
            topics = topics_of(node)
        async with world.node() as node:
            assert node.shared is not None
            assert topics_of(node) == topics
            latest = node.shared.log.latest_snapshot
            assert latest is not None
            assert latest != BOOTSTRAP_SNAPSHOT

    run(scenario())


def _snapshot_files(world: World) -> list[str]:
    directory = "/data/__cluster_metadata-0"
    names = [each.name for each in world.disk.scan(directory)]
    return sorted(f"{directory}/{name}" for name in names if name.endswith(".checkpoint"))


@pytest.mark.parametrize("is_covered", [True, False])
def test_a_damaged_snapshot_is_named_with_what_to_do(is_covered: bool) -> None:
    async def scenario() -> None:
        world = World(metadata_log_max_record_bytes_between_snapshots="500")
        if not is_covered:
            world.given["metadata.max.retention.bytes"] = "1"
        async with world.node() as node:
            assert node.shared is not None
            log = node.shared.log
            for number in range(20):
                assert await create_topic(node, f"topic-{number}") == 0
            await until_async(lambda: len(list(log.snapshots())) > 1 or log.start_offset > 0)
            topics = topics_of(node)
            await node.stop()
        newest = _snapshot_files(world)[-1]
        if not is_covered:
            for older in _snapshot_files(world)[:-1]:
                world.disk.remove(older)
        world.disk.flip_bit(newest, 200)

        advice = "move it away" if is_covered else "restore it from a copy"
        with pytest.raises(KafkaStorageError, match=rf"checkpoint is damaged .*{advice}"):
            async with world.node():
                pass

        if is_covered:
            world.disk.remove(newest)
            async with world.node() as node:
                assert topics_of(node) == topics

    run(scenario())


def test_snapshots_make_room_by_the_rules_of_retention() -> None:
    async def scenario() -> None:
        world = World(
            metadata_log_max_record_bytes_between_snapshots="1000", metadata_max_retention_bytes="1"
        )
        async with world.node() as node:
            assert node.shared is not None
            log = node.shared.log
            for number in range(30):
                assert await create_topic(node, f"topic-{number}") == 0
            await until_async(lambda: log.start_offset > 0)
            topics = topics_of(node)
        async with world.node() as node:
            assert topics_of(node) == topics

    run(scenario())


def test_a_stop_after_many_records_takes_a_snapshot() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.shared is not None
            assert await create_topic(node, "wide", 1100) == 0
            await node.stop()
            assert node.shared.log.latest_snapshot != BOOTSTRAP_SNAPSHOT
        async with world.node() as node:
            assert topics_of(node) == {"wide"}

    run(scenario())


def test_a_metadata_log_that_cannot_be_synced_ends_the_node() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.shared is not None
            assert node.broker is not None
            answers: list[Message] = []

            def fail(operation: str, path: str, _: int) -> None:
                if operation == "sync" and "__cluster_metadata" in path:
                    raise OSError(5, "input/output error")

            world.disk.before_operation = fail
            topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic])
            node.broker._channel.submit(request, RequestContext(version=7), answers.append)
            await until_async(lambda: bool(world.fatal))

            assert answers == []
            world.disk.before_operation = None

    run(scenario())


def test_a_cleaner_runs_as_soon_as_a_topic_is_compacted() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.broker is not None
            await create_topic(node, "plain")
            assert isinstance(node.broker.logs.cleaner, NoCleaning)

            await create_topic(node, "compacted", cleanup_policy="compact")

            assert isinstance(node.broker.logs.cleaner, LogCleaner)
            await world.advance(node, 60_000)
            await node.stop()
        async with world.node() as node:
            assert node.broker is not None
            assert isinstance(node.broker.logs.cleaner, LogCleaner)
            assert node.broker.logs.compacted_logs() == [TopicPartition("compacted", 0)]

    run(scenario())


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            await create_topic(node, "orders")
        world.given["node.id"] = "2"
        with pytest.raises(KafkaStorageError, match="belongs to node 1"):
            async with world.node():
                pass
        world.given["node.id"] = "1"
        async with world.node() as node:
            assert topics_of(node) == {"orders"}

    run(scenario())


def test_a_disk_that_is_not_mounted_is_not_taken_for_a_new_one() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            await node.stop()
        world.given["log.dirs"] = "/data,/more"

        with pytest.raises(KafkaStorageError, match=r"/more has no meta\.properties while others"):
            async with world.node():
                pass

    run(scenario())


def test_a_client_cannot_unregister_the_broker_that_serves_it() -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.broker is not None
            answers: list[Message] = []
            request = UnregisterBrokerRequest(broker_id=1)
            node.broker._channel.submit(request, RequestContext(), answers.append)
            await until_async(lambda: bool(answers))

            await world.advance(node, 3000)

            (answer,) = answers
            assert isinstance(answer, UnregisterBrokerResponse)
            assert answer.error_code == InvalidRequest.code
            assert world.fatal == []
            assert node.broker.metadata.is_alive(1)

    run(scenario())


def test_a_broker_that_the_controller_disowns_says_so_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        world = World()
        async with world.node() as node:
            assert node.broker is not None
            refused = BrokerHeartbeatResponse(error_code=BrokerIdNotRegistered.code)

            node.broker._answered(refused)

            assert "refuses this broker's heartbeats" in caplog.text
            assert world.fatal == []
            assert node.broker.state is BrokerState.RUNNING

    run(scenario())

    run(scenario())


def test_one_of_two_disks_that_fails_takes_only_its_partitions() -> None:
    async def scenario() -> None:
        world = World(log_dirs="/meta,/other")
        async with world.node() as node:
            assert node.broker is not None
            assert node.shared is not None
            assert await create_topic(node, "wide", 8) == 0
            metadata = node.shared.metadata

            def placed() -> dict[str, int]:
                topic = metadata.topic("wide")
                assert topic is not None
                found: dict[str, int] = {}
                for each in topic.partitions.values():
                    found[str(each.directories[0])] = found.get(str(each.directories[0]), 0) + 1
                return found

            ids = {str(each.directory_id) for each in node.broker.logs.directories}
            await until_async(lambda: set(placed()) == ids)

            world.disk.fail_directory("/other")
            other = node.broker.logs.directories[1]
            node.broker.logs._registry.fail(other, KafkaStorageError("the disk is gone"))
            await until_async(
                lambda: sum(metadata.leader_of("wide", number) is None for number in range(8)) == 4
            )
            assert metadata.is_alive(1)
            await world.advance(node, 60_000)
            assert world.fatal == []

    run(scenario())
