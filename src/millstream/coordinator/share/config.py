"""The broker's settings for the state of share groups: Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import ConfigType, at_least, between, key, validate

_SHORT_MAX: Final = (1 << 15) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorConfig:
    """Where the state of share partitions is kept, and how often all of one is written."""

    partition_count: int = key(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        "How many partitions the topic of the share groups' state is made with.",
    )
    replication_factor: int = key(
        "share.coordinator.state.topic.replication.factor",
        3,
        between(1, _SHORT_MAX),
        "How many replicas that topic is made with; if this is not set, at most as many as there "
        "are brokers.",
        kind=ConfigType.SHORT,
    )
    min_isr: int = key(
        "share.coordinator.state.topic.min.isr",
        2,
        between(1, _SHORT_MAX),
        "How many replicas of that topic must be in sync for share groups to go on.",
        kind=ConfigType.SHORT,
    )
    segment_bytes: int = key(
        "share.coordinator.state.topic.segment.bytes",
        100 << 20,
        at_least(1),
        "The size of that topic's segments.",
        unit="bytes",
    )
    updates_per_snapshot: int = key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        "How many changes of a share partition are written before all of its state is.",
    )
    prune_interval_ms: int = key(
        "share.coordinator.state.topic.prune.interval.ms",
        5 * 60 * 1000,
        at_least(1),
        "How often records that later ones have made needless are deleted.",
        unit="ms",
    )
    write_timeout_ms: int = key(
        "share.coordinator.write.timeout.ms",
        5_000,
        at_least(1),
        "How long a write of state may take until all replicas have it.",
        unit="ms",
    )

    def __post_init__(self) -> None:
        validate(self)
