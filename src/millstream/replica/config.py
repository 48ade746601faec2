"""The broker's settings for replicas and fetches: Kafka's names and defaults.

`node` gathers them; `ReplicaManager` takes a `ReplicaConfig`. Settings of a topic, such as
`min.insync.replicas`, are in `storage.log.config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from millstream.config import ConfigType, at_least, key, one_of, validate
from millstream.config.validation import Rule
from millstream.replica.replica_selector import RACK_AWARE

_LONG: Final = ConfigType.LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """How replicas are judged, and how much one fetch may take."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ("replica_fetch_wait_max_ms", "replica_socket_timeout_ms"),
            lambda wait_ms, timeout_ms: wait_ms <= timeout_ms,
            "at most replica.socket.timeout.ms ({replica_socket_timeout_ms})",
        ),
        Rule(
            ("replica_fetch_wait_max_ms", "replica_lag_time_max_ms"),
            lambda wait_ms, lag_ms: wait_ms <= lag_ms,
            "at most replica.lag.time.max.ms ({replica_lag_time_max_ms})",
        ),
    )

    replica_lag_time_max_ms: int = key(
        "replica.lag.time.max.ms",
        30_000,
        at_least(1),
        "How long a follower may go without having been at the leader's end before it counts as "
        "out of sync.",
        kind=_LONG,
        unit="ms",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes",
        55 << 20,
        at_least(1024),
        "The most that one fetch answers with, whatever the asker allows; a single larger batch "
        "still comes whole.",
        unit="bytes",
    )
    fetch_session_slots: int = key(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        "How many fetch sessions the broker keeps; without a slot an asker names all its "
        "partitions each time.",
    )

    num_replica_fetchers: int = key(
        "num.replica.fetchers",
        1,
        at_least(1),
        "How many connections this broker has to each leader it follows; a partition is always "
        "fetched over the same one.",
    )
    replica_fetch_wait_max_ms: int = key(
        "replica.fetch.wait.max.ms",
        500,
        at_least(0),
        "How long a leader may wait for records before it answers a follower; less than "
        "`replica.lag.time.max.ms`.",
        unit="ms",
    )
    replica_fetch_min_bytes: int = key(
        "replica.fetch.min.bytes",
        1,
        at_least(0),
        "How much a leader waits for before it answers a follower.",
        unit="bytes",
    )
    replica_fetch_max_bytes: int = key(
        "replica.fetch.max.bytes",
        1 << 20,
        at_least(0),
        "The most that a follower asks for of one partition; a single larger batch still comes "
        "whole.",
        unit="bytes",
    )
    replica_fetch_response_max_bytes: int = key(
        "replica.fetch.response.max.bytes",
        10 << 20,
        at_least(0),
        "The most that a follower asks for at once; a single larger batch still comes whole.",
        unit="bytes",
    )
    replica_fetch_backoff_ms: int = key(
        "replica.fetch.backoff.ms",
        1000,
        at_least(0),
        "How long a follower leaves a partition alone that could not be fetched.",
        unit="ms",
    )
    replica_socket_timeout_ms: int = key(
        "replica.socket.timeout.ms",
        30_000,
        at_least(1),
        "How long a follower waits for the answer of a leader before it connects anew; at least "
        "`replica.fetch.wait.max.ms`.",
        unit="ms",
    )
    replica_selector_class: str | None = key(
        "replica.selector.class",
        None,
        one_of(RACK_AWARE, f"org.apache.kafka.common.replica.{RACK_AWARE}"),
        "Whom a leader sends a consumer to: not set, nobody; `RackAwareReplicaSelector`, to a "
        "replica in the consumer's rack (`client.rack`), the most caught up of them.",
        kind=ConfigType.STRING,
    )

    def __post_init__(self) -> None:
        validate(self)
