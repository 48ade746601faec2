"""The settings of the group coordinator: Kafka's names and defaults.

`node` gathers them; `GroupCoordinator` and its shards take a `GroupConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import any_value, at_least, key, validate
from millstream.config.keys import ConfigType

_MINUTE_MS: Final = 60_000
_INT32_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How groups live, and how long what they committed is kept."""

    offsets_topic_num_partitions: int = key(
        "offsets.topic.num.partitions",
        50,
        at_least(1),
        "How many partitions __consumer_offsets is made with; groups are spread over them.",
    )
    offsets_topic_replication_factor: int = key(
        "offsets.topic.replication.factor",
        3,
        at_least(1),
        "How many replicas each of these partitions has.",
        kind=ConfigType.SHORT,
    )
    offsets_topic_segment_bytes: int = key(
        "offsets.topic.segment.bytes",
        100 << 20,
        at_least(1),
        "The size of their segments: small ones are compacted sooner.",
        unit="bytes",
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes",
        7 * 24 * 60,
        at_least(1),
        "How long offsets are kept after their group became empty, or after their commit if the "
        "group does not read the topic any more.",
    )
    offsets_retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms",
        10 * _MINUTE_MS,
        at_least(1),
        "How often expired offsets are looked for.",
        kind=ConfigType.LONG,
        unit="ms",
    )
    offsets_commit_timeout_ms: int = key(
        "offsets.commit.timeout.ms",
        5_000,
        at_least(1),
        "How long a write to __consumer_offsets may take until all replicas have it.",
        unit="ms",
    )
    offset_metadata_max_bytes: int = key(
        "offset.metadata.max.bytes",
        4096,
        any_value(),
        "The longest text that may be committed with an offset.",
    )
    group_min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms",
        6_000,
        any_value(),
        "The shortest session timeout that a member may ask for.",
        unit="ms",
    )
    group_max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms",
        30 * _MINUTE_MS,
        any_value(),
        "The longest session timeout that a member may ask for.",
        unit="ms",
    )
    group_initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        3_000,
        at_least(0),
        "How long the first rebalance of an empty group waits for more members.",
        unit="ms",
    )
    group_max_size: int = key(
        "group.max.size",
        _INT32_MAX,
        at_least(1),
        "How many members a group may have.",
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def offsets_retention_ms(self) -> int:
        """`offsets.retention.minutes` in milliseconds."""
        return self.offsets_retention_minutes * _MINUTE_MS
