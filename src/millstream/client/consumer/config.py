"""The settings of a consumer, once in Kafka's names and once as keyword arguments.

`Consumer` and `AsyncConsumer` take `ConsumerSettings`; the parts below get a `ConsumerConfig`. A
test holds the two equal. Objects (deserializers, interceptors) are resolved by `ConsumerSession`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.client.config import ClientConfig, ClientSettings, keyword_of, object_setting
from millstream.client.consumer.membership.assignors import DEFAULT_ASSIGNORS, resolve
from millstream.client.consumer.starting_point import parse_reset
from millstream.config import ConfigType, Validator, any_value, at_least, key, keys_of, one_of
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.client.consumer.membership.assignors import Assignor
    from millstream.client.consumer.starting_point import AtTime, BeforeNow
    from millstream.errors import CorruptBatch

_logger: Final = logging.getLogger(__name__)
_MIB: Final = 1 << 20
_LONG: Final = ConfigType.LONG

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"


class ConsumerSettings(ClientSettings, total=False):
    """Keyword arguments of a consumer, but deserializers: durations in seconds, sizes in bytes."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["auto", "consumer", "classic"]
    group_remote_assignor: str | None
    partition_assignment_strategy: Sequence[Any]
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval: float
    auto_offset_reset: str
    isolation_level: Literal["read_uncommitted", "read_committed"]
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait: float
    max_partition_fetch_bytes: int
    prefetch_bytes: int
    check_crcs: bool
    on_corrupt_batch: Literal["raise", "skip"] | Callable[[CorruptBatch], object]
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    client_rack: str
    interceptors: Sequence[Any]


_SETTINGS_OF_GROUPS: Final = {
    "session_timeout_ms": "consumer.session.timeout.ms",
    "heartbeat_interval_ms": "consumer.heartbeat.interval.ms",
}
"""Settings of a classic member that are settings of the group, at the brokers, since KIP-848."""


def _log_skipped(corrupt: CorruptBatch) -> None:
    _logger.warning(
        "skipped offsets %d to %d: %s", corrupt.offset, corrupt.next_offset - 1, corrupt
    )


def _is_reset(policy: str) -> bool:
    try:
        parse_reset(policy)
    except InvalidArgument:
        return False
    return True


_RESET: Final = Validator("earliest, latest, none or by_duration:<ISO 8601 duration>", _is_reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of a consumer, in Kafka's names and units."""

    group_id: str | None = key(
        "group.id",
        None,
        any_value(),
        "The group to read as: it shares the partitions of its topics and keeps offsets.",
        kind=ConfigType.STRING,
    )
    group_instance_id: str | None = key(
        "group.instance.id",
        None,
        any_value(),
        "A name that outlives the process: its partitions wait for it to come back.",
        kind=ConfigType.STRING,
    )
    group_protocol: str = key(
        "group.protocol",
        "auto",
        one_of("auto", "consumer", "classic"),
        "How the group is kept: auto takes the new protocol (KIP-848) where the brokers have it.",
    )
    group_remote_assignor: str | None = key(
        "group.remote.assignor",
        None,
        any_value(),
        "Which assignor of the broker to use (uniform, range); the broker's choice without.",
        kind=ConfigType.STRING,
    )
    partition_assignment_strategy: Sequence[Any] = object_setting(
        "partition.assignment.strategy",
        tuple(each.name for each in DEFAULT_ASSIGNORS),
        "Assignors of classic groups, by name or as objects; the first that all members have.",
    )
    session_timeout_ms: int = key(
        "session.timeout.ms",
        45_000,
        at_least(1),
        "Classic groups: a member that was not heard of for this long is put out.",
        unit="ms",
    )
    heartbeat_interval_ms: int = key(
        "heartbeat.interval.ms",
        3_000,
        at_least(1),
        "Classic groups: how often a member is heard of.",
        unit="ms",
    )
    max_poll_interval_ms: int = key(
        "max.poll.interval.ms",
        300_000,
        at_least(1),
        "A member that does not poll for this long leaves its group.",
        unit="ms",
    )
    max_poll_records: int = key(
        "max.poll.records", 500, at_least(1), "How many records one poll gives at most."
    )
    enable_auto_commit: bool = key(
        "enable.auto.commit",
        True,
        any_value(),
        "Commit from time to time what earlier polls gave.",
    )
    auto_commit_interval_ms: int = key(
        "auto.commit.interval.ms",
        5_000,
        at_least(0),
        "How often that is.",
        unit="ms",
    )
    auto_offset_reset: str = key(
        "auto.offset.reset",
        "latest",
        _RESET,
        "Where to begin without a committed offset, or when it is gone; none raises an error.",
    )
    isolation_level: str = key(
        "isolation.level",
        READ_UNCOMMITTED,
        one_of(READ_UNCOMMITTED, READ_COMMITTED),
        "read_committed gives records of transactions only when they are committed.",
    )
    fetch_min_bytes: int = key(
        "fetch.min.bytes",
        1,
        at_least(0),
        "A broker waits for so many bytes before it answers.",
        unit="bytes",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes",
        50 * _MIB,
        at_least(0),
        "The most bytes of one answer, unless its first batch is larger.",
        unit="bytes",
    )
    fetch_max_wait_ms: int = key(
        "fetch.max.wait.ms",
        500,
        at_least(0),
        "A broker that has not fetch.min.bytes answers after this long.",
        unit="ms",
    )
    max_partition_fetch_bytes: int = key(
        "max.partition.fetch.bytes",
        _MIB,
        at_least(0),
        "The most bytes of one partition in one answer, unless its first batch is larger.",
        unit="bytes",
    )
    prefetch_bytes: int = key(
        "millstream.prefetch.bytes",
        8 * _MIB,
        at_least(1),
        "Fetch ahead of the application until so many bytes wait for it. Ours.",
        unit="bytes",
    )
    check_crcs: bool = key(
        "check.crcs", True, any_value(), "Check that batches are as they were written."
    )
    on_corrupt_batch: str | Callable[[CorruptBatch], object] = object_setting(  # noqa: RUF009  # A field.
        "millstream.on.corrupt.batch",
        "raise",
        "What becomes of a batch that cannot be read: `raise` an error and stand before it, `skip` "
        "it with a line in the log, or a function that is given the `CorruptBatch`, which is "
        "skipped when it returns. Ours.",
    )
    allow_auto_create_topics: bool = key(
        "allow.auto.create.topics",
        True,
        any_value(),
        "Let the brokers create a topic that is subscribed to, if they are set to.",
    )
    exclude_internal_topics: bool = key(
        "exclude.internal.topics",
        True,
        any_value(),
        "Patterns do not match topics such as __consumer_offsets.",
    )
    client_rack: str = key(
        "client.rack",
        "",
        any_value(),
        "Where this client is: it reads from a replica in the same rack if there is one.",
    )
    key_deserializer: Any = object_setting(  # noqa: RUF009  # A field.
        "key.deserializer", None, "Bytes of keys to values: a name, a function or an object."
    )
    value_deserializer: Any = object_setting(  # noqa: RUF009  # A field.
        "value.deserializer", None, "Bytes of values to values: a name, a function or an object."
    )
    interceptors: Sequence[Any] = object_setting(
        "interceptor.classes", (), "Objects that see records before the application; in order."
    )

    @property
    def reset(self) -> AtTime | BeforeNow | None:
        """Where to begin without a position; None if that is an error."""
        return parse_reset(self.auto_offset_reset)

    @property
    def reads_committed(self) -> bool:
        """Whether open and aborted transactions are left out."""
        return self.isolation_level == READ_COMMITTED

    @property
    def wire_group_id(self) -> str:
        """The group as the brokers know it; only consumers with a group ask."""
        assert self.group_id is not None
        return self.names.to_wire(self.group_id)

    @property
    def assignors(self) -> tuple[Assignor, ...]:
        """What a member of a classic group offers."""
        given = self.partition_assignment_strategy
        return resolve(given.split(",") if isinstance(given, str) else given)

    @property
    def has_own_assignors(self) -> bool:
        """Whether the user wants other assignors than everybody has."""
        return self.assignors != DEFAULT_ASSIGNORS

    @property
    def is_cooperative(self) -> bool:
        """Classic members keep what they have while they rebalance if every assignor allows it."""
        return all(each.is_cooperative for each in self.assignors)

    @property
    def corrupt_batch_handler(self) -> Callable[[CorruptBatch], object] | None:
        """What to call before a corrupt batch is skipped; None if it is to be raised."""
        given = self.on_corrupt_batch
        if callable(given):
            return given
        return _log_skipped if given == "skip" else None

    def __post_init__(self) -> None:
        # dataclass(slots=True) makes a second class, which super() without arguments misses.
        ClientConfig.__post_init__(self)
        _ = self.assignors  # It complains of those that do not exist.
        if not callable(self.on_corrupt_batch) and self.on_corrupt_batch not in ("raise", "skip"):
            raise InvalidArgument(
                f"on_corrupt_batch is {self.on_corrupt_batch!r}; it can be 'raise', 'skip' or a "
                "function of a CorruptBatch"
            )
        fault = self._assigning_fault()
        if fault is not None:
            raise InvalidArgument(f"settings that do not go together: {fault}")

    def _assigning_fault(self) -> str | None:
        """Two ways to assign exclude each other: who reads what would not be as the user thinks."""
        if self.group_protocol == "consumer" and self.has_own_assignors:
            return (
                "partition_assignment_strategy is for classic groups; with "
                "group_protocol='consumer' the broker assigns: set group_remote_assignor, or leave "
                "the protocol to be chosen"
            )
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            return (
                "group_remote_assignor is for the consumer protocol; with "
                "group_protocol='classic' a member assigns: set partition_assignment_strategy, or "
                "leave the protocol to be chosen"
            )
        return None

    def without_effect(self, protocol: str) -> list[str]:
        """The settings that were given and mean nothing in a group of a protocol, and why."""
        if protocol == "classic":
            if self.group_remote_assignor is None:
                return []
            return ["group_remote_assignor: in a classic group a member assigns"]
        keys = keys_of(ConsumerConfig)
        return [
            f"{keyword_of(name, keys[name])}: the group's own {of_group} counts"
            for name, of_group in _SETTINGS_OF_GROUPS.items()
            if getattr(self, name) != keys[name].default
        ]
