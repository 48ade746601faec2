"""Settings that change while the node runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.metadata.configs import ResourceType
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest, ManifestKind
from millstream.node.config import node_config
from millstream.node.dynamic_config import DynamicConfig
from millstream.node.publishers import ConfigPublisher
from millstream.protocol.messages.config_records import ConfigRecord
from millstream.protocol.messages.topic_records import TopicRecord
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.storage.log.config import LogConfig

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


class Rig:
    """A publisher of settings and what it tells."""

    def __init__(self, **overrides: str) -> None:
        given = {"log.dirs": "/d", "log.retention.ms": "1000", "node.id": "1"}
        dynamic = {key.replace("_", "."): value for key, value in overrides.items()}
        self.config = DynamicConfig(node_config(given, dynamic_overrides=dynamic))
        self.told: list[tuple[str, int]] = []
        self.broker_changes = 0
        self.image = EMPTY_IMAGE
        self.publisher = ConfigPublisher(
            1, self.config, on_topic=self._on_topic, on_broker=self._on_broker
        )

    def _on_topic(self, topic: str, config: LogConfig) -> None:
        self.told.append((topic, config.retention_ms))

    def _on_broker(self) -> None:
        self.broker_changes += 1

    def publish(self, *records: ConfigRecord | TopicRecord, is_snapshot: bool = False) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(MetadataProvenance())
        kind = ManifestKind.SNAPSHOT if is_snapshot else ManifestKind.LOG_DELTA
        manifest = LoaderManifest(kind, MetadataProvenance(), LeaderAndEpoch())
        self.publisher.publish(delta, self.image, manifest)

    def set(self, kind: int, name: str, key: str, value: str | None) -> None:
        self.publish(setting(kind, name, key, value))


def setting(kind: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.publish(TopicRecord(name="orders", topic_id=Uuid(bytes([5]) * 16)), is_snapshot=True)
    rig.told.clear()
    rig.broker_changes = 0
    return rig


def test_a_topic_without_settings_shares_the_brokers(rig: Rig) -> None:
    assert rig.config.for_topic("orders") is rig.config.topics
    assert rig.config.topics.retention_ms == 1000


def test_a_topics_settings_are_its_own_and_are_told(rig: Rig) -> None:
    rig.set(TOPIC, "orders", "retention.ms", "5")

    assert rig.told == [("orders", 5)]
    assert rig.config.for_topic("orders").retention_ms == 5
    assert rig.config.for_topic("others").retention_ms == 1000

    rig.set(TOPIC, "orders", "retention.ms", None)
    assert rig.config.for_topic("orders") is rig.config.topics


def test_the_brokers_own_setting_wins_over_the_clusters(rig: Rig) -> None:
    rig.set(BROKER, "", "log.retention.ms", "7")
    assert rig.config.for_topic("orders").retention_ms == 7
    assert rig.told == [("orders", 7)]

    rig.set(BROKER, "1", "log.retention.ms", "8")
    assert rig.config.for_topic("orders").retention_ms == 8

    rig.set(BROKER, "1", "log.retention.ms", None)
    assert rig.config.for_topic("orders").retention_ms == 7
    assert rig.broker_changes == 3


def test_another_brokers_setting_changes_nothing(rig: Rig) -> None:
    rig.set(BROKER, "2", "log.retention.ms", "7")

    assert rig.broker_changes == 0
    assert rig.config.topics.retention_ms == 1000


def test_settings_of_logs_and_cleaner_change_with_the_broker(rig: Rig) -> None:
    rig.set(BROKER, "", "log.cleaner.threads", "3")
    rig.set(BROKER, "", "producer.id.expiration.ms", "60000")

    assert rig.config.cleaner.threads == 3
    assert rig.config.logs.producer_id_expiration_ms == 60_000
    assert rig.config.logs.log_dirs == ("/d",)


def test_settings_that_are_wrong_together_are_not_used(rig: Rig) -> None:
    rig.set(BROKER, "", "log.cleaner.dedupe.buffer.size", "1048576")
    rig.set(BROKER, "", "log.cleaner.threads", "100")

    assert rig.config.cleaner.threads == 1


def test_a_topic_whose_settings_do_not_fit_the_brokers_keeps_those(rig: Rig) -> None:
    rig.set(TOPIC, "orders", "min.compaction.lag.ms", "100")
    rig.set(TOPIC, "orders", "max.compaction.lag.ms", "50")

    assert rig.config.for_topic("orders") is rig.config.topics


def test_a_snapshot_brings_everything_at_once() -> None:
    rig = Rig()

    rig.publish(
        TopicRecord(name="orders", topic_id=Uuid(bytes([5]) * 16)),
        setting(TOPIC, "orders", "retention.ms", "5"),
        setting(BROKER, "", "log.retention.ms", "7"),
        is_snapshot=True,
    )

    assert rig.told == [("orders", 5)]
    assert rig.config.topics.retention_ms == 7


def test_changes_of_other_things_cost_nothing(rig: Rig) -> None:
    before: MetadataImage = rig.image

    rig.publish()

    assert rig.told == []
    assert rig.image.configs is before.configs


def test_a_listeners_limits_change_and_come_back(rig: Rig) -> None:
    rig.set(BROKER, "1", "listener.name.plaintext.max.connections", "3")

    assert rig.config.network.listener_limits["PLAINTEXT"].max_connections == 3
    assert rig.broker_changes == 1
    rig.set(BROKER, "1", "listener.name.plaintext.max.connections", None)
    assert rig.config.network.listener_limits == {}


def test_what_a_start_overrides_holds_whatever_the_metadata_say() -> None:
    rig = Rig(max_connections="100")
    assert rig.config.network.max_connections == 100

    rig.set(BROKER, "", "max.connections", "1")
    rig.set(BROKER, "1", "max.connections", "2")

    assert rig.config.network.max_connections == 100
    rig.set(BROKER, "", "max.connections.per.ip", "7")
    assert rig.config.network.max_connections_per_ip == 7


def test_a_setting_of_an_older_version_that_locks_everybody_out_is_not_used(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.set(BROKER, "", "max.connections", "0")

    assert rig.config.network.max_connections > 0
    assert "max.connections=0" in caplog.text
