"""The settings of share groups: the broker's, under Kafka's names, and what a group has of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from millstream.config import Rule, at_least, between, key, validate

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
READ_COMMITTED: Final = "read_committed"


def _within(name: str, shown: str) -> Rule:
    return Rule(
        (name, f"min_{name}", f"max_{name}"),
        lambda value, low, high: low <= value <= high,
        f"between group.share.min.{shown} ({{min_{name}}}) and group.share.max.{shown} "
        f"({{max_{name}}})",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """What every share group has that does not say otherwise, and how far one may go."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        _within("session_timeout_ms", "session.timeout.ms"),
        _within("heartbeat_interval_ms", "heartbeat.interval.ms"),
        _within("record_lock_duration_ms", "record.lock.duration.ms"),
        _within("delivery_count_limit", "delivery.count.limit"),
        _within("partition_max_record_locks", "partition.max.record.locks"),
    )

    session_timeout_ms: int = key(
        "group.share.session.timeout.ms",
        45_000,
        at_least(1),
        "How long a member of a share group may be silent.",
        unit="ms",
    )
    min_session_timeout_ms: int = key(
        "group.share.min.session.timeout.ms",
        45_000,
        at_least(1),
        "The shortest time that a group may set for that.",
        unit="ms",
    )
    max_session_timeout_ms: int = key(
        "group.share.max.session.timeout.ms",
        60_000,
        at_least(1),
        "The longest time that a group may set for that.",
        unit="ms",
    )
    heartbeat_interval_ms: int = key(
        "group.share.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "How often a member of a share group reports.",
        unit="ms",
    )
    min_heartbeat_interval_ms: int = key(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "The shortest interval that a group may set for that.",
        unit="ms",
    )
    max_heartbeat_interval_ms: int = key(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        "The longest interval that a group may set for that.",
        unit="ms",
    )
    max_size: int = key(
        "group.share.max.size", 200, between(1, 1_000), "How many members a share group may have."
    )
    max_sessions: int = key(
        "group.share.max.share.sessions",
        2_000,
        at_least(1),
        "How many share sessions this broker may have.",
    )
    record_lock_duration_ms: int = key(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1_000, 3_600_000),
        "How long a member of a share group has a record to itself.",
        unit="ms",
    )
    min_record_lock_duration_ms: int = key(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1_000, 30_000),
        "The shortest time that a group may set for that.",
        unit="ms",
    )
    max_record_lock_duration_ms: int = key(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30_000, 3_600_000),
        "The longest time that a group may set for that.",
        unit="ms",
    )
    delivery_count_limit: int = key(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        "How often a record is delivered before it is given up.",
    )
    min_delivery_count_limit: int = key(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        "The lowest number that a group may set for that.",
    )
    max_delivery_count_limit: int = key(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        "The highest number that a group may set for that.",
    )
    partition_max_record_locks: int = key(
        "group.share.partition.max.record.locks",
        2_000,
        between(100, 10_000),
        "How many records of a partition a share group may have in flight.",
    )
    min_partition_max_record_locks: int = key(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2_000),
        "The lowest number that a group may set for that.",
    )
    max_partition_max_record_locks: int = key(
        "group.share.max.partition.max.record.locks",
        4_000,
        between(2_000, 20_000),
        "The highest number that a group may set for that.",
    )

    def __post_init__(self) -> None:
        validate(self)

    def settings(self, dynamic: Mapping[str, str]) -> ShareGroupSettings:
        """What holds for a group that has these dynamic settings, checked when they were made."""

        def number(name: str, shown: str) -> int:
            # The broker's limits hold now, whatever held when the group's value was set.
            value = int(dynamic.get(f"share.{shown}", getattr(self, name)))
            low, high = int(getattr(self, f"min_{name}")), int(getattr(self, f"max_{name}"))
            return min(max(value, low), high)

        return ShareGroupSettings(
            number("session_timeout_ms", "session.timeout.ms"),
            number("heartbeat_interval_ms", "heartbeat.interval.ms"),
            number("record_lock_duration_ms", "record.lock.duration.ms"),
            number("delivery_count_limit", "delivery.count.limit"),
            number("partition_max_record_locks", "partition.max.record.locks"),
            dynamic.get("share.auto.offset.reset", LATEST),
            dynamic.get("share.isolation.level") == READ_COMMITTED,
            dynamic.get("share.renew.acknowledge.enable", "true") == "true",
            self.max_size,
        )


class ShareGroupSettings(NamedTuple):
    """What holds for one share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: str
    is_read_committed: bool
    allows_renewal: bool
    max_size: int
