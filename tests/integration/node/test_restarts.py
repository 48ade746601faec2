"""What a node finds of the last one: moves that were under way, features it may not know."""

from __future__ import annotations

import pytest

from millstream.metadata import features_image
from millstream.metadata.features import (
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    SUPPORTED_FEATURES,
)
from millstream.metadata.records import MetadataBatch, UnsupportedFeatureLevel
from millstream.protocol.messages.config_records import FeatureLevelRecord
from millstream.protocol.notation import VersionRange
from millstream.types import TopicPartition
from tests.integration.node.world import World, create_topic, run
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.waiting import until_async

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_a_move_between_directories_goes_on_after_a_kill() -> None:
    world = World(log_dirs="/one,/two")
    orders = TopicPartition("orders", 0)

    async def scenario() -> None:
        async with world.node() as node:
            assert await create_topic(node, "orders") == 0
            assert node.broker is not None
            logs = node.broker.logs
            log = logs.get_or_create(orders)
            for _ in range(5):
                log.append_as_leader(bytearray(batch_bytes()), 0, NOW_MS)
            old = logs.directory_of(orders).path
            new = "/two" if old == "/one" else "/one"
            logs.moves.begin(orders, new)
            assert logs.moves.advance(orders, 100) > 0
        world.disk = world.disk.after_kill()

        async with world.node() as node:
            assert node.broker is not None
            logs = node.broker.logs
            await until_async(lambda: logs.directory_of(orders).path == new)
            assert logs.moves.partitions == ()
            assert logs.get_or_create(orders).log_end_offset == 5
            await node.stop()

    run(scenario())


def test_a_node_refuses_a_cluster_of_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    older = {**SUPPORTED_FEATURES, METADATA_VERSION: VersionRange(7, METADATA_VERSION_LATEST - 1)}

    async def scenario() -> None:
        async with world.node() as node:
            await node.stop()
        monkeypatch.setattr(features_image, "SUPPORTED_FEATURES", older)
        with pytest.raises(UnsupportedFeatureLevel, match=r"metadata\.version at level 30.*newer"):
            async with world.node():
                pass

    run(scenario())


def test_a_node_that_the_cluster_leaves_behind_ends() -> None:
    world = World()

    async def scenario() -> None:
        async with world.node() as node:
            assert node.shared is not None
            record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=31)
            batch = MetadataBatch(1 << 20, 1, 0, 60, [record])
            node.shared.loader.load_batches([batch], batch.base_offset + 1)
        assert [type(error) for error in world.fatal] == [UnsupportedFeatureLevel]

    run(scenario())
