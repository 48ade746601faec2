"""The settings of consumer groups: Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import at_least, key, one_of, subset_of, validate
from millstream.coordinator.group.assignors import ASSIGNORS

_INT32_MAX: Final = (1 << 31) - 1
UPGRADE: Final = "upgrade"
DOWNGRADE: Final = "downgrade"
BIDIRECTIONAL: Final = "bidirectional"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """How members of consumer groups are watched, and who computes what they read."""

    session_timeout_ms: int = key(
        "group.consumer.session.timeout.ms",
        45_000,
        at_least(1),
        "How long a member may be silent before it is fenced.",
        unit="ms",
    )
    session_timeout_min_ms: int = key(
        "group.consumer.min.session.timeout.ms",
        45_000,
        at_least(1),
        "The shortest session timeout that a group may be given.",
        unit="ms",
    )
    session_timeout_max_ms: int = key(
        "group.consumer.max.session.timeout.ms",
        60_000,
        at_least(1),
        "The longest session timeout that a group may be given.",
        unit="ms",
    )
    heartbeat_interval_ms: int = key(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "How often members are told to send a heartbeat.",
        unit="ms",
    )
    heartbeat_interval_min_ms: int = key(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "The shortest interval that a group may be given.",
        unit="ms",
    )
    heartbeat_interval_max_ms: int = key(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        "The longest interval that a group may be given.",
        unit="ms",
    )
    size_max: int = key(
        "group.consumer.max.size",
        _INT32_MAX,
        at_least(1),
        "How many members a consumer group may have.",
    )
    assignors: tuple[str, ...] = key(
        "group.consumer.assignors",
        ("uniform", "range"),
        subset_of(*ASSIGNORS),
        "The ways to assign partitions that members may ask for; the first is for those who do "
        "not ask.",
    )
    migration_policy: str = key(
        "group.consumer.migration.policy",
        BIDIRECTIONAL,
        one_of(BIDIRECTIONAL, UPGRADE, DOWNGRADE, "disabled"),
        "Whether groups with members may move between the classic and the consumer protocol.",
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def can_upgrade(self) -> bool:
        """Whether members of the consumer protocol may join a classic group."""
        return self.migration_policy in (BIDIRECTIONAL, UPGRADE)

    @property
    def can_downgrade(self) -> bool:
        """Whether a group whose last members are of the classic protocol becomes a classic one."""
        return self.migration_policy in (BIDIRECTIONAL, DOWNGRADE)
